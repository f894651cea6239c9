#include "harness/cli/explain_contract.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>

#include "harness/cli/output.h"
#include "harness/io/float_text.h"
#include "harness/report/case_text.h"
#include "oracle/tensors/bf16.h"
#include "properties/explain_row.h"

namespace samebits::harness {
namespace {

using oracle::BiasType;
using oracle::FloatType;
using oracle::RouterSpec;

bool has_bias(const RouterSpec& spec) {
  return spec.selection.bias != BiasType::kNone;
}

// The bias that is added: the given one, or its rounding where the spec says bf16.
float used_bias(const RouterSpec& spec, float given) {
  return spec.selection.bias == BiasType::kBf16 ? oracle::round_to_bf16(given) : given;
}

bool bias_is_rounded(const ExplainedRow& row) {
  return has_bias(row.spec) &&
         std::any_of(row.constants.selection_bias.begin(), row.constants.selection_bias.end(), [&](float given) {
           return std::bit_cast<std::uint32_t>(used_bias(row.spec, given)) != std::bit_cast<std::uint32_t>(given);
         });
}

struct Listed {
  std::int32_t expert = 0;
  bool ranked = false;  // by its key: shared experts in the gate are not, nor any expert that a table chooses
  bool chosen = false;
};

// The experts in the order of their keys (a table: the chosen in table order, then the others by id), then the shared
// ones.
std::vector<Listed> listed(const ExplainedRow& row) {
  const oracle::RowAnswer<float>& answer = row.answer;
  const auto ranked = static_cast<std::int32_t>(oracle::ranked_experts(row.spec));
  std::vector<std::uint8_t> chosen(static_cast<std::size_t>(oracle::gate_rows(row.spec)));
  for (const std::int32_t id : answer.expert_ids) chosen[static_cast<std::size_t>(id)] = 1;
  std::vector<std::int32_t> experts(static_cast<std::size_t>(ranked));
  std::iota(experts.begin(), experts.end(), 0);
  const bool by_key = !answer.keys.empty();
  if (by_key) {
    std::sort(experts.begin(), experts.end(),
              [&](std::int32_t a, std::int32_t b) { return properties::ranks_before(answer, a, b); });
  } else {
    std::erase_if(experts, [&](std::int32_t e) { return chosen[static_cast<std::size_t>(e)] != 0; });
    experts.insert(experts.begin(), row.constants.table_ids.begin(), row.constants.table_ids.end());
  }
  for (std::int32_t e = ranked; e < static_cast<std::int32_t>(chosen.size()); ++e) experts.push_back(e);
  std::vector<Listed> result;
  for (const std::int32_t e : experts) {
    result.push_back({e, by_key && e < ranked, chosen[static_cast<std::size_t>(e)] != 0});
  }
  return result;
}

template <class Ids>
std::optional<std::size_t> slot_of(const Ids& ids, std::int32_t expert) {
  const auto place = std::find(ids.begin(), ids.end(), expert);
  if (place == ids.end()) return std::nullopt;
  return static_cast<std::size_t>(place - ids.begin());
}

bool has_score(const ExplainedRow& row, std::int32_t expert, bool chosen) {
  const RouterSpec& spec = row.spec;
  if (spec.score.stage == oracle::ScoreStage::kAfterTopk ||
      spec.selection.method == oracle::SelectionMethod::kSparsemixer) {
    return chosen;
  }
  return spec.score.func != oracle::ScoreFunc::kSoftmax || expert < oracle::ranked_experts(spec);
}

std::string expert_line(const ExplainedRow& row, const ObservedRow* observed, const Listed& at, std::size_t place) {
  const oracle::RowAnswer<float>& answer = row.answer;
  const auto expert = static_cast<std::size_t>(at.expert);
  const bool biased = has_bias(row.spec) && at.ranked;
  const auto slot = slot_of(answer.expert_ids, at.expert);
  std::string line =
      fmt::format("{:>4} {:>6} {:>14} {:>14} {:>14} {:>14} {:>14}", at.ranked ? fmt::format("{}", place + 1) : "-",
                  at.expert, number_text(answer.logits[expert]),
                  has_score(row, at.expert, at.chosen) ? number_text(answer.scores[expert]) : "-",
                  biased ? number_text(used_bias(row.spec, row.constants.selection_bias[expert])) : "-",
                  at.ranked ? number_text(answer.keys[expert]) : "-", slot ? number_text(answer.weights[*slot]) : "-");
  if (observed != nullptr) {
    const auto theirs = slot_of(observed->ids, at.expert);
    line += fmt::format(" {:>14}", theirs ? number_text(observed->weights[*theirs]) : "-");
  }
  if (bias_is_rounded(row)) {
    line += fmt::format(" {:>14}", biased ? number_text(row.constants.selection_bias[expert]) : "-");
  }
  if (!row.uncapped_logits.empty()) line += fmt::format(" {:>14}", number_text(row.uncapped_logits[expert]));
  if (!answer.group_kept.empty() && at.ranked) {
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

std::string replaced_experts(std::vector<std::int32_t> before, std::vector<std::int32_t> after) {
  std::sort(before.begin(), before.end());
  std::sort(after.begin(), after.end());
  std::vector<std::int32_t> lost, won;
  std::set_difference(before.begin(), before.end(), after.begin(), after.end(), std::back_inserter(lost));
  std::set_difference(after.begin(), after.end(), before.begin(), before.end(), std::back_inserter(won));
  if (lost.empty()) return "";
  return fmt::format("expert {} instead of {}", fmt::join(won, ", "), fmt::join(lost, ", "));
}

std::vector<std::int32_t> slot_order(const ExplainedRow& row) {
  std::vector<std::int32_t> experts;
  for (const Listed& at : listed(row)) {
    if (at.chosen) experts.push_back(at.expert);
  }
  return experts;
}

void print_experts(const ExplainedRow& row, const ObservedRow* observed, bool all) {
  constexpr std::size_t kRejectedShown = 3, kChosenShown = 16;
  const bool one_cut = !row.answer.keys.empty() && row.spec.selection.topk_scope == oracle::TopkScope::kGlobal;
  print_out("{:>4} {:>6} {:>14} {:>14} {:>14} {:>14} {:>14}{}{}{}{}\n", "rank", "expert", "logit", "score", "bias",
            "key", "weight", observed != nullptr ? fmt::format(" {:>14}", "router weight") : "",
            bias_is_rounded(row) ? fmt::format(" {:>14}", "given bias") : "",
            row.uncapped_logits.empty() ? "" : fmt::format(" {:>14}", "before softcap"),
            row.answer.group_kept.empty() ? "" : "  group");
  const std::vector<Listed> experts = listed(row);
  std::size_t rejected = 0, chosen = 0, next = 0;
  for (std::size_t place = 0; place < experts.size(); ++place) {
    const Listed& at = experts[place];
    if (!at.chosen && rejected == 0 && one_cut) print_out("{:->88}\n", " cut");
    const bool shared = at.expert >= oracle::ranked_experts(row.spec);
    const bool near =
        at.chosen ? ++chosen <= kChosenShown || at.expert == row.answer.last_chosen : ++rejected <= kRejectedShown;
    const bool theirs = observed != nullptr && slot_of(observed->ids, at.expert).has_value();
    if (!all && !near && !theirs && !shared) continue;
    if (place != next) print_out("{:>4}\n", "...");
    next = place + 1;
    print_out("{}\n", expert_line(row, observed, at, place));
  }
  if (next < experts.size()) print_out("{:>4} {} more; --all shows them\n", "...", experts.size() - next);
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
    if (!answer.keys.empty()) print_out("cut: no expert is rejected by its key\n");
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
  print_out("{}: expert {} (key {}) is in, expert {} (key {}) is out: {}\n",
            row.spec.selection.topk_scope == oracle::TopkScope::kPerGroup ? "nearest cut of a group" : "cut",
            answer.last_chosen, number_text(above), answer.first_rejected, number_text(below), why);
}

}  // namespace samebits::harness
