// One call of a mutant through its C ABI, and every byte that it may have touched.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "kernels/mutants/mutants.h"
#include "kernels/test/test_router.h"

namespace samebits::cpu::test {

struct Given {
  std::vector<float> logits = {};
  std::vector<std::uint16_t> hidden_states = {};  // instead of logits
  std::vector<std::uint16_t> second_hidden_states = {};
  std::vector<float> fp32_gate_weight = {};
  std::vector<std::int64_t> token_ids = {};
  std::vector<std::int32_t> row_class = {};
  std::optional<std::int32_t> num_valid_rows = std::nullopt;
  std::int32_t block_size = 0;
  bool bookkeeping = false;
  bool wide_ids = false;
  bool bf16_weights = false;
  bool wants_logits = true;
  bool misaligned = false;
  std::int64_t gap = 0;  // columns between the rows of ids and weights
};

// Memory that held 0x5a in every byte, all of it part of what a call left behind.
class Traces {
 public:
  template <class T>
  T* take(std::int64_t count) {
    std::vector<unsigned char>& bytes = blocks_.emplace_back(static_cast<std::size_t>(count) * sizeof(T) + 16, 0x5a);
    return reinterpret_cast<T*>(bytes.data());
  }
  std::vector<unsigned char> all() const {
    std::vector<unsigned char> bytes;
    for (const auto& block : blocks_) bytes.insert(bytes.end(), block.begin(), block.end());
    return bytes;
  }

 private:
  std::vector<std::vector<unsigned char>> blocks_;
};

// What the call leaves in its outputs, its given logits and behind its workspace; null: the good router.
inline std::vector<unsigned char> all_bytes(const mutants::Mutant* mutant, const samebits_router_spec& spec,
                                            const Constants& given_constants, const Given& given) {
  samebits_constants constants = abi_constants(spec, given_constants);
  const std::int64_t e = rows_of_gate(spec), k = columns_of(spec), h = spec.hidden_size;
  if (!given.fp32_gate_weight.empty()) constants.gate_weight = tensor(given.fp32_gate_weight, e, h, SAMEBITS_FP32);
  samebits_router* router = nullptr;
  const bool creates = mutant != nullptr && mutant->abi.create != nullptr;
  EXPECT_EQ(creates ? mutant->abi.create(&spec, &constants, &router)
                    : create_with_steps(mutant == nullptr ? tc256_steps() : mutant->steps, &spec, &constants, &router),
            SAMEBITS_OK)
      << samebits_last_error(nullptr);

  const bool routes = !given.hidden_states.empty();
  const std::int64_t t = static_cast<std::int64_t>(routes ? given.hidden_states.size() / static_cast<std::size_t>(h)
                                                          : given.logits.size() / static_cast<std::size_t>(e));
  Traces traces;
  samebits_inputs inputs{};
  inputs.struct_size = sizeof(inputs);
  inputs.num_tokens = t;
  float* logits = traces.take<float>(t * e);
  std::copy(given.logits.begin(), given.logits.end(), logits);
  auto* hidden = traces.take<std::uint16_t>(t * h + 1) + (given.misaligned ? 1 : 0);
  std::copy(given.hidden_states.begin(), given.hidden_states.end(), hidden);
  if (routes) {
    inputs.hidden_states = {hidden, t, h, h, SAMEBITS_BF16, 0};
  } else {
    inputs.router_logits = {logits, t, e, e, SAMEBITS_FP32, 0};
  }
  if (!given.token_ids.empty()) inputs.token_ids = tensor(given.token_ids, 1, t, SAMEBITS_INT64);
  if (!given.row_class.empty()) inputs.row_class = tensor(given.row_class, 1, t, SAMEBITS_INT32);
  if (given.num_valid_rows) inputs.num_valid_rows = &*given.num_valid_rows;

  samebits_outputs outputs{};
  outputs.struct_size = sizeof(outputs);
  const std::int64_t stride = k + given.gap, slots = t * k;
  outputs.topk_ids = {
      traces.take<std::int64_t>(t * stride), t, k, stride, given.wide_ids ? SAMEBITS_INT64 : SAMEBITS_INT32, 0};
  outputs.topk_weights = {
      traces.take<float>(t * stride), t, k, stride, given.bf16_weights ? SAMEBITS_BF16 : SAMEBITS_FP32, 0};
  if (given.wants_logits) outputs.router_logits = {traces.take<float>(t * e), t, e, e, SAMEBITS_FP32, 0};
  if (given.bookkeeping) {
    outputs.tokens_per_expert = traces.take<std::int32_t>(e);
    outputs.expert_offsets = traces.take<std::int32_t>(e + 1);
    outputs.slot_of_position = traces.take<std::int32_t>(slots);
    outputs.position_of_slot = traces.take<std::int32_t>(slots);
  }
  if (given.block_size > 0) {
    outputs.block_size = given.block_size;
    const std::int64_t blocks = (slots + std::min(e, slots) * (given.block_size - 1)) / given.block_size;
    outputs.sorted_token_ids = traces.take<std::int32_t>(blocks * given.block_size);
    outputs.expert_ids = traces.take<std::int32_t>(blocks);
    outputs.num_tokens_post_padded = traces.take<std::int32_t>(1);
  }

  const std::size_t bytes = samebits_workspace_bytes(router, t);
  std::vector<unsigned char> workspace(bytes + 1, 0xa5);
  EXPECT_EQ(samebits_workspace_init(router, workspace.data(), bytes, nullptr), SAMEBITS_OK);
  auto function = routes ? samebits_route : samebits_route_from_logits;
  if (mutant != nullptr) {
    const auto fault = routes ? mutant->abi.route : mutant->abi.route_from_logits;
    if (fault != nullptr) function = fault;
  }
  EXPECT_EQ(function(router, &inputs, &outputs, workspace.data(), nullptr), SAMEBITS_OK) << samebits_last_error(router);
  if (!given.second_hidden_states.empty()) {
    std::copy(given.second_hidden_states.begin(), given.second_hidden_states.end(), hidden);
    EXPECT_EQ(function(router, &inputs, &outputs, workspace.data(), nullptr), SAMEBITS_OK);
  }
  samebits_destroy(router);
  std::vector<unsigned char> left = traces.all();
  left.push_back(workspace[bytes]);
  return left;
}

}  // namespace samebits::cpu::test
