// Whether two cases, or their tensors, are the same to the bit.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

#include "oracle/spec/spec_yaml.h"
#include "properties/case.h"

namespace samebits::harness {

// Bits, so that NaN equals itself and -0 differs from +0.
template <class Element>
bool same_bits(const std::vector<Element>& a, const std::vector<Element>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(Element)) == 0);
}
inline bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

inline void expect_same_inputs(const oracle::RouterInputs& a, const oracle::RouterInputs& b) {
  EXPECT_EQ(a.num_tokens, b.num_tokens);
  EXPECT_EQ(a.hidden_size, b.hidden_size);
  EXPECT_EQ(a.gate_rows, b.gate_rows);
  EXPECT_EQ(a.num_valid_rows, b.num_valid_rows);
  EXPECT_TRUE(same_bits(a.hidden_states, b.hidden_states));
  EXPECT_TRUE(same_bits(a.gate_weight_bf16, b.gate_weight_bf16));
  EXPECT_TRUE(same_bits(a.gate_weight_fp32, b.gate_weight_fp32));
  EXPECT_TRUE(same_bits(a.linear_bias, b.linear_bias));
  EXPECT_TRUE(same_bits(a.selection_bias, b.selection_bias));
  EXPECT_TRUE(same_bits(a.router_logits, b.router_logits));
  EXPECT_TRUE(same_bits(a.input_scale_vector, b.input_scale_vector));
  EXPECT_TRUE(same_bits(a.per_expert_scale, b.per_expert_scale));
  EXPECT_TRUE(same_bits(a.global_scale, b.global_scale));
  EXPECT_EQ(a.hash_table, b.hash_table);
  EXPECT_EQ(a.token_ids, b.token_ids);
  EXPECT_EQ(a.token_ids_int32, b.token_ids_int32);
  EXPECT_EQ(a.row_class, b.row_class);
}

inline void expect_same_case(const properties::Case& a, const properties::Case& b) {
  EXPECT_TRUE(a.spec == b.spec) << oracle::to_yaml(a.spec) << "\nversus\n" << oracle::to_yaml(b.spec);
  EXPECT_EQ(a.spec_name, b.spec_name);
  EXPECT_EQ(a.variant, b.variant);
  const properties::CaseDescription &x = a.description, &y = b.description;
  EXPECT_EQ(x.seed, y.seed);
  EXPECT_EQ(x.index, y.index);
  EXPECT_EQ(x.hazard, y.hazard);
  EXPECT_EQ(x.stage, y.stage);
  EXPECT_EQ(x.num_tokens, y.num_tokens);
  EXPECT_EQ(x.hidden_size, y.hidden_size);
  EXPECT_EQ(x.num_experts, y.num_experts);
  EXPECT_EQ(x.top_k, y.top_k);
  EXPECT_EQ(x.n_group, y.n_group);
  EXPECT_EQ(x.topk_group, y.topk_group);
  EXPECT_EQ(x.zero_experts, y.zero_experts);
  EXPECT_EQ(x.shared_in_gate, y.shared_in_gate);
  EXPECT_EQ(x.vocab_size, y.vocab_size);
  EXPECT_EQ(x.num_valid_rows, y.num_valid_rows);
  EXPECT_EQ(x.data_key, y.data_key);
  EXPECT_EQ(x.hidden, y.hidden);
  EXPECT_EQ(x.weight, y.weight);
  EXPECT_EQ(x.gate_weight_dtype, y.gate_weight_dtype);
  EXPECT_EQ(x.linear_bias, y.linear_bias);
  EXPECT_EQ(x.selection_bias, y.selection_bias);
  EXPECT_TRUE(same_bits(x.bias_offset, y.bias_offset));
  EXPECT_TRUE(same_bits(x.bias_spread, y.bias_spread));
  EXPECT_EQ(x.logits, y.logits);
  EXPECT_TRUE(same_bits(x.logits_offset, y.logits_offset));
  EXPECT_TRUE(same_bits(x.logits_spread, y.logits_spread));
  EXPECT_EQ(x.scales, y.scales);
  EXPECT_EQ(x.tokens, y.tokens);
  EXPECT_EQ(x.token_ids_int32, y.token_ids_int32);
  EXPECT_EQ(x.row_classes, y.row_classes);
  EXPECT_EQ(x.plants, y.plants);
  EXPECT_EQ(x.keep_rows, y.keep_rows);
  EXPECT_EQ(x.keep_experts, y.keep_experts);
  EXPECT_EQ(x.keep_columns, y.keep_columns);
  EXPECT_EQ(x.generated_hidden_size, y.generated_hidden_size);
  ASSERT_EQ(x.data.has_value(), y.data.has_value());
  if (x.data) expect_same_inputs(*x.data, *y.data);
}

}  // namespace samebits::harness
