#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "oracle/tensors/bf16.h"
#include "properties/laws/laws.h"
#include "properties/laws/rows.h"
#include "properties/oracle_answers.h"

namespace samebits::properties {
namespace {

float gate_weight(const oracle::RouterInputs& inputs, std::size_t index) {
  return inputs.gate_weight_bf16.empty() ? inputs.gate_weight_fp32[index]
                                         : oracle::bf16_to_fp32(inputs.gate_weight_bf16[index]);
}

// 1 for each expert whose gate weights and biases are all finite.
std::vector<std::uint8_t> finite_experts(const oracle::RouterInputs& inputs) {
  const auto width = static_cast<std::size_t>(inputs.hidden_size);
  std::vector<std::uint8_t> finite;
  for (std::size_t e = 0; e < static_cast<std::size_t>(inputs.gate_rows); ++e) {
    bool all = inputs.linear_bias.empty() || std::isfinite(inputs.linear_bias[e]);
    all = all && (inputs.selection_bias.empty() || std::isfinite(inputs.selection_bias[e]));
    for (std::size_t h = 0; all && h < width; ++h) all = std::isfinite(gate_weight(inputs, e * width + h));
    finite.push_back(all);
  }
  return finite;
}

bool row_non_finite(const oracle::RouterInputs& inputs, std::int64_t row) {
  const auto width = static_cast<std::size_t>(inputs.from_logits() ? inputs.gate_rows : inputs.hidden_size);
  const std::size_t first = static_cast<std::size_t>(row) * width;
  for (std::size_t i = first; i < first + width; ++i) {
    const float value = inputs.from_logits() ? inputs.router_logits[i] : oracle::bf16_to_fp32(inputs.hidden_states[i]);
    if (!std::isfinite(value)) return true;
  }
  return false;
}

// Whether every IEEE evaluation of this logit, in any order, is NaN: a NaN operand, 0 * Inf, or infinite terms of both
// signs. Finite terms may overflow in some orders and not in others, so they decide nothing.
bool logit_is_nan(const oracle::RouterInputs& inputs, std::int64_t row, std::int64_t expert) {
  const auto e = static_cast<std::size_t>(expert);
  if (inputs.from_logits()) {
    return std::isnan(inputs.router_logits[static_cast<std::size_t>(row * inputs.gate_rows) + e]);
  }
  const auto width = static_cast<std::size_t>(inputs.hidden_size);
  bool plus = false, minus = false;
  const auto add = [&](float term) {
    plus = plus || term == INFINITY;
    minus = minus || term == -INFINITY;
    return std::isnan(term);
  };
  for (std::size_t h = 0; h < width; ++h) {
    const float x = oracle::bf16_to_fp32(inputs.hidden_states[static_cast<std::size_t>(row) * width + h]);
    const float w = gate_weight(inputs, e * width + h);
    if (std::isfinite(x) && std::isfinite(w)) continue;
    if (add(x * w)) return true;
  }
  if (!inputs.linear_bias.empty() && add(inputs.linear_bias[e])) return true;
  return plus && minus;
}

// Experts whose key is NaN, and their rivals: those that must be preferred to them.
struct Ranking {
  std::vector<std::uint8_t> nan;
  std::vector<std::uint8_t> rival;
};

Ranking exact_ranking(const oracle::RowAnswer<float>& answer) {
  Ranking ranking;
  for (std::size_t e = 0; e < answer.keys.size(); ++e) {
    const bool nan = std::isnan(answer.keys[e]);
    ranking.nan.push_back(nan && answer.excluded[e] == 0);
    ranking.rival.push_back(!nan && answer.excluded[e] == 0);
  }
  return ranking;
}

// For a router with its own arithmetic: NaN where it is certain, rivals where every operand is finite.
Ranking any_ranking(const oracle::RouterInputs& inputs, std::int64_t row,
                    const std::vector<std::uint8_t>& expert_is_finite) {
  Ranking ranking;
  const bool row_is_finite = !row_non_finite(inputs, row);
  for (std::int64_t expert = 0; expert < inputs.gate_rows; ++expert) {
    const auto e = static_cast<std::size_t>(expert);
    const bool given = inputs.from_logits();
    const bool finite =
        expert_is_finite[e] != 0 &&
        (given ? std::isfinite(inputs.router_logits[static_cast<std::size_t>(row * inputs.gate_rows) + e])
               : row_is_finite);
    const bool nan_bias = !inputs.selection_bias.empty() && std::isnan(inputs.selection_bias[e]);
    ranking.nan.push_back(!finite && (nan_bias || logit_is_nan(inputs, row, expert)));
    ranking.rival.push_back(finite);
  }
  return ranking;
}

// A NaN expert that was chosen although a rival of its group was not (another group may have been rejected).
std::optional<Violation> check_row(const Evidence& evidence, std::int64_t row, const RowView& seen,
                                   const std::vector<std::uint8_t>& expert_is_finite) {
  Violation violation;
  violation.law = kNonFinite.id;
  violation.row = row;
  const std::string start = "row " + std::to_string(row) + " (with non-finite values): ";
  const std::int64_t num_experts = oracle::num_experts(evidence.c.spec);
  if (const std::string problem = ids_problem(seen.ids, num_experts); !problem.empty()) {
    violation.observed = text(seen.ids);
    violation.expected = "distinct ids in range";
    violation.summary = start + problem;
    return violation;
  }
  for (std::size_t i = 0; i < seen.weights.size(); ++i) {
    if (std::isfinite(seen.weights[i])) continue;
    violation.slot = static_cast<std::int64_t>(i);
    violation.observed = text(seen.weights[i]);
    violation.expected = "a finite weight";
    violation.summary = start + "the weight in slot " + std::to_string(i) + " is " + violation.observed;
    return violation;
  }

  const bool exact = evidence.claims.bit_exact();
  // A `zero` mask gives the experts of rejected groups the key 0, NaN or not; which groups those are only the contract
  // can tell.
  if (!exact && evidence.c.spec.selection.group_mask == oracle::GroupMask::kZero) return std::nullopt;
  const Ranking ranking =
      exact ? exact_ranking(evidence.oracle.row(row)) : any_ranking(evidence.inputs, row, expert_is_finite);
  const std::int64_t group_size = exact ? num_experts : num_experts / evidence.c.spec.selection.n_group;
  for (std::size_t i = 0; i < seen.ids.size(); ++i) {
    const std::int64_t id = seen.ids[i];
    if (ranking.nan[static_cast<std::size_t>(id)] == 0) continue;
    const std::int64_t first = id / group_size * group_size;
    for (std::int64_t rival = first; rival < first + group_size; ++rival) {
      if (ranking.rival[static_cast<std::size_t>(rival)] == 0) continue;
      if (std::find(seen.ids.begin(), seen.ids.end(), rival) != seen.ids.end()) continue;
      violation.slot = static_cast<std::int64_t>(i);
      violation.observed = text(seen.ids);
      violation.expected = "expert " + std::to_string(rival) + " before expert " + std::to_string(id);
      violation.summary = start + "expert " + std::to_string(id) +
                          " was chosen although its key is NaN, while expert " + std::to_string(rival) +
                          ", whose key is a number, was not; observed " + violation.observed;
      return violation;
    }
  }
  return std::nullopt;
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  const Run* main = usable(evidence, "main");
  if (main == nullptr) return outcome;
  const std::vector<std::uint8_t> expert_is_finite = finite_experts(evidence.inputs);
  const bool constants = std::count(expert_is_finite.begin(), expert_is_finite.end(), 0) > 0;
  for (std::int64_t row = 0; row < valid_rows(*main); ++row) {
    if (!constants && !row_non_finite(evidence.inputs, row)) continue;
    ++outcome.relevant;
    if (!outcome.violation) outcome.violation = check_row(evidence, row, row_view(*main, row), expert_is_finite);
  }
  return outcome;
}

}  // namespace

constinit const Law kNonFinite = {
    .id = "non_finite",
    .statement =
        "NaN and Inf in any input leave distinct ids and finite weights, and an expert whose key is NaN is "
        "chosen only when no other is left",
    .source = "alibaba/rtp-llm#303, ROCm/aiter#4247, ROCm/aiter#1056, flashinfer-ai/flashinfer#1347",
    .hazards = "NaN, +Inf and -Inf in hidden states, gate weight, biases and given logits; one, some and all experts",
    .min_relevant = 4,
    .not_applicable = [](const oracle::RouterSpec&, const Claims&) -> std::optional<std::string> {
      return std::nullopt;
    },
    .check = check,
};

}  // namespace samebits::properties
