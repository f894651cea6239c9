// The numerics contract tc256 on the CPU, bit for bit: logits by tensor-core steps, and the elementwise functions.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "oracle/spec/router_spec.h"
#include "oracle/tensors/router_inputs.h"

namespace samebits::oracle {

// Parameters of one fused dot-product-accumulate step of a tensor core.
struct StepParameters {
  const char* architecture;  // "sm_90"
  int products;              // bf16 products fused in one step
  int fraction_bits;         // of the aligned sum, relative to 2^emax
  int exponent_floor;        // least emax
  bool measured;             // false: from the literature
};
std::span<const StepParameters> step_parameter_table();
const StepParameters& sm90();

// c' = STEP(c, a, b): the definition, in integers, for any operands. Bits in, bits out.
std::uint32_t step(const StepParameters& parameters, std::uint32_t c, std::span<const std::uint16_t> a,
                   std::span<const std::uint16_t> b);
// CHAIN over any length; the tail is padded with +0 in both operands.
std::uint32_t chain(const StepParameters& parameters, std::uint32_t c, std::span<const std::uint16_t> a,
                    std::span<const std::uint16_t> b);

inline constexpr std::int64_t kChunk = 256;  // products of one chain of the contract

// Finished logits [rows, G] of the given rows of a case, computed by several threads where that pays. Throws as
// PackedGateWeight (gate_weight.h), which callers that ask again and again for rows of one case keep.
std::vector<float> tc256_logits(const RouterSpec& spec, const RouterInputs& inputs, std::span<const std::int64_t> rows);

// Elementwise functions of the contract. All return the one NaN.
namespace tc256 {
float exp(float x);
float sigmoid(float x);
float softplus(float x);
float sqrt_softplus(float x);
float tanh(float x);
float log(float x);    // log(+-0) = -Inf, below 0 NaN
float log1p(float x);  // log1p(-1) = -Inf, below -1 NaN, log1p(-0) = -0
float rsqrt(float x);  // fdiv(1, fsqrt(x))
// The same of every value of `x`. `y` has the size of `x` and shares no element with it.
void exp(std::span<const float> x, std::span<float> y);
void sigmoid(std::span<const float> x, std::span<float> y);
void sqrt_softplus(std::span<const float> x, std::span<float> y);
// Sum over many terms: 32 interleaved left folds, then five exchanges (16, 8, 4, 2, 1).
float sum32(std::span<const float> values);
}  // namespace tc256

// Empty when this build and this thread's floating-point mode can emulate the contract; else what is wrong
// (contracted multiply-add, flush-to-zero, denormals-are-zero, excess precision). Run at start-up.
std::string self_test();

}  // namespace samebits::oracle
