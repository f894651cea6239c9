// Chains of tensor-core steps, 32 experts at a time.
//
// A step adds 17 terms after cutting each to a multiple of 2^(emax-25). Products of bf16 are exact in fp32, scaling by
// a power of two is exact, and a conversion to int32 cuts toward zero. So a term is one multiplication by 2^(25-emax)
// and one conversion, and the sum is an int32 sum. That holds while emax is in [-100, 125] (what the scaled product
// loses below the smallest fp32 number is cut anyway) and while 32 bits hold the sum; lanes beyond take the integer
// step.
#include "kernels/cpu/simd.h"
#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/logits_simd.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "kernels/common/bits.h"
#include "kernels/cpu/tensor_core_step.h"

#ifndef SAMEBITS_LOGITS_SIMD_ONCE
#define SAMEBITS_LOGITS_SIMD_ONCE
namespace samebits::cpu {

inline constexpr std::int64_t kRowBlock = 16;  // rows that share one pass over a chunk of the weight

// A chunk of one row of hidden states, padded with +0 to whole steps.
struct PreparedChunk {
  alignas(64) float values[kChunkWidth];
  alignas(64) std::uint32_t exponents[kChunkWidth];  // packed exponent - 127, twice in a word: one 32-bit broadcast
  bool has_nan;                                      // so every chain over it ends in NaN, whatever the weight
};

inline std::int64_t prepare_chunk(const std::uint16_t* hidden_states, std::int64_t width, PreparedChunk& chunk) {
  const std::int64_t padded = (width + kStepWidth - 1) / kStepWidth * kStepWidth;
  bool has_nan = false;
  for (std::int64_t k = 0; k < padded; ++k) {
    const std::uint16_t bits = k < width ? hidden_states[k] : std::uint16_t{0};
    has_nan |= (bits & 0x7fff) > 0x7f80;
    chunk.values[k] = bf16_to_float(bits);
    chunk.exponents[k] = 0x10001u * static_cast<std::uint16_t>(packed_exponent(bits) - 127);
  }
  chunk.has_nan = has_nan;
  return padded / kStepWidth;
}

inline float add_canonical(float a, float b) {
  return canonical(a + b);
}

}  // namespace samebits::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace samebits::cpu {
namespace HWY_NAMESPACE {
namespace {

const char* target_name() {
  return hwy::TargetName(HWY_TARGET);
}

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

// sums[e] = one chain from +0 for each expert of a tile.
void chain_tile(const PreparedChunk& chunk, const std::uint16_t* columns, std::int64_t num_steps, float* sums) {
  std::uint16_t row[kChunkWidth];
  for (std::int64_t k = 0; k < num_steps * kStepWidth; ++k) {
    row[k] = static_cast<std::uint16_t>(to_bits(chunk.values[k]) >> 16);
  }
  std::uint32_t c[kTileExperts] = {};
  for (std::int64_t k = 0; k < num_steps * kStepWidth; k += kStepWidth) {
    for (std::int64_t e = 0; e < kTileExperts; ++e) {
      c[e] = tensor_core_step(c[e], row + k, 1, columns + k * kTileWords + word_of_expert(e), kTileWords);
    }
  }
  for (std::int64_t e = 0; e < kTileExperts; ++e) sums[e] = from_bits(c[e]);
}

#else

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kMaxLanes = kTileExperts / 2;  // fp32 lanes of the widest vector: half a tile
using F32 = hn::CappedTag<float, kMaxLanes>;
using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using I16 = hn::Repartition<std::int16_t, F32>;
using VF32 = hn::Vec<F32>;
using VI32 = hn::Vec<I32>;
using VI16 = hn::Vec<I16>;

constexpr int kMinExponent = 127 - 100;  // biased emax of the fast range
constexpr int kMaxExponent = 127 + 125;
constexpr int kFractionBits = 25;

// Toward zero. Out of range: any value (Highway's conversion saturates, at the cost of two more instructions).
HWY_INLINE VI32 truncate(VF32 x) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return VI32{_mm512_cvttps_epi32(x.raw)};
#elif HWY_TARGET == HWY_AVX2
  return VI32{_mm256_cvttps_epi32(x.raw)};
#else
  return hn::ConvertTo(I32(), x);
#endif
}

// fp32 of x, rounded toward zero.
HWY_INLINE VF32 to_float_toward_zero(VI32 x) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return VF32{_mm512_cvt_roundepi32_ps(x.raw, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)};
#else
  // Round to nearest, and one unit back where that went up. |x| = 2^31 - 1 rounds to 2^31, which does not convert back;
  // it has the same result as 2^31 - 2.
  const VI32 magnitude = hn::Min(hn::Abs(x), hn::Set(I32(), 0x7ffffffe));
  const VI32 nearest = hn::BitCast(I32(), hn::ConvertTo(F32(), magnitude));
  const VI32 excess = hn::Sub(magnitude, hn::ConvertTo(I32(), hn::BitCast(F32(), nearest)));
  const VI32 cut = hn::Add(nearest, hn::ShiftRight<31>(excess));
  return hn::BitCast(F32(), hn::Or(cut, hn::And(x, hn::Set(I32(), INT32_MIN))));
#endif
}

