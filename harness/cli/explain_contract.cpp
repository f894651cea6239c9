#include "harness/cli/explain_contract.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "harness/cli/output.h"
#include "harness/io/float_text.h"
#include "harness/report/case_text.h"
#include "oracle/reference/rank_key.h"
#include "oracle/tensors/bf16.h"
#include "properties/explain_row.h"

namespace samebits::harness {
namespace {

using oracle::BiasType;
using oracle::FloatType;
using oracle::RouterSpec;

const char* bf16_note(FloatType type) {
  return type == FloatType::kBf16 ? ", rounded to bf16" : "";
}

bool has_bias(const RouterSpec& spec) {
  return spec.selection.bias != BiasType::kNone;
}

// The bias that is added: the given one, or its rounding where the spec says bf16.
float used_bias(const RouterSpec& spec, float given) {
  return spec.selection.bias == BiasType::kBf16 ? oracle::round_to_bf16(given) : given;
}

bool bias_is_rounded(const ExplainedRow& row) {
  return has_bias(row.spec) &&
         std::any_of(row.inputs.selection_bias.begin(), row.inputs.selection_bias.end(), [&](float given) {
           return std::bit_cast<std::uint32_t>(used_bias(row.spec, given)) != std::bit_cast<std::uint32_t>(given);
         });
}

std::string logits_step(const ExplainedRow& row) {
  const RouterSpec& spec = row.spec;
  if (row.inputs.from_logits()) {
    return fmt::format("given as finished values{}",
                       spec.gate.logits_dtype == FloatType::kBf16 ? " (the router's rounding to bf16 is in them)" : "");
  }
  std::string text = fmt::format("{} products each, summed in the order of tc256", row.inputs.hidden_size);
  if (spec.gate.linear_bias == BiasType::kFp32) text += ", plus the linear bias";
  if (spec.gate.linear_bias == BiasType::kBf16) text += ", plus the linear bias rounded to bf16";
  text += bf16_note(spec.gate.logits_dtype);
  if (spec.logits.temperature != 1.0) text += fmt::format(", divided by the temperature {}", spec.logits.temperature);
  return text;
}

std::string score_step(const RouterSpec::Score& score) {
  std::string text;
  switch (score.func) {
    case oracle::ScoreFunc::kSoftmax:
      text =
          score.stage == oracle::ScoreStage::kAfterTopk ? "softmax over the chosen logits" : "softmax over all logits";
      break;
    case oracle::ScoreFunc::kSigmoid:
      text = "sigmoid(logit)";
      break;
    case oracle::ScoreFunc::kSqrtSoftplus:
      text = "sqrt(softplus(logit))";
      break;
    case oracle::ScoreFunc::kIdentity:
      text = "logit";
      break;
  }
  if (score.func != oracle::ScoreFunc::kSoftmax && score.stage == oracle::ScoreStage::kAfterTopk) {
    text += " of the chosen";
  }
  return text + bf16_note(score.dtype);
}

std::string key_step(const RouterSpec& spec) {
  std::string text = spec.selection.rank_by == oracle::RankBy::kLogit ? "logit" : "score";
  if (spec.selection.bias == BiasType::kFp32) text += " + bias";
  if (spec.selection.bias == BiasType::kBf16) text += " + bias, the bias rounded to bf16 first";
  return text;
}

// "s / D * 2.5"
std::string weight_formula(const RouterSpec::Weights& weights) {
  const float factor = static_cast<float>(weights.routed_scaling_factor);
  const bool scaled = weights.scale_stage != oracle::ScaleStage::kOnExpertOutput && factor != 1.0f;
  const std::string scale = scaled ? " * " + number_text(factor) : "";
  std::string text = "s";
  if (weights.renormalize == oracle::Renormalize::kNone) {
    text += scale;
  } else {
    text += weights.scale_stage == oracle::ScaleStage::kBeforeDivide ? scale + " / D" : " / D" + scale;
  }
  text += bf16_note(weights.dtype);
  if (weights.scale_stage == oracle::ScaleStage::kOnExpertOutput && factor != 1.0f) {
    text += fmt::format("; the scale {} is applied to the expert output, not here", number_text(factor));
  }
  return text;
}

struct Rank {
  std::size_t rank = 0;  // from 0
  std::int32_t expert = 0;
  bool chosen = false;
};

std::vector<Rank> ranks(const oracle::RowAnswer<float>& answer) {
  std::vector<std::int32_t> experts(answer.keys.size());
  std::iota(experts.begin(), experts.end(), 0);
  std::sort(experts.begin(), experts.end(),
            [&](std::int32_t a, std::int32_t b) { return properties::ranks_before(answer, a, b); });
  std::vector<Rank> result;
  for (std::size_t i = 0; i < experts.size(); ++i) {
    const bool chosen = std::find(answer.ids.begin(), answer.ids.end(), experts[i]) != answer.ids.end();
    result.push_back({i, experts[i], chosen});
  }
  return result;
}

template <class Ids>
std::optional<std::size_t> slot_of(const Ids& ids, std::int32_t expert) {
  const auto place = std::find(ids.begin(), ids.end(), expert);
  if (place == ids.end()) return std::nullopt;
  return static_cast<std::size_t>(place - ids.begin());
}

std::string expert_line(const ExplainedRow& row, const ObservedRow* observed, const Rank& at, bool show_given) {
  const oracle::RowAnswer<float>& answer = row.answer;
  const auto expert = static_cast<std::size_t>(at.expert);
  const bool biased = has_bias(row.spec);
  const auto slot = slot_of(answer.ids, at.expert);
  std::string line = fmt::format(
      "{:>4} {:>6} {:>14} {:>14} {:>14} {:>14} {:>14}", at.rank + 1, at.expert, number_text(answer.logits[expert]),
      row.spec.score.stage == oracle::ScoreStage::kAfterTopk && !slot ? "-" : number_text(answer.scores[expert]),
      biased ? number_text(used_bias(row.spec, row.inputs.selection_bias[expert])) : "-",
      number_text(answer.keys[expert]), slot ? number_text(answer.weights[*slot]) : "-");
  if (observed != nullptr) {
    const auto theirs = slot_of(observed->ids, at.expert);
    line += fmt::format(" {:>14}", theirs ? number_text(observed->weights[*theirs]) : "-");
  }
  if (show_given) line += fmt::format(" {:>14}", number_text(row.inputs.selection_bias[expert]));
  if (!answer.group_kept.empty()) {
    const std::size_t group = expert / (answer.keys.size() / answer.group_kept.size());
    line += fmt::format("  {:>5}", group);
    if (answer.group_kept[group] == 0) {
      line += answer.excluded[expert] != 0 ? "  excluded: group not kept" : "  key set to 0: group not kept";
    }
  }
  return line;
}

}  // namespace

std::string number_text(float value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return fp32_text(value);
}

std::string number_and_bits(float value) {
  return fmt::format("{} (0x{:08x})", number_text(value), std::bit_cast<std::uint32_t>(value));
}

void print_steps(const ExplainedRow& row) {
  const RouterSpec& spec = row.spec;
  print_out("  logits: {}\n", logits_step(row));
  if (spec.score.stage == oracle::ScoreStage::kBeforeTopk) print_out("  score:  {}\n", score_step(spec.score));
  print_out("  key:    {}\n", key_step(spec));
  if (!row.answer.group_kept.empty()) {
    print_out("  groups: {} of {} are kept, ranked by the {} of their keys; the others' experts {}\n",
              spec.selection.topk_group, spec.selection.n_group,
              spec.selection.group_score == oracle::GroupScore::kTop2Sum ? "sum of the best two" : "maximum",
              spec.selection.group_mask == oracle::GroupMask::kZero ? "get the key 0" : "are excluded");
  }
  print_out("  choice: the {} largest keys; of equal keys the lower id\n", oracle::top_k(spec));
  if (spec.score.stage == oracle::ScoreStage::kAfterTopk) print_out("  score:  {}\n", score_step(spec.score));
  print_out("  weight: {}\n", weight_formula(spec.weights));
}

void print_experts(const ExplainedRow& row, const ObservedRow* observed, bool all) {
  constexpr std::size_t kRejectedShown = 3, kChosenShown = 16;
  const bool show_given = bias_is_rounded(row);
  print_out("{:>4} {:>6} {:>14} {:>14} {:>14} {:>14} {:>14}{}{}{}\n", "rank", "expert", "logit", "score", "bias", "key",
            "weight", observed != nullptr ? fmt::format(" {:>14}", "router weight") : "",
            show_given ? fmt::format(" {:>14}", "given bias") : "", row.answer.group_kept.empty() ? "" : "  group");
  std::size_t rejected = 0, chosen = 0, next = 0;
  for (const Rank& at : ranks(row.answer)) {
    if (!at.chosen && rejected == 0) print_out("{:->88}\n", " cut");
    const bool near =
        at.chosen ? ++chosen <= kChosenShown || at.expert == row.answer.last_chosen : ++rejected <= kRejectedShown;
    const bool theirs = observed != nullptr && slot_of(observed->ids, at.expert).has_value();
    if (!all && !near && !theirs) continue;
    if (at.rank != next) print_out("{:>4}\n", "...");
    next = at.rank + 1;
    print_out("{}\n", expert_line(row, observed, at, show_given));
  }
  if (next < row.answer.keys.size()) {
    print_out("{:>4} {} more; --all shows them\n", "...", row.answer.keys.size() - next);
  }
}

void print_groups(const ExplainedRow& row) {
  const oracle::RowAnswer<float>& answer = row.answer;
  for (std::size_t group = 0; group < answer.group_scores.size(); ++group) {
    const std::size_t size = answer.keys.size() / answer.group_scores.size();
    print_out("group {} (experts {} to {}): score {}, {}\n", group, group * size, (group + 1) * size - 1,
              number_text(answer.group_scores[group]), answer.group_kept[group] != 0 ? "kept" : "not kept");
  }
}

void print_cut(const ExplainedRow& row) {
  const oracle::RowAnswer<float>& answer = row.answer;
  if (answer.last_chosen < 0 || answer.first_rejected < 0) {
    print_out("cut: no expert is rejected by its key\n");
    return;
  }
  const float above = answer.keys[static_cast<std::size_t>(answer.last_chosen)];
  const float below = answer.keys[static_cast<std::size_t>(answer.first_rejected)];
  std::string why;
  if (std::isnan(above)) {
    why = "both keys are nan, the lower id wins";
  } else if (std::isnan(below)) {
    why = "a nan key ranks below every number";
  } else if (above == below) {
    why = "equal keys, the lower id wins";
  } else if (std::isinf(above) || std::isinf(below)) {
    why = "the larger key wins";
  } else {
    why = fmt::format("gap {:g}, {} ulp", static_cast<double>(above) - static_cast<double>(below),
                      grouped(oracle::ulp_distance(above, below)));
  }
  print_out("cut: expert {} (key {}) is in, expert {} (key {}) is out: {}\n", answer.last_chosen, number_text(above),
            answer.first_rejected, number_text(below), why);
}

void print_weights(const ExplainedRow& row) {
  const RouterSpec::Weights& weights = row.spec.weights;
  const oracle::RowAnswer<float>& answer = row.answer;
  const bool biased = weights.source == oracle::WeightSource::kBiasedScore;
  // The biased score is the key as it was before a group mask of 0.
  const std::vector<float> keys =
      oracle::rank_keys<float>(row.spec, answer.logits, answer.scores, row.inputs.selection_bias);
  std::vector<std::string> terms;
  bool has_nan = false, has_inf = false;
  for (const Rank& at : ranks(answer)) {
    if (!at.chosen) continue;
    const auto expert = static_cast<std::size_t>(at.expert);
    const float term = biased ? keys[expert] : answer.scores[expert];
    has_nan = has_nan || std::isnan(term);
    has_inf = has_inf || term == std::numeric_limits<float>::infinity();
    terms.push_back(number_text(term));
  }
  print_out("weights: s = {} of a chosen expert\n", biased ? "the biased score" : "the score");
  if (has_nan) print_out("  a nan counts as 0\n");
  if (has_inf && weights.renormalize == oracle::Renormalize::kL1) {
    print_out("  with inf among them, inf counts as 1 and everything else as 0\n");
  } else if (has_inf) {
    print_out("  with inf among them, inf weighs the largest finite fp32 and everything else 0\n");
  }
  if (weights.renormalize == oracle::Renormalize::kL1) {
    print_out("  S = {} = {}\n", fmt::join(terms, " + "), number_text(answer.sum));
    const std::string eps = number_text(static_cast<float>(weights.eps));
    const char* form = weights.eps_mode == oracle::EpsMode::kAdd        ? "S + {} = {}"
                       : weights.eps_mode == oracle::EpsMode::kClampMin ? "max(S, {}) = {}"
                                                                        : "S = {1}";
    print_out("  D = {}\n", fmt::format(fmt::runtime(form), eps, number_text(answer.denominator)));
    if (answer.denominator == 0) {
      print_out("  D is 0: every weight is 0\n");
      return;
    }
  }
  print_out("  weight = {}\n", weight_formula(weights));
}

}  // namespace samebits::harness
