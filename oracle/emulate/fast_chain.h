// Chains of sm_90 steps for 32 columns at once, in floating point; equal to chain() bit for bit.
//
// Why floating point can do it: a product of two bf16 values has 16 significant bits, so a*b is exact in fp32, and so
// is its product with 2^(25 - emax); converting to int32 cuts toward zero, which is the alignment of a step, sign and
// all. This holds while emax lies in [-100, 120]: then a*b cannot overflow, a product that underflows is below one unit
// and contributes 0 as it must, and the result is a normal number. A column that leaves this range, holds an Inf or a
// NaN, or comes near the int32 limit is reported, and the caller computes it by the definition.
//
// The implementation is compiled once per instruction set, so its files define nothing with external linkage beside
// their one entry point: an inline function shared with other files could be merged to a version that the CPU lacks.
#pragma once

#include <cstdint>
#include <span>

namespace samebits::oracle::fast_chain {

inline constexpr int kColumns = 32;

// Raw exponents as the kernel reads them. A zero may never be the maximum, and a sum with an Inf or NaN in it must lie
// above the valid range whatever the partner is; all sums of two fit int16.
inline constexpr std::int16_t kZeroExponent = -6000;
inline constexpr std::int16_t kSpecialExponent = 12000;

struct Operands {
  const float* row;                      // [16 * steps] bf16 values
  const std::int16_t* row_exponents;     // [16 * steps]
  const float* columns;                  // [16 * steps][kColumns] bf16 values
  const std::int16_t* column_exponents;  // [16 * steps][kColumns]
  int steps;
};

// result[n] = chain(+0, row, column n). Bit n of the return value: result[n] is not valid, use the definition.
using Function = std::uint32_t (*)(const Operands& operands, float* result);
std::uint32_t baseline(const Operands& operands, float* result);
std::uint32_t avx2(const Operands& operands, float* result);    // needs AVX2
std::uint32_t avx512(const Operands& operands, float* result);  // needs AVX-512 F, BW, VL, DQ

struct Isa {
  const char* name;
  Function function;
};
std::span<const Isa> available_isas();   // what this CPU and build have, best first
Function selected();                     // the best one, or the one that a test asked for
void select_for_test(const char* name);  // nullptr: the best one again

}  // namespace samebits::oracle::fast_chain
