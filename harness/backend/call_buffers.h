// The buffers of one call: inputs, outputs full of poison, workspace, each between guard bands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "harness/backend/guarded_buffer.h"
#include "harness/backend/memory.h"
#include "oracle/tensors/router_inputs.h"
#include "oracle/tensors/router_outputs.h"
#include "properties/run.h"
#include "samebits/samebits.h"

namespace samebits::harness {

// Sizes of a spec as samebits.h defines them.
std::int64_t ranked_experts(const samebits_router_spec& spec);  // R
std::int64_t gate_rows(const samebits_router_spec& spec);       // G
std::int64_t topk_columns(const samebits_router_spec& spec);    // K

// A matrix without gaps between its rows.
samebits_tensor matrix(const GuardedBuffer& buffer, std::int64_t rows, std::int64_t columns, std::int32_t dtype);

template <class T>
GuardedBuffer& add_input(std::deque<GuardedBuffer>& buffers, Memory& memory, const char* name,
                         const std::vector<T>& values) {
  GuardedBuffer& buffer = buffers.emplace_back(memory, name, values.size() * sizeof(T));
  buffer.write(std::as_bytes(std::span<const T>(values)));
  return buffer;
}

class CallBuffers {
 public:
  // `rows`: the inputs of this request (select_rows).
  CallBuffers(Memory& memory, const samebits_router_spec& spec, const oracle::RouterInputs& rows,
              const properties::RunRequest& request, std::size_t workspace_bytes);

  const samebits_inputs& inputs() const { return inputs_; }
  samebits_outputs& outputs() { return outputs_; }
  void* workspace() { return workspace_->data(); }

  // After the call: reads everything back and notes the first damage.
  void inspect(properties::RunResult& result);
  // After inspect: the outputs as the laws read them.
  oracle::RouterOutputs read() const;

 private:
  void add_inputs(const samebits_router_spec& spec, const oracle::RouterInputs& rows);
  void add_bookkeeping(std::int64_t slots, std::int32_t block_size);
  GuardedBuffer& add_output(const char* name, std::int64_t elements);  // 4 bytes each
  std::int32_t* add_integers(const char* name, std::int64_t elements, std::vector<std::int32_t> oracle::Bookkeeping::*);

  struct Integers {
    const GuardedBuffer* buffer;
    std::vector<std::int32_t> oracle::Bookkeeping::*values;
  };

  Memory& memory_;
  std::uint32_t poison_;
  std::int64_t tokens_, gate_rows_, columns_;      // T, G, K
  std::deque<GuardedBuffer> read_only_, written_;  // deques: a buffer keeps its address
  samebits_inputs inputs_{};
  samebits_outputs outputs_{};
  GuardedBuffer* ids_;
  GuardedBuffer* weights_;
  GuardedBuffer* logits_ = nullptr;
  std::vector<Integers> bookkeeping_;
  GuardedBuffer* num_tokens_post_padded_ = nullptr;
  GuardedBuffer* workspace_;
};

}  // namespace samebits::harness