// Accumulators of 2 * Lanes(F32) experts: those of the even and of the odd 16-bit lanes.
struct Pair {
  VF32 even, odd;
};

// One accumulator after a step, and a lane with a negative sign where it must be done again.
struct Stepped {
  VF32 value;
  VI32 outside;
};

HWY_INLINE Stepped finish_step(VI32 products, VI32 aligned_c, VI32 emax, VF32 unscale) {
  const VI32 sum = hn::Add(products, aligned_c);
  const VI32 overflow = hn::And(hn::Xor(products, sum), hn::Xor(aligned_c, sum));
  const VI32 range = hn::Or(hn::Sub(emax, hn::Set(I32(), kMinExponent)), hn::Sub(hn::Set(I32(), kMaxExponent), emax));
  return {hn::Mul(to_float_toward_zero(sum), unscale), hn::Or(overflow, range)};
}

// Repairs the lanes of a step that left the fast range. True: all lanes are NaN, as they then are to the chain's end.
HWY_NOINLINE bool redo_lanes(const float* a, const std::uint16_t* columns, VI16 product_exponents, Pair before,
                             Stepped (&after)[2]) {
  constexpr std::size_t kLanes = hn::MaxLanes(F32());
  alignas(64) std::int16_t exponents[2 * kLanes];
  alignas(64) std::int32_t outside[2][kLanes];
  alignas(64) float c[2][kLanes], result[2][kLanes];
  hn::Store(product_exponents, I16(), exponents);
  hn::Store(before.even, F32(), c[0]);
  hn::Store(before.odd, F32(), c[1]);
  for (int half = 0; half < 2; ++half) {
    hn::Store(after[half].outside, I32(), outside[half]);
    hn::Store(after[half].value, F32(), result[half]);
  }
  std::uint16_t row[kStepWidth];
  for (std::int64_t i = 0; i < kStepWidth; ++i) row[i] = static_cast<std::uint16_t>(to_bits(a[i]) >> 16);
  for (std::size_t lane = 0; lane < 2 * kLanes; ++lane) {
    const std::size_t half = lane % 2, i = lane / 2;
    if (outside[half][i] >= 0) continue;
    const std::uint32_t bits = to_bits(c[half][i]);
    const bool no_products = exponents[lane] < kZeroExponent / 2;
    const bool no_specials = exponents[lane] < kSpecialExponent / 4;
    if (no_products && (bits & ~kSignBit) == 0) {
      result[half][i] = 0.0f;
    } else if ((bits & ~kSignBit) > kInfBits) {
      result[half][i] = from_bits(kNaNBits);
    } else if ((bits & ~kSignBit) != kInfBits || !no_specials) {
      result[half][i] = from_bits(tensor_core_step(bits, row, 1, columns + lane, kTileWords));
    } else {
      result[half][i] = c[half][i];  // finite products leave an Inf alone
    }
  }
  after[0].value = hn::Load(F32(), result[0]);
  after[1].value = hn::Load(F32(), result[1]);
  return std::all_of(&result[0][0], &result[0][0] + 2 * kLanes, is_nan);
}

// all_nan: becomes true where every accumulator is NaN; false is no promise.
HWY_INLINE Pair step(const float* a, const std::uint32_t* a_exponents, const std::uint16_t* columns, Pair c,
                     bool& all_nan) {
  const I16 d16;
  const I32 d32;
  const F32 df;
  // Largest exponent of the products, biased like an fp32 exponent field.
  VI16 exponents = hn::Set(d16, INT16_MIN);
#pragma GCC unroll 16
  for (int i = 0; i < kStepWidth; ++i) {
    const VI16 b = hn::LoadU(d16, reinterpret_cast<const std::int16_t*>(columns + i * kTileWords + kTileExperts));
    const VI16 a_i = hn::BitCast(d16, hn::Set(U32(), a_exponents[i]));
    exponents = hn::Max(exponents, hn::Add(a_i, b));
  }
  const auto c_exponent = [](VF32 x) HWY_ATTR {
    return hn::BitCast(I32(), hn::ShiftRight<24>(hn::ShiftLeft<1>(hn::BitCast(U32(), x))));
  };
  const VI32 both = hn::BitCast(d32, exponents);
  const VI32 emax_even = hn::Max(hn::ShiftRight<16>(hn::ShiftLeft<16>(both)), c_exponent(c.even));
  const VI32 emax_odd = hn::Max(hn::ShiftRight<16>(both), c_exponent(c.odd));
  // 2^(25 - emax) and its inverse.
  const auto scale = [](VI32 emax) HWY_ATTR {
    return hn::BitCast(F32(), hn::ShiftLeft<23>(hn::Sub(hn::Set(I32(), 2 * 127 + kFractionBits), emax)));
  };
  const auto unscale = [](VI32 emax) HWY_ATTR {
    return hn::BitCast(F32(), hn::ShiftLeft<23>(hn::Sub(emax, hn::Set(I32(), kFractionBits))));
  };
  const VF32 scale_even = scale(emax_even), scale_odd = scale(emax_odd);
  VI32 sum_even = hn::Zero(d32), sum_odd = hn::Zero(d32);
#pragma GCC unroll 16
  for (int i = 0; i < kStepWidth; ++i) {
    const VI32 b = hn::BitCast(d32, hn::LoadU(d16, reinterpret_cast<const std::int16_t*>(columns + i * kTileWords)));
    const VF32 a_i = hn::Set(df, a[i]);
    const VF32 even = hn::BitCast(df, hn::ShiftLeft<16>(b));
    const VF32 odd = hn::BitCast(df, hn::And(b, hn::Set(d32, static_cast<std::int32_t>(0xffff0000u))));
    sum_even = hn::Add(sum_even, truncate(hn::Mul(hn::Mul(a_i, even), scale_even)));
    sum_odd = hn::Add(sum_odd, truncate(hn::Mul(hn::Mul(a_i, odd), scale_odd)));
  }
  Stepped after[2] = {
      finish_step(sum_even, truncate(hn::Mul(c.even, scale_even)), emax_even, unscale(emax_even)),
      finish_step(sum_odd, truncate(hn::Mul(c.odd, scale_odd)), emax_odd, unscale(emax_odd)),
  };
  const VI32 outside = hn::Or(after[0].outside, after[1].outside);
  if (HWY_UNLIKELY(!hn::AllFalse(d32, hn::Lt(outside, hn::Zero(d32))))) {
    all_nan = redo_lanes(a, columns, exponents, c, after);
  }
  return {after[0].value, after[1].value};
}

