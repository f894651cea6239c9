// The body of fast_chain for vectors of SAMEBITS_LANES floats. No include guard on purpose: one inclusion per file and
// instruction set. GCC vector types, so that one text serves all of them.

#include <cstdint>

#include "oracle/emulate/fast_chain.h"

namespace samebits::oracle::fast_chain {
namespace {

constexpr int kLanes = SAMEBITS_LANES;
constexpr int kStride = 2 * kLanes;  // columns in flight: one vector of int16 exponents, two of floats

typedef float Floats __attribute__((vector_size(kLanes * 4)));
typedef std::int32_t Ints __attribute__((vector_size(kLanes * 4)));
typedef std::uint32_t Words __attribute__((vector_size(kLanes * 4)));
typedef std::int16_t Shorts __attribute__((vector_size(kLanes * 4)));      // 2 * kLanes
typedef std::int16_t HalfShorts __attribute__((vector_size(kLanes * 2)));  // kLanes

template <class Vector, class Element>
inline __attribute__((always_inline)) Vector load(const Element* from) {
  Vector v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}

// Exponents with a sum below this have no non-zero product among them.
constexpr int kNoProduct = -1000;
constexpr int kLeastEmax = -100, kGreatestEmax = 120;
// |sum of products| below this leaves room for the accumulator (< 2^26) and for rounding up in the int32 range.
constexpr int kSumLimit = 0x7fffffff - (1 << 26) - 128;

// Wraps: a lane that is not valid may hold the least integer.
inline __attribute__((always_inline)) Ints magnitude_of(Ints x) {
  const Words sign = (Words)(x >> 31);
  return (Ints)(((Words)x ^ sign) - sign);
}

// One step for kLanes columns; returns all ones in lanes where the result is not valid.
inline __attribute__((always_inline)) Ints finish_step(Ints product_emax, Ints emax, Ints sum, Floats scale,
                                                       Floats* accumulator) {
  const Floats c = *accumulator;
  const Ints sum_magnitude = magnitude_of(sum);
  const Ints total = (Ints)((Words)sum + (Words) __builtin_convertvector(c * scale, Ints));
  const Ints magnitude = magnitude_of(total);
  // To 24 bits toward zero: round to nearest, and step back by one where that went up.
  Floats rounded = __builtin_convertvector(magnitude, Floats);
  rounded = (Floats)((Ints)rounded + (__builtin_convertvector(rounded, Ints) > magnitude));
  rounded = (Floats)((Ints)rounded | (total & (Ints)(Words{} + 0x80000000u)));
  const Floats unit = (Floats)((emax + (127 - 25)) << 23);
  const Ints has_product = product_emax > kNoProduct;
  // Without a product the accumulator stays as it is; it is never -0, because a chain starts at +0.
  *accumulator = (Floats)(((Ints)(rounded * unit) & has_product) | ((Ints)c & ~has_product));
  return has_product & ((emax < kLeastEmax) | (emax > kGreatestEmax) | (sum_magnitude >= kSumLimit));
}

inline __attribute__((always_inline)) void chain_stride(const Operands& o, int first, float* result, Ints* invalid) {
  Floats c[2] = {};
  Ints bad[2] = {};
  const float* row = o.row;
  const std::int16_t* row_exponents = o.row_exponents;
  const float* columns = o.columns + first;
  const std::int16_t* column_exponents = o.column_exponents + first;
  for (int s = 0; s < o.steps; ++s) {
    Shorts largest = load<Shorts>(column_exponents) + row_exponents[0];
#pragma GCC unroll 16
    for (int k = 1; k < 16; ++k) {
      const Shorts e = load<Shorts>(column_exponents + k * kColumns) + row_exponents[k];
      largest = e > largest ? e : largest;
    }
    Ints product_emax[2], emax[2], sum[2] = {};
    Floats scale[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      HalfShorts half;
      __builtin_memcpy(&half, reinterpret_cast<const char*>(&largest) + h * static_cast<int>(sizeof half), sizeof half);
      product_emax[h] = __builtin_convertvector(half, Ints);
      const Ints accumulator_exponent = (((Ints)c[h] >> 23) & 0xff) - 127;
      emax[h] = accumulator_exponent > product_emax[h] ? accumulator_exponent : product_emax[h];
      scale[h] = (Floats)((127 + 25 - emax[h]) << 23);
    }
#pragma GCC unroll 16
    for (int k = 0; k < 16; ++k) {
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        const Floats product = load<Floats>(columns + k * kColumns + h * kLanes) * row[k];
        sum[h] = (Ints)((Words)sum[h] + (Words) __builtin_convertvector(product * scale[h], Ints));
      }
    }
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) bad[h] |= finish_step(product_emax[h], emax[h], sum[h], scale[h], &c[h]);
    row += 16;
    row_exponents += 16;
    columns += 16 * kColumns;
    column_exponents += 16 * kColumns;
  }
  __builtin_memcpy(result + first, c, sizeof c);
  invalid[0] = bad[0];
  invalid[1] = bad[1];
}

inline __attribute__((always_inline)) std::uint32_t chain_columns(const Operands& operands, float* result) {
  std::uint32_t mask = 0;
  for (int first = 0; first < kColumns; first += kStride) {
    Ints invalid[2];
    chain_stride(operands, first, result, invalid);
    for (int n = 0; n < kStride; ++n) {
      mask |= static_cast<std::uint32_t>(invalid[n / kLanes][n % kLanes] & 1) << (first + n);
    }
  }
  return mask;
}

}  // namespace
}  // namespace samebits::oracle::fast_chain
