// Routers and calls for tests: plain vectors in, plain vectors out.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cpu/steps.h"
#include "kernels/test/random_bits.h"

namespace samebits::cpu::test {

// Softmax router, k of E, one group, no bias, nothing renormalised.
inline samebits_router_spec plain_spec(std::int32_t hidden_size, std::int32_t num_experts, std::int32_t top_k) {
  samebits_router_spec spec{};
  spec.struct_size = sizeof(spec);
  spec.hidden_size = hidden_size;
  spec.num_experts = num_experts;
  spec.top_k = top_k;
  spec.logits_dtype = SAMEBITS_FP32;
  spec.input_scale = 1.0f;
  spec.temperature = 1.0f;
  spec.score_func = SAMEBITS_SCORE_SOFTMAX;
  spec.score_stage = SAMEBITS_SCORE_BEFORE_TOPK;
  spec.score_dtype = SAMEBITS_FP32;
  spec.selection_method = SAMEBITS_SELECT_TOPK;
  spec.rank_by = SAMEBITS_RANK_BY_SCORE;
  spec.n_group = 1;
  spec.topk_group = 1;
  spec.topk_scope = SAMEBITS_TOPK_GLOBAL;
  spec.sort = SAMEBITS_SORT_BY_KEY_DESC;
  spec.weight_source = SAMEBITS_WEIGHT_UNBIASED_SCORE;
  spec.renormalize = SAMEBITS_RENORM_NONE;
  spec.routed_scaling_factor = 1.0f;
  spec.scale_stage = SAMEBITS_SCALE_AFTER_RENORM;
  spec.weights_dtype = SAMEBITS_FP32;
  return spec;
}

// Sigmoid scores, fp32 selection bias, sum-normalised with 1e-20, scale 2.5: the DeepSeek-V3 kind without groups.
inline samebits_router_spec sigmoid_bias_spec(std::int32_t hidden_size, std::int32_t num_experts, std::int32_t top_k) {
  samebits_router_spec spec = plain_spec(hidden_size, num_experts, top_k);
  spec.score_func = SAMEBITS_SCORE_SIGMOID;
  spec.selection_bias_dtype = SAMEBITS_FP32;
  spec.num_bias_variants = 1;
  spec.renormalize = SAMEBITS_RENORM_L1;
  spec.eps_mode = SAMEBITS_EPS_ADD;
  spec.eps = 1e-20f;
  spec.routed_scaling_factor = 2.5f;
  return spec;
}

// G and K, written out once more: the code under test has its own.
inline std::int64_t rows_of_gate(const samebits_router_spec& spec) {
  const bool in_gate = spec.shared_mode == SAMEBITS_SHARED_IN_GATE;
  return spec.num_experts + spec.zero_experts + (in_gate ? spec.shared_experts : 0);
}
inline std::int64_t columns_of(const samebits_router_spec& spec) {
  return rows_of_gate(spec) - spec.num_experts - spec.zero_experts + spec.top_k;
}

struct Constants {
  std::vector<std::uint16_t> gate_weight;
  std::vector<float> linear_bias, selection_bias, input_scale_vector, per_expert_scale, global_scale;
  std::vector<std::int32_t> hash_table;
};

template <class T>
samebits_tensor tensor(const std::vector<T>& values, std::int64_t rows, std::int64_t cols, std::int32_t dtype) {
  return {const_cast<T*>(values.data()), rows, cols, cols, dtype, 0};
}

inline samebits_constants abi_constants(const samebits_router_spec& spec, const Constants& c) {
  samebits_constants constants{};
  constants.struct_size = sizeof(constants);
  constants.memory = SAMEBITS_MEMORY_HOST;
  const std::int64_t rows = rows_of_gate(spec);
  if (!c.gate_weight.empty()) {
    constants.gate_weight = tensor(c.gate_weight, rows, spec.hidden_size, SAMEBITS_BF16);
  }
  const auto floats = [](const std::vector<float>& values, std::int64_t height, std::int64_t width) {
    return values.empty() ? samebits_tensor{} : tensor(values, height, width, SAMEBITS_FP32);
  };
  constants.linear_bias = floats(c.linear_bias, 1, rows);
  constants.selection_bias = floats(c.selection_bias, spec.num_bias_variants, spec.num_experts + spec.zero_experts);
  constants.input_scale_vector = floats(c.input_scale_vector, 1, spec.hidden_size);
  constants.per_expert_scale = floats(c.per_expert_scale, 1, rows);
  constants.global_scale = floats(c.global_scale, 1, 1);
  if (!c.hash_table.empty()) {
    constants.hash_table = tensor(c.hash_table, spec.hash_vocab_size, spec.top_k, SAMEBITS_INT32);
  }
  return constants;
}

samebits_constants abi_constants(const samebits_router_spec& spec, Constants&&) = delete;  // it points into them

struct Routed {
  std::vector<std::int32_t> ids;
  std::vector<float> weights, logits;
  std::vector<std::int32_t> tokens_per_expert, expert_offsets, slot_of_position, position_of_slot, sorted_token_ids,
      expert_ids, num_tokens_post_padded;
  std::string kernel_name;
};

// Equal by bits, so that NaN equals itself and -0 is not +0.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

struct CallOptions {
  std::vector<std::int32_t> token_ids, row_class;  // empty: absent
  std::optional<std::int32_t> num_valid_rows;
  std::int32_t block_size = 0;
  bool bookkeeping = false;
  std::uint32_t poison = 0xdeadbeefu;  // what the outputs hold before the call
};

class TestRouter {
 public:
  TestRouter(const samebits_router_spec& spec, const Constants& constants, const Steps& steps = tc256_steps())
      : spec_(spec) {
    const samebits_constants abi = abi_constants(spec, constants);
    EXPECT_EQ(create_with_steps(steps, &spec, &abi, &router_), SAMEBITS_OK) << samebits_last_error(nullptr);
  }
  ~TestRouter() { samebits_destroy(router_); }
  TestRouter(const TestRouter&) = delete;
  TestRouter& operator=(const TestRouter&) = delete;

