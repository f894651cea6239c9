#include <algorithm>
#include <cmath>
#include <cstddef>

#include "properties/laws/laws.h"
#include "properties/laws/rows.h"
#include "properties/oracle_answers.h"
#include "properties/spec_features.h"

namespace samebits::properties {
namespace {

constexpr double kU = 0x1p-24;               // half an ulp of fp32, relative
constexpr double kHalfSubnormal = 0x1p-150;  // half the distance of two subnormals

double total_of(std::span<const float> values) {
  double total = 0.0;
  for (const float value : values) total += static_cast<double>(value);
  return total;
}

// What a slot adds to the sum: value * factor, the factor being the product of its learned scales.
struct Term {
  double value = 0.0;
  double factor = 1.0;
  double largest_factor = 1.0;  // what an underflow may be multiplied with
};

// Terms of the chosen ids; empty when the law says nothing about them. Zero experts that are renamed have the factor 0:
// they count in S and D, and weigh nothing.
std::vector<Term> chosen_terms(const oracle::RouterSpec& spec, const oracle::RowConstants& constants,
                               const oracle::RowAnswer<float>& answer, std::span<const std::int64_t> ids) {
  const bool biased = spec.weights.source == oracle::WeightSource::kBiasedScore;
  const bool masked = biased && spec.selection.group_mask == oracle::GroupMask::kZero;  // the keys are no values then
  const bool renames = renames_zero_experts(spec);
  const bool log_space = spec.weights.renormalize == oracle::Renormalize::kLogSpaceL1;
  const bool needs_same_set = masked || renames || log_space || !scores_before_selection(spec);
  const bool same_set =
      ids.size() == answer.ids.size() && std::is_permutation(ids.begin(), ids.end(), answer.ids.begin());
  if (needs_same_set && !same_set) return {};

  std::vector<Term> terms;
  terms.reserve(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto e = static_cast<std::size_t>(same_set ? answer.expert_ids[i] : ids[i]);
    const float value = same_set ? answer.values[i] : biased ? answer.keys[e] : answer.scores[e];
    if (std::isinf(value)) return {};  // shared equally among the infinite ones: the weights law judges it
    const auto id = static_cast<std::int64_t>(e);
    const bool renamed = renames && id >= oracle::num_experts(spec) && id < oracle::ranked_experts(spec);
    Term term{std::isnan(value) ? 0.0 : static_cast<double>(value)};
    std::vector<float> scales;
    if (!constants.per_expert_scale.empty()) scales.push_back(constants.per_expert_scale[e]);
    if (constants.global_scale) scales.push_back(*constants.global_scale);
    for (const float scale : scales) {
      const auto factor = static_cast<double>(scale);
      // A product that overflows or underflows on the way: the weights law judges it.
      const double size = std::fabs(factor);
      if (std::isfinite(factor) && factor != 0.0 && (size > 0x1p60 || size < 0x1p-60)) return {};
      term.factor *= std::isfinite(factor) ? factor : 0.0;  // a weight that is not finite becomes 0
      if (std::isfinite(factor)) term.largest_factor *= std::max(1.0, size);
    }
    if (renamed) term.factor = 0.0;
    terms.push_back(term);
  }
  return terms;
}

struct Expected {
  double total = 0.0;
  double tolerance = 0.0;
};

// S = sum of the K values s_i, A = sum of |s_i|, D as the spec says, c the scale, f_i the learned factors. In fp32:
//   S' = S + a, |a| <= (K - 1) u A              K - 1 roundings, in any order (Higham, Accuracy and Stability, 4.2)
//   D' = D + d, |d| <= |a| + u |D|              one more for eps
//   w_i = c f_i s_i / D' (1 + e), |e| <= 4 u    division, scale and two learned factors, one rounding each; half a
//                                               subnormal where they underflow, times the factors that follow
// so that |sum w_i - c / D sum f_i s_i| <= c |sum f_i s_i / D| |d| / (|D| - |d|) + c F 4 u / (|D| - |d|) + underflow,
// F = sum of |f_i s_i|. All u are counted once more than needed, which covers products of two errors for every K <
// 2^20. Without renormalisation D = 1 and d = 0. bf16 weights: one more rounding, 2^-8 relative (half a bf16 subnormal
// is 2^-134).
//   In log space: s_i = exp(a_i) and w_i = c exp(a_i - log D') f_i. Each exp is within 2 u of its argument's, log
//   within 1.1 u |log D| with 0 <= log D <= log K, and the difference is rounded once, so |e| grows by at most (4 + 2.1
//   log K + |a_i|) u, with a_i = log s_i; where s_i underflows, so does w_i.
// nullopt: |d| is not small against D.
std::optional<Expected> expected_sum(const oracle::RouterSpec& spec, const std::vector<Term>& terms) {
  const auto k = static_cast<double>(terms.size());
  const bool renormalize = spec.weights.renormalize != oracle::Renormalize::kNone;
  const bool log_space = spec.weights.renormalize == oracle::Renormalize::kLogSpaceL1;
  const double scale = spec.weights.scale_stage == oracle::ScaleStage::kOnExpertOutput
                           ? 1.0
                           : static_cast<double>(static_cast<float>(spec.weights.routed_scaling_factor));
  double sum = 0.0, magnitude = 0.0, scaled_sum = 0.0, scaled_magnitude = 0.0, largest_factor = 1.0, arguments = 0.0;
  const bool scaled_first = renormalize && !log_space && spec.weights.scale_stage == oracle::ScaleStage::kBeforeDivide;
  for (const Term& term : terms) {
    sum += term.value;
    magnitude += std::fabs(term.value);
    scaled_sum += term.value * term.factor;
    scaled_magnitude += std::fabs(term.value * term.factor);
    largest_factor = std::max(largest_factor, term.largest_factor);
    if (log_space && term.value > 0.0) arguments += std::fabs(term.value * std::log(term.value) * term.factor);
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
  double weight_error = 5.0 * kU;
  if (log_space) weight_error += (5.0 + 2.1 * std::log(k)) * kU;
  double underflow = k * kHalfSubnormal * (1.0 + c) * (1.0 + 2.0 * largest_factor);
  if (scaled_first) underflow += k * kHalfSubnormal / least * largest_factor;
  // exp of the contract gives 0 below its last subnormal, and those have few bits.
  if (log_space) underflow += k * 4.0 * kHalfSubnormal * (1.0 + c) * (1.0 + largest_factor);
  if (spec.weights.dtype == oracle::FloatType::kBf16) {
    weight_error += 0x1p-8 * (1.0 + 4.0 * kU);
    underflow += k * 0x1p-134;
  }
  Expected expected;
  expected.total = scale * scaled_sum / denominator;
  expected.tolerance =
      std::fabs(expected.total) * error / least + c * scaled_magnitude / least * weight_error + underflow;
  if (log_space) expected.tolerance += c * arguments / least * 2.0 * kU;
  // A product on the way that may overflow makes the weight 0.
  const double largest = std::max(1.0, c) * magnitude * largest_factor / least;
  if (std::max({largest, magnitude, scaled_first ? c * magnitude : 0.0}) > 0x1p126) return std::nullopt;
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

// The total that the law asks for, as an interval; nullopt: it says nothing about this row.
struct Demand {
  Interval total;
  std::optional<Expected> expected;  // of exact claims
  std::string words() const {
    return expected ? text(expected->total) + " = scale * S / D within " + text(expected->tolerance)
                    : "a value in " + text(total);
  }
};
std::optional<Demand> demand(const Evidence& evidence, std::int64_t row, std::span<const std::int64_t> ids) {
  const oracle::RouterSpec& spec = evidence.c.spec;
  if (!evidence.claims.bit_exact()) {
    const BoundedRow& bounded = evidence.oracle.bounded(row);
    if (!bounded.judged) return std::nullopt;
    return Demand{weight_sum_bounds(spec, bounded, ids), std::nullopt};
  }
  const std::vector<Term> terms =
      chosen_terms(spec, oracle::row_constants(spec, evidence.inputs, row), evidence.oracle.row(row), ids);
  const auto expected = terms.empty() ? std::nullopt : expected_sum(spec, terms);
  if (!expected) return std::nullopt;
  return Demand{{expected->total - expected->tolerance, expected->total + expected->tolerance}, expected};
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  for (const JudgedRow& judged : answered_rows(evidence)) {
    if (!ids_problem(evidence.c.spec, judged.seen).empty()) continue;
    const auto demanded = demand(evidence, judged.row, judged.seen.ids);
    if (!demanded) continue;
    outcome.relevant += judged.in_main() ? 1 : 0;
    const double observed = total_of(judged.seen.weights);
    if (demanded->total.contains(observed) || outcome.violation) continue;
    outcome.violation = report(judged.row, observed, demanded->words());
    name_run(*outcome.violation, judged);
  }
  return outcome;
}

}  // namespace

constinit const Law kSum = {
    .id = "sum",
    .statement =
        "the weights of a row sum to scale * S / D, S the sum of the chosen scores and D as the spec says "
        "(without renormalisation D = 1; D = 0 gives weights 0), every term times its learned scales",
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
