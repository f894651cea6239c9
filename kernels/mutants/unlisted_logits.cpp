// Logits by other sums and other roundings.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/common/sizes.h"
#include "kernels/cpu/gate_weight.h"
#include "kernels/cpu/logits.h"
#include "kernels/cpu/simd.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

using cpu::GateWeight;
using cpu::RouterConstants;

// Rows of other products, each finished as ever: product(row, out [G]).
template <class Product>
void logits_of(const RouterConstants& constants, const std::uint16_t* hidden_states, std::int64_t row_stride,
               std::int64_t num_rows, float* logits, std::int64_t logits_stride, Product product) {
  for (std::int64_t r = 0; r < num_rows; ++r) {
    product(hidden_states + r * row_stride, logits + r * logits_stride);
    cpu::finish_logits(constants, logits + r * logits_stride);
  }
}

template <std::int64_t Width>
void columns_past_are_ignored(const RouterConstants& constants, const std::uint16_t* hidden_states,
                              std::int64_t row_stride, std::int64_t num_rows, std::int64_t, float* logits,
                              std::int64_t logits_stride) {
  const GateWeight& weight = *constants.gate_weight;
  const std::int64_t end = std::min<std::int64_t>(weight.hidden_size(), Width);
  logits_of(constants, hidden_states, row_stride, num_rows, logits, logits_stride,
            [&](const std::uint16_t* row, float* out) {
              cpu::multiply_rows(weight, row, row_stride, 1, 0, end, out, weight.gate_rows());
            });
}

// Chains of Width columns, added from the first to the last or the other way round.
template <std::int64_t Width, bool Backwards>
void folded_chains(const RouterConstants& constants, const std::uint16_t* hidden_states, std::int64_t row_stride,
                   std::int64_t num_rows, std::int64_t, float* logits, std::int64_t logits_stride) {
  const GateWeight& weight = *constants.gate_weight;
  const std::int64_t gate_rows = weight.gate_rows(), chains = (weight.hidden_size() + Width - 1) / Width;
  std::vector<float> part(static_cast<std::size_t>(gate_rows));
  const auto product = [&](const std::uint16_t* row, float* out) {
    for (std::int64_t i = 0; i < chains; ++i) {
      const std::int64_t begin = (Backwards ? chains - 1 - i : i) * Width;
      const std::int64_t end = std::min(begin + Width, weight.hidden_size());
      cpu::multiply_rows(weight, row, row_stride, 1, begin, end, i == 0 ? out : part.data(), gate_rows);
      for (std::int64_t e = 0; i > 0 && e < gate_rows; ++e)
        out[e] = canonical(out[e] + part[static_cast<std::size_t>(e)]);
    }
  };
  logits_of(constants, hidden_states, row_stride, num_rows, logits, logits_stride, product);
}

// One chain of fused multiply-adds over H, as on a GPU without tensor cores.
void fma_chain(const RouterConstants& constants, const std::uint16_t* hidden_states, std::int64_t row_stride,
               std::int64_t num_rows, std::int64_t, float* logits, std::int64_t logits_stride) {
  const GateWeight& weight = *constants.gate_weight;
  const auto product = [&](const std::uint16_t* row, float* out) {
    for (std::int64_t e = 0; e < weight.gate_rows(); ++e) {
      const std::int64_t tile = e / cpu::kTileExperts;
      float sum = 0.0f;
      for (std::int64_t k = 0; k < weight.hidden_size(); ++k) {
        float w = bf16_to_float(weight.column(0, tile, k)[cpu::word_of_expert(e)]);
        for (int part = 1; part < weight.num_parts(); ++part) {
          w += bf16_to_float(weight.column(part, tile, k)[cpu::word_of_expert(e)]);
        }
        sum = std::fma(bf16_to_float(row[k]), w, sum);
      }
      out[e] = canonical(sum);
    }
  };
  logits_of(constants, hidden_states, row_stride, num_rows, logits, logits_stride, product);
}

// The product is rounded to bf16, then its sum with the bias once more.
void rounded_before_linear_bias(const RouterConstants& constants, const std::uint16_t* hidden_states,
                                std::int64_t row_stride, std::int64_t num_rows, std::int64_t, float* logits,
                                std::int64_t logits_stride) {
  const GateWeight& weight = *constants.gate_weight;
  const bool rounds = constants.linear_bias != nullptr && constants.spec.logits_dtype == SAMEBITS_BF16;
  logits_of(constants, hidden_states, row_stride, num_rows, logits, logits_stride,
            [&](const std::uint16_t* row, float* out) {
              cpu::multiply_rows(weight, row, row_stride, 1, 0, weight.hidden_size(), out, weight.gate_rows());
              for (std::int64_t e = 0; rounds && e < weight.gate_rows(); ++e) out[e] = round_to_bf16(out[e]);
            });
}

void truncated_bf16_logits(const RouterConstants& constants, const std::uint16_t* hidden_states,
                           std::int64_t row_stride, std::int64_t num_rows, std::int64_t num_tokens, float* logits,
                           std::int64_t logits_stride) {
  RouterConstants exact = constants;
  exact.spec.logits_dtype = SAMEBITS_FP32;
  cpu::logits_tc256(exact, hidden_states, row_stride, num_rows, num_tokens, logits, logits_stride);
  if (constants.spec.logits_dtype != SAMEBITS_BF16) return;
  for (std::int64_t r = 0; r < num_rows; ++r) {
    for (std::int64_t e = 0; e < gate_rows(constants.spec); ++e) {
      float& logit = logits[r * logits_stride + e];
      logit = canonical(from_bits(to_bits(logit) & 0xffff0000u));
    }
  }
}

