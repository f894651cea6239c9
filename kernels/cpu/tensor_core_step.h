// One tensor-core step in exact integer arithmetic: any operands, slow. The SIMD step takes it where its own range
// ends.
#pragma once

#include <cstddef>
#include <cstdint>

namespace samebits::cpu {

// Bits of c + a[0]*b[0] + ... + a[15]*b[15] as the Hopper tensor core adds them (bf16 operands, fp32 accumulator);
// a[i] is at a[i * a_stride], and b likewise. Model: docs/contract.md.
std::uint32_t tensor_core_step(std::uint32_t c, const std::uint16_t* a, std::ptrdiff_t a_stride, const std::uint16_t* b,
                               std::ptrdiff_t b_stride);

}  // namespace samebits::cpu
