// The constants of a router in host memory, as they are used.
#pragma once

#include <cstdint>
#include <vector>

#include "samebits/samebits.h"

namespace samebits::cuda {

// Vectors are empty where the spec has no such constant.
struct HostConstants {
  std::int32_t num_parts = 0;              // 0: no gate weight
  std::vector<std::uint16_t> weight_rows;  // [parts][Gp][Hp], see logits/pack.h
  std::vector<float> linear_bias;          // [G], rounded as the spec says
  std::vector<float> selection_bias;       // [num_bias_variants, R], likewise
  std::vector<float> input_scale_vector, per_expert_scale, global_scale;
  std::vector<std::int32_t> hash_table;  // [hash_vocab_size, k], checked
};

// A weight [rows, H] of dtype BF16 or FP32 in host or device memory, as split_rows makes it (logits/pack.h).
std::vector<std::uint16_t> read_weight_rows(const samebits_tensor& weight);

// Reads host or device memory, as the constants say. Throws Error for constants that do not fit the spec.
HostConstants read_constants(const samebits_router_spec& spec, const samebits_constants* constants);

}  // namespace samebits::cuda