// sums[e] = one chain from +0 for each expert of a tile.
HWY_INLINE void chain_tile(const PreparedChunk& chunk, const std::uint16_t* columns, std::int64_t num_steps,
                           float* sums) {
  const F32 df;
  for (std::size_t s = 0; s < kMaxLanes; s += hn::Lanes(df)) {
    Pair c{hn::Zero(df), hn::Zero(df)};
    bool all_nan = false;
    for (std::int64_t k = 0; k < num_steps * kStepWidth && !all_nan; k += kStepWidth) {
      c = step(chunk.values + k, chunk.exponents + k, columns + 2 * s + static_cast<std::size_t>(k * kTileWords), c,
               all_nan);
    }
    hn::StoreU(c.even, df, sums + s);
    hn::StoreU(c.odd, df, sums + kMaxLanes + s);
  }
}

#endif

void multiply_rows(const GateWeight& weight, const std::uint16_t* hidden_states, std::int64_t row_stride,
                   std::int64_t num_rows, std::int64_t k_begin, std::int64_t k_end, float* out,
                   std::int64_t out_stride) {
  PreparedChunk chunks[kRowBlock];
  for (std::int64_t first = 0; first < num_rows; first += kRowBlock) {
    const std::int64_t rows = std::min(kRowBlock, num_rows - first);
    for (std::int64_t k = k_begin; k < k_end; k += kChunkWidth) {
      const std::int64_t width = std::min(kChunkWidth, k_end - k);
      std::int64_t num_steps = 0;
      for (std::int64_t r = 0; r < rows; ++r) {
        num_steps = prepare_chunk(hidden_states + (first + r) * row_stride + k, width, chunks[r]);
      }
      for (std::int64_t tile = 0; tile < weight.num_tiles(); ++tile) {
        const std::int64_t first_expert = tile * kTileExperts;
        const std::int64_t experts = std::min(kTileExperts, weight.gate_rows() - first_expert);
        for (std::int64_t r = 0; r < rows; ++r) {
          alignas(64) float sums[kTileExperts], part[kTileExperts];
          if (chunks[r].has_nan) {
            std::fill(std::begin(sums), std::end(sums), from_bits(kNaNBits));
          } else {
            chain_tile(chunks[r], weight.column(0, tile, k), num_steps, sums);
          }
          for (int p = 1; p < weight.num_parts() && !chunks[r].has_nan; ++p) {
            chain_tile(chunks[r], weight.column(p, tile, k), num_steps, part);
            for (std::int64_t e = 0; e < kTileExperts; ++e) sums[e] = add_canonical(sums[e], part[e]);
          }
          float* row_out = out + (first + r) * out_stride + first_expert;
          for (std::int64_t e = 0; e < experts; ++e) {
            row_out[e] = k == k_begin ? sums[e] : add_canonical(row_out[e], sums[e]);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace samebits::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace samebits::cpu {

HWY_EXPORT(target_name);
HWY_EXPORT(multiply_rows);

const char* simd_target_name() {
  return HWY_DYNAMIC_DISPATCH(target_name)();
}

void multiply_rows(const GateWeight& weight, const std::uint16_t* hidden_states, std::int64_t row_stride,
                   std::int64_t num_rows, std::int64_t k_begin, std::int64_t k_end, float* out,
                   std::int64_t out_stride) {
  HWY_DYNAMIC_DISPATCH(multiply_rows)
  (weight, hidden_states, row_stride, num_rows, k_begin, k_end, out, out_stride);
}

}  // namespace samebits::cpu
#endif
