// One fused step of a tensor core as its definition says, in integers. Slow and general; fast_chain is the fast form.
//
// Sources of the parameters: sm_90 was measured on an H200 (all bits of 1.2e11 steps). The others are from Khattak and
// Mikaitis, "Accurate Models of NVIDIA Tensor Cores", arXiv 2512.07004, and Xie et al., "MMA-Sim", arXiv 2511.10909.

#include <algorithm>
#include <array>
#include <bit>
#include <stdexcept>

#include "oracle/emulate/fp32.h"
#include "oracle/emulate/tc256.h"

namespace samebits::oracle {
namespace {

constexpr int kNoFloor = -1024;  // below every exponent that a product can have
constexpr std::array kTable = {
    StepParameters{"sm_70", 4, 23, kNoFloor, false}, StepParameters{"sm_80", 8, 24, -132, false},
    StepParameters{"sm_86", 8, 24, -132, false},     StepParameters{"sm_89", 8, 24, -132, false},
    StepParameters{"sm_90", 16, 25, -133, true},     StepParameters{"sm_100", 16, 25, -133, false},
    StepParameters{"sm_120", 16, 25, -133, false},
};

// A finite value as (-1)^negative * significand * 2^(exponent - fraction bits of its format). Zero has significand 0;
// subnormals keep the exponent of the smallest normals.
struct Decoded {
  bool negative;
  int exponent;
  std::uint64_t significand;
};

Decoded decode_bf16(std::uint16_t bits) {
  const int field = (bits >> 7) & 0xff;
  return {(bits >> 15) != 0, std::max(field, 1) - 127, (bits & 0x7fu) | (field != 0 ? 0x80u : 0u)};
}

Decoded decode_fp32(std::uint32_t bits) {
  const int field = static_cast<int>((bits >> 23) & 0xff);
  return {(bits >> 31) != 0, std::max(field, 1) - 127, (bits & 0x7fffffu) | (field != 0 ? 0x800000u : 0u)};
}

// What the non-finite operands of a step force as its result; 0: nothing, all operands are finite.
std::uint32_t special_result(std::uint32_t c, std::span<const std::uint16_t> a, std::span<const std::uint16_t> b) {
  bool nan = (c & 0x7fffffffu) > 0x7f800000u;
  bool plus_inf = c == 0x7f800000u;
  bool minus_inf = c == 0xff800000u;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const unsigned x = a[i] & 0x7fffu, y = b[i] & 0x7fffu;
    if (x < 0x7f80u && y < 0x7f80u) continue;
    if (x > 0x7f80u || y > 0x7f80u || x == 0 || y == 0) {
      nan = true;
    } else if (((a[i] ^ b[i]) & 0x8000u) != 0) {
      minus_inf = true;
    } else {
      plus_inf = true;
    }
  }
  if (nan || (plus_inf && minus_inf)) return kNanBits;
  return plus_inf ? 0x7f800000u : minus_inf ? 0xff800000u : 0u;
}

// sum * 2^unit, rounded toward zero to fp32. Gradual underflow; a zero result is +0; overflow is Inf.
std::uint32_t round_toward_zero(std::int64_t sum, int unit) {
  if (sum == 0) return 0;
  const std::uint64_t magnitude = static_cast<std::uint64_t>(sum < 0 ? -sum : sum);
  const std::uint32_t sign = sum < 0 ? 0x80000000u : 0u;
  const int exponent = unit + static_cast<int>(std::bit_width(magnitude)) - 1;
  if (exponent > 127) return sign | 0x7f800000u;
  const int kept_exponent = std::max(exponent, -126);
  const int drop = kept_exponent - 23 - unit;  // low bits of `magnitude` that fp32 cannot hold
  const std::uint64_t significand = drop >= 0 ? magnitude >> std::min(drop, 63) : magnitude << -drop;
  if (significand == 0) return 0;
  // The hidden bit of a normal significand carries into the exponent field; a subnormal one has none.
  return sign | ((static_cast<std::uint32_t>(kept_exponent + 126) << 23) + static_cast<std::uint32_t>(significand));
}

}  // namespace

std::span<const StepParameters> step_parameter_table() {
  return kTable;
}
const StepParameters& sm90() {
  return kTable[4];
}

std::uint32_t step(const StepParameters& parameters, std::uint32_t c, std::span<const std::uint16_t> a,
                   std::span<const std::uint16_t> b) {
  if (a.size() != b.size() || a.size() > static_cast<std::size_t>(parameters.products)) {
    throw std::invalid_argument("step: operands must have equal length, at most the number of products of a step");
  }
  if (const std::uint32_t special = special_result(c, a, b); special != 0) return special;

  std::array<Decoded, 16> products;
  int emax = parameters.exponent_floor;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Decoded x = decode_bf16(a[i]), y = decode_bf16(b[i]);
    products[i] = {x.negative != y.negative, x.exponent + y.exponent, x.significand * y.significand};
    if (products[i].significand != 0) emax = std::max(emax, products[i].exponent);
  }
  const Decoded addend = decode_fp32(c);
  if (addend.significand != 0) emax = std::max(emax, addend.exponent);

  // Magnitudes in units of 2^(emax - fraction_bits), each cut toward zero before the sum. A product has 14 fraction
  // bits, the accumulator 23.
  std::int64_t sum = 0;
  const auto add = [&](const Decoded& term, int fraction_bits_of_term) {
    if (term.significand == 0) return;  // its exponent may lie above emax
    const std::uint64_t scaled = term.significand << (parameters.fraction_bits - fraction_bits_of_term);
    const std::int64_t aligned = static_cast<std::int64_t>(scaled >> std::min(emax - term.exponent, 63));
    sum += term.negative ? -aligned : aligned;
  };
  for (std::size_t i = 0; i < a.size(); ++i) add(products[i], 14);
  add(addend, 23);
  return round_toward_zero(sum, emax - parameters.fraction_bits);
}

std::uint32_t chain(const StepParameters& parameters, std::uint32_t c, std::span<const std::uint16_t> a,
                    std::span<const std::uint16_t> b) {
  if (a.size() != b.size()) throw std::invalid_argument("chain: operands must have equal length");
  const std::size_t products = static_cast<std::size_t>(parameters.products);
  // A short last step equals one padded with +0: zero products change neither emax nor the sum.
  for (std::size_t k = 0; k < a.size(); k += products) {
    const std::size_t n = std::min(products, a.size() - k);
    c = step(parameters, c, a.subspan(k, n), b.subspan(k, n));
  }
  return c;
}

}  // namespace samebits::oracle
