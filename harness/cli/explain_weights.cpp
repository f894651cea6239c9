// explain: from the chosen experts to their weights, with every value in between.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/cli/explain_contract.h"
#include "harness/cli/output.h"
#include "oracle/reference/log_space.h"
#include "oracle/reference/rank_key.h"

namespace samebits::harness {
namespace {

using oracle::RouterSpec;
using Contract = oracle::ArithmeticOf<float>;

std::vector<float> logits_of(const ExplainedRow& row, const std::vector<std::int32_t>& experts) {
  std::vector<float> logits;
  for (const std::int32_t e : experts) logits.push_back(row.answer.logits[static_cast<std::size_t>(e)]);
  return logits;
}

// What the weights start from, in slot order, a NaN as it is.
std::vector<float> terms_of(const ExplainedRow& row, const std::vector<std::int32_t>& experts) {
  std::vector<float> from = row.answer.scores;
  if (row.spec.weights.source == oracle::WeightSource::kBiasedScore) {
    // The biased score is the key as it was before a group mask of 0.
    const auto ranked = static_cast<std::size_t>(oracle::ranked_experts(row.spec));
    const std::vector<float> keys =
        oracle::rank_keys<float>(row.spec, std::span<const float>(row.answer.logits).first(ranked),
                                 std::span<const float>(row.answer.scores).first(ranked), row.constants.selection_bias);
    std::copy(keys.begin(), keys.end(), from.begin());
  }
  std::vector<float> terms;
  for (const std::int32_t e : experts) terms.push_back(from[static_cast<std::size_t>(e)]);
  return terms;
}

std::vector<std::string> texts(const std::vector<float>& values) {
  std::vector<std::string> words;
  for (const float value : values) words.push_back(number_text(value));
  return words;
}

// false: every weight is 0.
bool print_sum(const ExplainedRow& row, const std::vector<float>& terms) {
  const RouterSpec::Weights& weights = row.spec.weights;
  const oracle::RowAnswer<float>& answer = row.answer;
  const bool has_inf = std::count(terms.begin(), terms.end(), std::numeric_limits<float>::infinity()) > 0;
  if (std::any_of(terms.begin(), terms.end(), [](float term) { return std::isnan(term); })) {
    print_out("  a nan counts as 0\n");
  }
  if (has_inf && weights.renormalize == oracle::Renormalize::kL1) {
    print_out("  with inf among them, inf counts as 1 and everything else as 0\n");
  } else if (has_inf) {
    print_out("  with inf among them, inf weighs the largest finite fp32 and everything else 0\n");
  }
  if (weights.renormalize == oracle::Renormalize::kNone) return true;
  print_out("  S = {} = {}\n", fmt::join(texts(terms), " + "), number_text(answer.sum));
  const std::string eps = number_text(static_cast<float>(weights.eps));
  const char* form = weights.eps_mode == oracle::EpsMode::kAdd        ? "S + {} = {}"
                     : weights.eps_mode == oracle::EpsMode::kClampMin ? "max(S, {}) = {}"
                                                                      : "S = {1}";
  print_out("  D = {}\n", fmt::format(fmt::runtime(form), eps, number_text(answer.denominator)));
  if (answer.denominator == 0) print_out("  D is 0: every weight is 0\n");
  return answer.denominator != 0;
}

// false: every weight is 0.
bool print_log_space(const ExplainedRow& row, const std::vector<std::int32_t>& experts) {
  std::vector<float> logs;
  for (const float logit : logits_of(row, experts)) logs.push_back(oracle::log_sigmoid(logit));
  float most = -std::numeric_limits<float>::infinity();
  for (const float l : logs) {
    if (l > most) most = l;
  }
  print_out("weights: l = log(sigmoid(logit)) of a chosen expert, M the largest l\n");
  print_out("  l = {}; M = {}\n", fmt::join(texts(logs), ", "), number_text(most));
  if (std::isinf(most)) {
    print_out("  no l is above -inf: every weight is 0\n");
    return false;
  }
  std::vector<float> exps;
  for (const float l : logs) exps.push_back(std::isnan(l) ? 0.0f : Contract::exp(Contract::sub(l, most)));
  const float log_sum = Contract::log(row.answer.denominator);
  print_out("  D = {} = {}, the sum of e^(l - M); log(D) = {}\n", fmt::join(texts(exps), " + "),
            number_text(row.answer.denominator), number_text(log_sum));
  return true;
}

void print_learned_scales(const ExplainedRow& row, const std::vector<std::int32_t>& experts) {
  if (!row.constants.per_expert_scale.empty()) {
    std::vector<std::string> words;
    for (const std::int32_t e : experts) {
      words.push_back(
          fmt::format("{}: {}", e, number_text(row.constants.per_expert_scale[static_cast<std::size_t>(e)])));
    }
    print_out("  per_expert_scale of expert {}\n", fmt::join(words, ", "));
  }
  if (row.constants.global_scale) print_out("  global_scale is {}\n", number_text(*row.constants.global_scale));
}

void print_renamed(const oracle::RowAnswer<float>& answer) {
  for (std::size_t slot = 0; slot < answer.ids.size(); ++slot) {
    if (answer.ids[slot] == answer.expert_ids[slot]) continue;
    print_out("  slot {}: zero expert {} is returned as id 0 with weight 0\n", slot, answer.expert_ids[slot]);
  }
}

}  // namespace

std::string weight_formula(const RouterSpec& spec) {
  const RouterSpec::Weights& weights = spec.weights;
  const float factor = static_cast<float>(weights.routed_scaling_factor);
  const bool on_output = weights.scale_stage == oracle::ScaleStage::kOnExpertOutput;
  const std::string scale = !on_output && factor != 1.0f ? " * " + number_text(factor) : "";
  std::string text = "s";
  if (weights.renormalize == oracle::Renormalize::kLogSpaceL1) {
    text = "e^((l - M) - log(D))" + scale;
  } else if (weights.renormalize == oracle::Renormalize::kNone) {
    text += scale;
  } else {
    text += weights.scale_stage == oracle::ScaleStage::kBeforeDivide ? scale + " / D" : " / D" + scale;
  }
  if (weights.per_expert_scale) text += " * per_expert_scale";
  if (weights.global_scale) text += " * global_scale";
  if (weights.dtype == oracle::FloatType::kBf16) text += ", rounded to bf16";
  if (on_output && factor != 1.0f) {
    text += fmt::format("; the scale {} is applied to the expert output, not here", number_text(factor));
  }
  return text;
}

void print_passes(const ExplainedRow& row) {
  if (row.spec.selection.method != oracle::SelectionMethod::kSparsemixer) return;
  const std::vector<float>& logits = row.answer.logits;
  const float limit = Contract::mul(2.0f, static_cast<float>(row.spec.sparsemixer_jitter_eps.value()));
  std::vector<std::uint8_t> gone(static_cast<std::size_t>(oracle::ranked_experts(row.spec)));
  std::size_t pass = 0;
  for (const std::int32_t chosen : slot_order(row)) {
    const float t = logits[static_cast<std::size_t>(chosen)];
    std::size_t part = 0;
    for (std::size_t j = 0; j < gone.size(); ++j) {
      const float distance = Contract::div(Contract::sub(t, logits[j]), std::max(std::fabs(logits[j]), t));
      if (gone[j] == 0 && !(distance > limit)) ++part;
    }
    gone[static_cast<std::size_t>(chosen)] = 1;
    print_out("pass {}: t = {} of expert {}; with (t - z) / max(|z|, t) <= {} taking part: {}; score {}\n", pass++,
              number_text(t), chosen, number_text(limit), part,
              number_text(row.answer.scores[static_cast<std::size_t>(chosen)]));
  }
}

void print_weights(const ExplainedRow& row) {
  const std::vector<std::int32_t> experts = slot_order(row);
  bool some = false;
  if (row.spec.weights.renormalize == oracle::Renormalize::kLogSpaceL1) {
    some = print_log_space(row, experts);
  } else {
    const bool biased = row.spec.weights.source == oracle::WeightSource::kBiasedScore;
    print_out("weights: s = {} of a chosen expert\n", biased ? "the biased score" : "the score");
    some = print_sum(row, terms_of(row, experts));
  }
  if (some) {
    print_learned_scales(row, experts);
    print_out("  weight = {}\n", weight_formula(row.spec));
  }
  print_renamed(row.answer);
}

}  // namespace samebits::harness
