// The buffers of one call: inputs, and outputs full of poison, each between guard bands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
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

// Rows of `columns` values, `stride` elements apart, from element `first` on; what lies between is loud: NaN, and 100.
template <class T>
std::vector<T> spread(const std::vector<T>& values, std::int64_t columns, std::int64_t first, std::int64_t stride);

template <class T>
GuardedBuffer& add_input(std::deque<GuardedBuffer>& buffers, Memory& memory, const char* name,
                         const std::vector<T>& values) {
  return buffers.emplace_back(memory, name, std::as_bytes(std::span<const T>(values)));
}

class CallBuffers {
 public:
  // `rows`: the inputs of this request (only_rows).
  CallBuffers(Memory& memory, const samebits_router_spec& spec, const oracle::RouterInputs& rows,
              const properties::RunRequest& request);

  bool from_logits() const { return from_logits_; }
  samebits_inputs& inputs() { return inputs_; }
  samebits_outputs& outputs() { return outputs_; }

  // Every input holds the byte `value` for a while, then again what it was given.
  void disguise_inputs(std::byte value);
  void restore_inputs();
  // The same for one of them, which a late kernel of the stream fills. false: the call has no such input.
  bool fill_late(properties::InputTensor input, Stream& stream);
  void poison_outputs();

  // After the call: what `inspect` looks at, to be fetched.
  void add_to(std::vector<GuardedBuffer*>& buffers);
  // After that: notes the first damage.
  void inspect(properties::RunResult& result);
  // After inspect: what was written although nothing may have been; empty: nothing was.
  std::string written_output() const;
  // After inspect: the outputs as the laws read them.
  oracle::RouterOutputs read() const;

 private:
  // Elements of a matrix in a buffer: the first one, and how far rows are apart.
  struct Place {
    std::int64_t first;
    std::int64_t stride;
  };
  struct Output {
    GuardedBuffer* buffer = nullptr;
    Place place{};
    std::int64_t columns = 0;
    std::int64_t element_size = 0;
  };
  struct Integers {
    const GuardedBuffer* buffer;
    std::vector<std::int32_t> oracle::Bookkeeping::*values;
  };

  template <class T>
  samebits_tensor add_rows(properties::InputTensor input, const char* name, const std::vector<T>& values,
                           std::int64_t rows, std::int64_t columns, std::int32_t dtype);
  void add_inputs(const samebits_router_spec& spec, const oracle::RouterInputs& rows);
  void add_bookkeeping(std::int64_t slots, const properties::RunRequest& request);
  samebits_tensor add_matrix(Output& output, const char* name, std::int64_t columns, std::int64_t gap,
                             std::int32_t dtype);
  GuardedBuffer& add_output(const char* name, std::int64_t bytes);
  std::int32_t* add_integers(const char* name, std::int64_t elements, std::vector<std::int32_t> oracle::Bookkeeping::*);
  std::string gap_damage(const Output& output) const;
  template <class T>
  std::vector<T> values(const Output& output) const;

  Memory& memory_;
  std::uint32_t poison_;
  properties::Layout layout_;
  bool from_logits_;
  std::int64_t tokens_, gate_rows_, columns_;                // T, G, K
  std::deque<GuardedBuffer> read_only_, written_, staging_;  // deques: a buffer keeps its address
  std::map<properties::InputTensor, GuardedBuffer*> by_input_;
  samebits_inputs inputs_{};
  samebits_outputs outputs_{};
  Output ids_, weights_, logits_;
  std::vector<Integers> bookkeeping_;
  GuardedBuffer* num_tokens_post_padded_ = nullptr;
};

}  // namespace samebits::harness
