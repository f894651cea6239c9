// The sums of oracle/emulate/arithmetic_model.h, one row after the other.

#include <cmath>
#include <utility>

#include "oracle/emulate/arithmetic_model.h"
#include "oracle/emulate/exact_sum.h"
#include "oracle/emulate/finish_logit.h"
#include "oracle/emulate/fp32.h"
#include "oracle/emulate/packed_chains.h"
#include "oracle/emulate/prepared_input.h"
#include "oracle/tensors/bf16.h"

namespace samebits::oracle {
namespace {

using Leaf = ArithmeticModel::Leaf;
using Combine = ArithmeticModel::Combine;

// Overwrites the partial sums.
float combine(Combine how, std::span<float> partials) {
  if (how == Combine::kLeftFold) {
    float sum = partials[0];
    for (const float partial : partials.subspan(1)) sum = fadd_rn(sum, partial);
    return sum;
  }
  for (std::size_t n = partials.size(); n > 1; n = (n + 1) / 2) {
    for (std::size_t i = 0; i < n; i += 2) {
      partials[i / 2] = i + 1 < n ? fadd_rn(partials[i], partials[i + 1]) : partials[i];
    }
  }
  return partials[0];
}

// One leaf in IEEE arithmetic, from +0.
float scalar_leaf(Leaf leaf, std::span<const float> x, std::span<const float> w, const ProductRange& range) {
  float sum = 0;
  for (std::int64_t i = range.first; i < range.last; i += range.stride) {
    const std::size_t k = static_cast<std::size_t>(i);
    sum = leaf == Leaf::kFusedMultiplyAdd ? std::fma(x[k], w[k], sum) : sum + x[k] * w[k];
  }
  return one_nan(sum);
}

std::vector<float> scalar_sums(const ArithmeticModel& model, std::span<const ProductRange> ranges,
                               std::span<const float> weight, std::span<const float> x) {
  std::vector<float> sums, partials(ranges.size());
  for (std::size_t first = 0; first < weight.size(); first += x.size()) {
    const std::span<const float> w = weight.subspan(first, x.size());
    if (model.leaf == Leaf::kExact) {
      sums.push_back(exact_dot(x, w));
      continue;
    }
    for (std::size_t p = 0; p < ranges.size(); ++p) partials[p] = scalar_leaf(model.leaf, x, w, ranges[p]);
    sums.push_back(combine(model.combine, partials));
  }
  return sums;
}

std::vector<float> tensor_core_sums(const ArithmeticModel& model, std::span<const ProductRange> ranges,
                                    const PackedGateWeight& weight, const DecodedRow& row) {
  constexpr std::size_t kColumns = fast_chain::kColumns;
  std::vector<float> sums;
  std::vector<float> partials(kColumns * ranges.size());  // [kColumns][ranges]
  for (std::int64_t group = 0; group < weight.num_groups(); ++group) {
    for (std::size_t p = 0; p < ranges.size(); ++p) {
      const std::int64_t length = (ranges[p].last - ranges[p].first + 15) / 16 * 16;
      for (int part = 0; part < weight.num_parts(); ++part) {
        float chains[kColumns];
        packed_chains(*model.architecture, row, weight, part, group, ranges[p].first, length, chains);
        for (std::size_t n = 0; n < kColumns; ++n) {
          float& partial = partials[n * ranges.size() + p];
          partial = part == 0 ? chains[n] : fadd_rn(partial, chains[n]);
        }
      }
    }
    for (std::size_t n = 0; n < kColumns; ++n) {
      sums.push_back(combine(model.combine, std::span(partials).subspan(n * ranges.size(), ranges.size())));
    }
  }
  sums.resize(static_cast<std::size_t>(weight.gate_rows()));
  return sums;
}

std::vector<float> widened(std::span<const std::uint16_t> bits) {
  std::vector<float> values;
  for (const std::uint16_t b : bits) values.push_back(bf16_to_fp32(b));
  return values;
}

}  // namespace

std::vector<float> emulate_logits(const ArithmeticModel& model, const RouterSpec& spec, const RouterInputs& inputs,
                                  std::span<const std::int64_t> rows) {
  if (inputs.from_logits()) return tc256_logits(spec, inputs, rows);
  const RouterSpec rounded = with_roundings(model, spec);
  const std::vector<ProductRange> ranges = product_ranges(model, inputs.hidden_size);
  const PackedGateWeight packed(inputs);
  const bool fp32_weight = inputs.gate_weight_bf16.empty();
  const std::vector<float> weight = fp32_weight ? inputs.gate_weight_fp32 : widened(inputs.gate_weight_bf16);
  std::vector<float> logits;
  for (const std::int64_t row : rows) {
    std::vector<std::uint16_t> bits = prepared_input(rounded, inputs, row);
    const std::vector<float> sums =
        model.leaf == Leaf::kTensorCore
            ? tensor_core_sums(model, ranges, packed, decode_row(std::move(bits), packed.padded_hidden_size()))
            : scalar_sums(model, ranges, weight, widened(bits));
    for (std::size_t e = 0; e < sums.size(); ++e) {
      logits.push_back(finish_logit(rounded, inputs, static_cast<std::int64_t>(e), sums[e]));
    }
  }
  return logits;
}

}  // namespace samebits::oracle