void subnormal_inputs_flushed(const RouterConstants& constants, const std::uint16_t* hidden_states,
                              std::int64_t row_stride, std::int64_t num_rows, std::int64_t num_tokens, float* logits,
                              std::int64_t logits_stride) {
  const std::int64_t hidden_size = constants.gate_weight->hidden_size();
  std::vector<std::uint16_t> rows;
  for (std::int64_t r = 0; r < num_rows; ++r) {
    for (std::int64_t k = 0; k < hidden_size; ++k) {
      const std::uint16_t x = hidden_states[r * row_stride + k];
      rows.push_back((x & 0x7f80) == 0 ? static_cast<std::uint16_t>(x & 0x8000) : x);
    }
  }
  cpu::logits_tc256(constants, rows.data(), hidden_size, num_rows, num_tokens, logits, logits_stride);
}

void subnormal_logits_flushed(const RouterConstants& constants, const std::uint16_t* hidden_states,
                              std::int64_t row_stride, std::int64_t num_rows, std::int64_t num_tokens, float* logits,
                              std::int64_t logits_stride) {
  cpu::logits_tc256(constants, hidden_states, row_stride, num_rows, num_tokens, logits, logits_stride);
  for (std::int64_t r = 0; r < num_rows; ++r) {
    for (std::int64_t e = 0; e < gate_rows(constants.spec); ++e) {
      float& logit = logits[r * logits_stride + e];
      if (std::fpclassify(logit) == FP_SUBNORMAL) logit = 0.0f;
    }
  }
}

// Temperature and softcap by products with their reciprocals.
void divisions_by_reciprocal(const RouterConstants& constants, const std::uint16_t* hidden_states,
                             std::int64_t row_stride, std::int64_t num_rows, std::int64_t num_tokens, float* logits,
                             std::int64_t logits_stride) {
  RouterConstants plain = constants;
  const samebits_router_spec& spec = constants.spec;
  plain.spec.temperature = 1.0f, plain.spec.softcap = 0.0f;
  cpu::logits_tc256(plain, hidden_states, row_stride, num_rows, num_tokens, logits, logits_stride);
  for (std::int64_t r = 0; r < num_rows; ++r) {
    for (std::int64_t e = 0; e < gate_rows(spec); ++e) {
      float& z = logits[r * logits_stride + e];
      if (spec.temperature != 1.0f) z *= 1.0f / spec.temperature;
      if (spec.softcap != 0.0f) {
        z = spec.softcap * cpu::apply_elementwise(cpu::Elementwise::kTanh, z * (1.0f / spec.softcap));
      }
      z = canonical(z);
    }
  }
}

}  // namespace

std::vector<Mutant> unlisted_logit_mutants() {
  using cpu::Steps;
  const auto logits = [](decltype(Steps::logits) fault) { return with(&Steps::logits, fault); };
  return {
      {"U60",
       "columns_past_4096_ignored",
       "columns of H from 4096 on are not read",
       "precision",
       "rows staged in a buffer of fixed size",
       {"deepseek-v3", nullptr, {{"shape.hidden_size", "4112"}}},
       logits(columns_past_are_ignored<4096>)},
      {"U61",
       "chains_of_128",
       "the sum over H is cut every 128 columns instead of every 256",
       "precision",
       "",
       {"glm-5.3-flash", nullptr, {{"shape.hidden_size", "1024"}}},
       logits(folded_chains<128, false>)},
      {"U62",
       "chains_added_backwards",
       "the sums of 256 columns are added from the last to the first",
       "precision",
       "",
       {"glm-5.3-flash", nullptr, {{"shape.hidden_size", "1024"}}},
       logits(folded_chains<256, true>)},
      {"U63",
       "fma_chain",
       "the sum over H is one chain of fused multiply-adds",
       "precision",
       "kernels for small batches",
       {"glm-5.3-flash"},
       logits(fma_chain)},
      {"U64",
       "rounded_before_linear_bias",
       "logits are rounded to bf16 before the linear bias and after it",
       "precision",
       "a bf16 GEMM and a separate addition",
       {"gpt-oss-20b"},
       logits(rounded_before_linear_bias)},
      {"U65",
       "truncated_bf16_logits",
       "bf16 logits are cut toward zero instead of rounded",
       "precision",
       "",
       {"qwen3-30b-a3b"},
       logits(truncated_bf16_logits)},
      {"U66",
       "subnormal_inputs_flushed",
       "subnormal hidden states are read as 0",
       "precision",
       "denormals-are-zero",
       {"glm-5.3-flash"},
       logits(subnormal_inputs_flushed)},
      {"U67",
       "subnormal_logits_flushed",
       "subnormal logits become 0",
       "precision",
       "CUDA builds with --use_fast_math",
       {"glm-5.3-flash"},
       logits(subnormal_logits_flushed)},
      {"U68",
       "division_by_reciprocal",
       "logits are multiplied by the reciprocals of temperature and softcap",
       "precision",
       "",
       {"grok-2", nullptr, {{"logits.temperature", "3"}}},
       logits(divisions_by_reciprocal)},
  };
}

}  // namespace samebits::mutants
