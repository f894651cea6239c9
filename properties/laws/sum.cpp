#include <algorithm>
#include <cmath>
#include <cstddef>

#include "properties/laws/laws.h"
#include "properties/laws/rows.h"
#include "properties/oracle_answers.h"

namespace samebits::properties {
namespace {

constexpr double kU = 0x1p-24;               // half an ulp of fp32, relative
constexpr double kHalfSubnormal = 0x1p-150;  // half the distance of two subnormals

double total_of(std::span<const float> values) {
  double total = 0.0;
  for (const float value : values) total += static_cast<double>(value);
  return total;
}

// Values that the weights are made of, for the ids that were chosen; empty when the law says nothing about them.
std::vector<double> chosen_values(const oracle::RouterSpec& spec, const oracle::RowAnswer<float>& answer,
                                  std::span<const std::int64_t> ids) {
  const bool biased = spec.weights.source == oracle::WeightSource::kBiasedScore;
  if (biased && spec.selection.group_mask == oracle::GroupMask::kZero) return {};  // keys after the mask are others
  std::vector<double> values;
  for (const std::int64_t id : ids) {
    const bool chosen_by_both = std::find(answer.ids.begin(), answer.ids.end(), id) != answer.ids.end();
    if (spec.score.stage == oracle::ScoreStage::kAfterTopk && !chosen_by_both) return {};
    const auto e = static_cast<std::size_t>(id);
    const float value = biased ? answer.keys[e] : answer.scores[e];
    if (std::isinf(value)) return {};  // shared equally among the infinite ones: the weights law judges it
    values.push_back(std::isnan(value) ? 0.0 : static_cast<double>(value));
  }
  return values;
}

struct Expected {
  double total = 0.0;
  double tolerance = 0.0;
};

// S = sum of the k values s_i, A = sum of |s_i|, D as the spec says, c the scale, n = k. In fp32:
//   S' = S + a, |a| <= (k - 1) u A          k - 1 roundings, in any order (Higham, Accuracy and Stability, 4.2)
//   D' = D + d, |d| <= |a| + u |D|          one more for eps
//   w_i = c s_i / D' (1 + e), |e| <= 2 u    division and scale, one rounding each; half a subnormal where they
//   underflow
// so that |sum w_i - c S / D| <= c |S / D| |d| / (|D| - |d|) + c A 2 u / (|D| - |d|) + underflow. All u are counted
// once more than needed, which covers products of two errors for every k < 2^20. Without renormalisation D = 1 and d =
// 0. bf16 weights: one more rounding, 2^-8 relative (half a bf16 subnormal is 2^-134). nullopt: |d| is not small
// against D.
std::optional<Expected> expected_sum(const oracle::RouterSpec& spec, const std::vector<double>& values) {
  const auto k = static_cast<double>(values.size());
  const bool renormalize = spec.weights.renormalize != oracle::Renormalize::kNone;
  const double scale = spec.weights.scale_stage == oracle::ScaleStage::kOnExpertOutput
                           ? 1.0
                           : static_cast<double>(static_cast<float>(spec.weights.routed_scaling_factor));
  double sum = 0.0, magnitude = 0.0;
  for (const double value : values) {
    sum += value;
    magnitude += std::fabs(value);
  }

  double denominator = 1.0, error = 0.0;
  if (renormalize) {
    const auto eps = static_cast<double>(static_cast<float>(spec.weights.eps));
    denominator = sum;
    if (spec.weights.eps_mode == oracle::EpsMode::kAdd) denominator = sum + eps;
    if (spec.weights.eps_mode == oracle::EpsMode::kClampMin) denominator = std::max(sum, eps);
    if (denominator == 0.0 && magnitude == 0.0) return Expected{};  // D = 0: all weights are 0
    error = k * kU * magnitude + 2.0 * kU * std::fabs(denominator);
    if (error >= std::fabs(denominator) / 2.0) return std::nullopt;
  }
  const double least = std::fabs(denominator) - error;
  const double c = std::fabs(scale);
  double weight_error = 3.0 * kU;
  double underflow = k * kHalfSubnormal * (1.0 + c);
  if (renormalize && spec.weights.scale_stage == oracle::ScaleStage::kBeforeDivide)
    underflow += k * kHalfSubnormal / least;
  if (spec.weights.dtype == oracle::FloatType::kBf16) {
    weight_error += 0x1p-8 * (1.0 + 4.0 * kU);
    underflow += k * 0x1p-134;
  }
  Expected expected;
  expected.total = scale * sum / denominator;
  expected.tolerance = std::fabs(expected.total) * error / least + c * magnitude / least * weight_error + underflow;
  // Near the largest fp32 a weight may overflow, which makes it 0.
  if (c * magnitude / least > 0x1p126 || magnitude > 0x1p126) return std::nullopt;
  return expected;
}

Violation report(std::int64_t row, double observed, const std::string& expected) {
  Violation violation;
  violation.law = kSum.id;
  violation.row = row;
  violation.observed = text(observed);
  violation.expected = expected;
  violation.summary =
      "row " + std::to_string(row) + ": the weights sum to " + violation.observed + ", expected " + violation.expected;
  return violation;
}

// The total that the law asks for, as an interval and in words; nullopt: it says nothing about this row.
struct Demand {
  Interval total;
  std::string words;
};
std::optional<Demand> demand(const Evidence& evidence, std::int64_t row, std::span<const std::int64_t> ids) {
  const oracle::RouterSpec& spec = evidence.c.spec;
  if (!evidence.claims.bit_exact()) {
    const BoundedRow& bounded = evidence.oracle.bounded(row);
    if (!bounded.judged) return std::nullopt;
    const Interval total = weight_sum_bounds(spec, bounded, ids);
    return Demand{total, "a value in " + text(total)};
  }
  const std::vector<double> values = chosen_values(spec, evidence.oracle.row(row), ids);
  const auto expected = values.empty() ? std::nullopt : expected_sum(spec, values);
  if (!expected) return std::nullopt;
  return Demand{{expected->total - expected->tolerance, expected->total + expected->tolerance},
                text(expected->total) + " = scale * S / D within " + text(expected->tolerance)};
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  for (const JudgedRow& judged : judged_rows(evidence)) {
    if (!ids_problem(judged.seen.ids, oracle::num_experts(evidence.c.spec)).empty()) continue;
    const auto demanded = demand(evidence, judged.row, judged.seen.ids);
    if (!demanded) continue;
    outcome.relevant += judged.in_main() ? 1 : 0;
    const double observed = total_of(judged.seen.weights);
    if (demanded->total.contains(observed) || outcome.violation) continue;
    outcome.violation = report(judged.row, observed, demanded->words);
    name_run(*outcome.violation, judged);
  }
  return outcome;
}

}  // namespace

constinit const Law kSum = {
    .id = "sum",
    .statement =
        "the weights of a row sum to scale * S / D, S the sum of the chosen scores and D as the spec says "
        "(without renormalisation D = 1; D = 0 gives weights 0)",
    .source =
        "flashinfer-ai/flashinfer#3803 (0 / 0), vllm-project/vllm#43769 (scale lost), ggml-org/llama.cpp#16711 "
        "(only some slots normalised)",
    .hazards = "scores that underflow, sums of 0 and near eps, scales other than 1",
    .min_relevant = 8,
    .not_applicable = [](const oracle::RouterSpec&, const Claims&) -> std::optional<std::string> {
      return std::nullopt;
    },
    .check = check,
};

}  // namespace samebits::properties
