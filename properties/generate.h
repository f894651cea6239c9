// Case i of a seed, for one spec.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/case.h"
#include "properties/claims.h"

namespace samebits::properties {

struct GenerateOptions {
  bool full_stage = true;       // the router computes logits itself
  bool logits_stage = true;     // the router can start from given logits
  std::int64_t max_tokens = 0;  // limit of the router; 0: none
  bool odd_shapes = false;      // sizes at and around the edges of kernels instead of those of the spec
};

// Depends on (spec, seed, index, options) alone. The first directed_cases() indices are directed: one per hazard that
// the spec has; the others are drawn by generators that amplify the same hazards.
Case generate_case(const std::string& spec_name, const std::string& variant, const oracle::RouterSpec& spec,
                   std::uint64_t seed, std::uint64_t index, const GenerateOptions& options);
std::int64_t directed_cases(const oracle::RouterSpec& spec, const GenerateOptions& options);

}  // namespace samebits::properties
