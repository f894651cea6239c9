// The gate weight in the layouts that the logits kernels read; host code, run once at creation.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/plan/plan.h"
#include "samebits/samebits.h"

namespace samebits::cuda {

// bf16 parts of a weight of this dtype (BF16 or FP32).
constexpr int num_parts(std::int32_t dtype) {
  return dtype == SAMEBITS_FP32 ? kMaxParts : 1;
}

// gate_weight, [G, H] of dtype BF16 or FP32 in host memory, as [parts][Gp][Hp] bf16: the plain form's layout, and the
// input of the others. Gp = G rounded up to kGateRowPad, Hp = padded_hidden_size(H); the padding is +0.
std::vector<std::uint16_t> split_rows(const samebits_tensor& gate_weight, std::int64_t gate_rows,
                                      std::int64_t hidden_size);

// The decode form's layout of such rows: see decode.h.
std::vector<std::uint16_t> pack_fragments(const std::vector<std::uint16_t>& rows, std::int64_t parts,
                                          std::int64_t padded_gate_rows, std::int64_t padded_hidden_size);

}  // namespace samebits::cuda