  // The functions that calls go through, after creation.
  struct Functions {
    decltype(&samebits_workspace_bytes) workspace_bytes = samebits_workspace_bytes;
    decltype(&samebits_workspace_init) workspace_init = samebits_workspace_init;
    decltype(&samebits_route) route = samebits_route;
    decltype(&samebits_route_from_logits) route_from_logits = samebits_route_from_logits;
  };
  Functions functions;

  samebits_router* get() const { return router_; }
  const samebits_router_spec& spec() const { return spec_; }

  Routed route(const std::vector<std::uint16_t>& hidden_states, const CallOptions& options = {}) const {
    samebits_inputs inputs{};
    inputs.num_tokens = static_cast<std::int64_t>(hidden_states.size()) / spec_.hidden_size;
    inputs.hidden_states = tensor(hidden_states, inputs.num_tokens, spec_.hidden_size, SAMEBITS_BF16);
    return call(inputs, options, functions.route);
  }
  Routed route_from_logits(const std::vector<float>& logits, const CallOptions& options = {}) const {
    samebits_inputs inputs{};
    inputs.num_tokens = static_cast<std::int64_t>(logits.size()) / rows_of_gate(spec_);
    inputs.router_logits = tensor(logits, inputs.num_tokens, rows_of_gate(spec_), SAMEBITS_FP32);
    return call(inputs, options, functions.route_from_logits);
  }

