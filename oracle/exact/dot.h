// Dot products of a row and a gate weight in double, with what is needed to bound their error.
//
// Notation of the derivations: t_k = x_k w_k exactly, T = sum |t_k|; gamma_n(n, u) = n u / (1 - n u) (Higham, "Accuracy
// and Stability of Numerical Algorithms", 2nd ed., lemma 3.1): a term that meets at most n roundings of relative size u
// is off by at most gamma_n(n, u) of itself.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "oracle/spec/router_spec.h"
#include "oracle/tensors/router_inputs.h"

namespace samebits::oracle {

inline constexpr double kUnitFp32 = 0x1p-24;
inline constexpr double kUnitDouble = 0x1p-53;
// Radii are sums of fewer than 2^20 non-negative numbers in double; stretched by this they stay upper bounds.
inline constexpr double kStretch = 1 + 0x1p-30;

// A partial sum in any order is at most T plus its error, which is below T: below this it stays finite in fp32.
inline constexpr double kSafeTotal = 0x1p126;

inline double gamma_n(double n, double u) {
  return n * u / (1 - n * u);
}

// A product of bf16 values (16 bits) or of bf16 and fp32 (32 bits) is exact in double and far from underflow, so
// |value - sum t_k| <= gamma_n(depth, 2^-53) T. NaN or Inf where an operand is not finite.
struct Dot {
  double value = 0.0;
  double total = 0.0;  // T, as computed: with the same relative error
  double terms = 0.0;  // number of t_k that are not 0
  double depth = 0.0;  // additions that a term meets
};
Dot dot(std::span<const double> x, std::span<const double> w);

// The gate weight [H] of one expert.
std::vector<double> gate_weight_row(const RouterInputs& inputs, std::int64_t expert);
// The linear bias as it is added; 0 without one.
double linear_bias(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t expert);

}  // namespace samebits::oracle