 private:
  template <class Function>
  Routed call(samebits_inputs& inputs, const CallOptions& options, Function function) const {
    const std::int64_t t = inputs.num_tokens, k = columns_of(spec_), e = rows_of_gate(spec_);
    const std::int64_t slots = t * k, block = options.block_size;
    const auto filled_floats = [&](std::int64_t n) {
      return std::vector<float>(static_cast<std::size_t>(n), std::bit_cast<float>(options.poison));
    };
    const auto filled_ints = [&](std::int64_t n) {
      return std::vector<std::int32_t>(static_cast<std::size_t>(n), static_cast<std::int32_t>(options.poison));
    };
    inputs.struct_size = sizeof(inputs);
    if (!options.token_ids.empty()) inputs.token_ids = tensor(options.token_ids, 1, t, SAMEBITS_INT32);
    if (!options.row_class.empty()) inputs.row_class = tensor(options.row_class, 1, t, SAMEBITS_INT32);
    if (options.num_valid_rows) inputs.num_valid_rows = &*options.num_valid_rows;
    Routed r;
    r.ids = filled_ints(slots), r.weights = filled_floats(slots), r.logits = filled_floats(t * e);
    samebits_outputs outputs{};
    outputs.struct_size = sizeof(outputs);
    outputs.topk_ids = tensor(r.ids, t, k, SAMEBITS_INT32);
    outputs.topk_weights = tensor(r.weights, t, k, SAMEBITS_FP32);
    outputs.router_logits = tensor(r.logits, t, e, SAMEBITS_FP32);
    if (options.bookkeeping) {
      r.tokens_per_expert = filled_ints(e), r.expert_offsets = filled_ints(e + 1);
      r.slot_of_position = filled_ints(slots), r.position_of_slot = filled_ints(slots);
      outputs.tokens_per_expert = r.tokens_per_expert.data();
      outputs.expert_offsets = r.expert_offsets.data();
      outputs.slot_of_position = r.slot_of_position.data();
      outputs.position_of_slot = r.position_of_slot.data();
    }
    if (block > 0) {
      const std::int64_t blocks = (slots + std::min(e, slots) * (block - 1)) / block;
      r.sorted_token_ids = filled_ints(blocks * block), r.expert_ids = filled_ints(blocks);
      r.num_tokens_post_padded = filled_ints(1);
      outputs.block_size = options.block_size;
      outputs.sorted_token_ids = r.sorted_token_ids.data();
      outputs.expert_ids = r.expert_ids.data();
      outputs.num_tokens_post_padded = r.num_tokens_post_padded.data();
    }
    std::vector<unsigned char> workspace(functions.workspace_bytes(router_, t), 0xa5);
    EXPECT_EQ(functions.workspace_init(router_, workspace.data(), workspace.size(), nullptr), SAMEBITS_OK);
    EXPECT_EQ(function(router_, &inputs, &outputs, workspace.data(), nullptr), SAMEBITS_OK)
        << samebits_last_error(router_);
    r.kernel_name = outputs.kernel_name;
    return r;
  }

  samebits_router_spec spec_;
  samebits_router* router_ = nullptr;
};

inline Constants random_constants(const samebits_router_spec& spec, std::uint64_t seed) {
  Constants c;
  const std::int64_t h = spec.hidden_size, e = rows_of_gate(spec), ranked = spec.num_experts + spec.zero_experts;
  if (h > 0) c.gate_weight = normal_bf16(seed, e * h, 1.0f / std::sqrt(static_cast<float>(h)));
  if (spec.linear_bias_dtype != SAMEBITS_DTYPE_NONE) c.linear_bias = normal_fp32(seed + 1, e);
  if (spec.selection_bias_dtype != SAMEBITS_DTYPE_NONE) {
    c.selection_bias = normal_fp32(seed + 2, spec.num_bias_variants * ranked, 0.1f, 11.5f);
  }
  if (spec.input_scale_vector != 0) c.input_scale_vector = normal_fp32(seed + 3, h);
  if (spec.per_expert_scale != 0) c.per_expert_scale = normal_fp32(seed + 4, e);
  if (spec.global_scale != 0) c.global_scale = {0.75f};
  if (spec.selection_method == SAMEBITS_SELECT_HASH_TABLE) {
    for (std::int64_t row = 0; row < spec.hash_vocab_size; ++row) {
      // Distinct: a start of its own for each row, and steps of 1 around the ranked experts.
      const auto start = static_cast<std::int64_t>(draw(seed + 5, static_cast<std::uint64_t>(row)) >> 1);
      for (std::int64_t i = 0; i < spec.top_k; ++i) {
        c.hash_table.push_back(static_cast<std::int32_t>((start + i) % ranked));
      }
    }
  }
  return c;
}

template <class T>
std::vector<T> rows_of(const std::vector<T>& values, std::int64_t width, std::int64_t first, std::int64_t count) {
  return {values.begin() + first * width, values.begin() + (first + count) * width};
}

}  // namespace samebits::cpu::test
