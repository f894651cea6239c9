#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "oracle/tensors/bf16.h"
#include "properties/laws/laws.h"
#include "properties/laws/rows.h"
#include "properties/oracle_answers.h"
#include "properties/spec_features.h"

namespace samebits::properties {
namespace {

float gate_weight(const oracle::RouterInputs& inputs, std::size_t index) {
  return inputs.gate_weight_bf16.empty() ? inputs.gate_weight_fp32[index]
                                         : oracle::bf16_to_fp32(inputs.gate_weight_bf16[index]);
}

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

bool is_gate_finite(const oracle::RouterInputs& inputs) {
  return all_finite(inputs.gate_weight_fp32) && all_finite(inputs.linear_bias) &&
         all_finite(inputs.input_scale_vector) &&
         std::all_of(inputs.gate_weight_bf16.begin(), inputs.gate_weight_bf16.end(),
                     [](std::uint16_t weight) { return std::isfinite(oracle::bf16_to_fp32(weight)); });
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
// signs. Finite terms may overflow in some orders and not in others, so they decide nothing. Where the gate reads
// prepared rows, only NaN operands are certain: a norm makes other values of infinite ones.
bool logit_is_nan(const oracle::RouterSpec& spec, const oracle::RouterInputs& inputs, std::int64_t row,
                  std::int64_t expert) {
  const auto e = static_cast<std::size_t>(expert);
  if (inputs.from_logits()) {
    return std::isnan(inputs.router_logits[static_cast<std::size_t>(row * inputs.gate_rows) + e]);
  }
  const bool prepared = oracle::prepares_input(spec);
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
    if (prepared ? std::isnan(x) || std::isnan(w) : add(x * w)) return true;
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

// For a router with its own arithmetic: NaN where it is certain, rivals where the logit is finite in any honest one.
Ranking any_ranking(const Evidence& evidence, std::int64_t row) {
  Ranking ranking;
  const std::vector<Interval>& logits = evidence.oracle.bounded(row).logits;
  const std::span<const float> bias = oracle::row_constants(evidence.c.spec, evidence.inputs, row).selection_bias;
  for (std::int64_t expert = 0; expert < oracle::ranked_experts(evidence.c.spec); ++expert) {
    const auto e = static_cast<std::size_t>(expert);
    const bool finite = oracle::finite_in_fp32(logits[e]) && (bias.empty() || std::isfinite(bias[e]));
    const bool nan_bias = !bias.empty() && std::isnan(bias[e]);
    ranking.nan.push_back(!finite && (nan_bias || logit_is_nan(evidence.c.spec, evidence.inputs, row, expert)));
    ranking.rival.push_back(finite);
  }
  return ranking;
}

// Experts compete within these: all, a group that gives its own share, or, where only the contract can tell which
// groups are rejected, one group.
std::int64_t rivals_size(const oracle::RouterSpec& spec, bool exact) {
  return oracle::ranked_experts(spec) / (exact && !selects_per_group(spec) ? 1 : spec.selection.n_group);
}

// A NaN expert that was chosen although a rival was not.
std::optional<Violation> check_choice(const Evidence& evidence, std::int64_t row, const RowView& seen) {
  const oracle::RouterSpec& spec = evidence.c.spec;
  const bool exact = evidence.claims.bit_exact();
  if (has_table(spec)) return std::nullopt;  // nothing is ranked
  // A `zero` mask gives the experts of rejected groups the key 0, NaN or not; which groups those are only the contract
  // can tell.
  if (!exact && spec.selection.group_mask == oracle::GroupMask::kZero) return std::nullopt;
  const Ranking ranking = exact ? exact_ranking(evidence.oracle.row(row)) : any_ranking(evidence, row);
  const std::int64_t size = rivals_size(spec, exact);
  // A zero expert that is renamed cannot be seen among the chosen.
  const std::int64_t visible = renames_zero_experts(spec) ? oracle::num_experts(spec) : oracle::ranked_experts(spec);
  for (std::size_t i = 0; i < seen.ids.size(); ++i) {
    const std::int64_t id = seen.ids[i];
    if (id >= visible || may_be_renamed(spec, seen, i) || ranking.nan[static_cast<std::size_t>(id)] == 0) continue;
    const std::int64_t first = id / size * size;
    for (std::int64_t rival = first; rival < std::min(first + size, visible); ++rival) {
      if (ranking.rival[static_cast<std::size_t>(rival)] == 0) continue;
      if (std::find(seen.ids.begin(), seen.ids.end(), rival) != seen.ids.end()) continue;
      Violation violation;
      violation.slot = static_cast<std::int64_t>(i);
      violation.observed = text(seen.ids);
      violation.expected = "expert " + std::to_string(rival) + " before expert " + std::to_string(id);
      violation.summary = "expert " + std::to_string(id) + " was chosen although its key is NaN, while expert " +
                          std::to_string(rival) + ", whose key is a number, was not; observed " + violation.observed;
      return violation;
    }
  }
  return std::nullopt;
}

std::optional<Violation> check_row(const Evidence& evidence, std::int64_t row, const RowView& seen) {
  std::optional<Violation> violation;
  if (!has_answer(evidence, row)) {
    const auto answer = first_answer(seen);
    if (answer) violation = violation_of(*answer, kNonFinite.id, row, "");
    return violation;
  }
  const auto unlike = std::find_if(seen.weights.begin(), seen.weights.end(), [](float w) { return !std::isfinite(w); });
  if (const std::string problem = ids_problem(evidence.c.spec, seen); !problem.empty()) {
    violation.emplace();
    violation->observed = text(seen.ids);
    violation->expected = "distinct ids in range";
    violation->summary = problem;
  } else if (unlike != seen.weights.end()) {
    violation.emplace();
    violation->slot = unlike - seen.weights.begin();
    violation->observed = text(*unlike);
    violation->expected = "a finite weight";
    violation->summary = "the weight in slot " + std::to_string(violation->slot) + " is " + violation->observed;
  } else {
    violation = check_choice(evidence, row, seen);
  }
  if (violation) {
    violation->law = kNonFinite.id;
    violation->row = row;
    violation->summary = "row " + std::to_string(row) + " (with non-finite values): " + violation->summary;
  }
  return violation;
}

// Whether a constant that this row reads is not finite; gate weights and linear bias are known.
bool constants_non_finite(const oracle::RowConstants& constants) {
  return !all_finite(constants.selection_bias) || !all_finite(constants.per_expert_scale) ||
         (constants.global_scale && !std::isfinite(*constants.global_scale));
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  const Run* main = usable(evidence, "main");
  if (main == nullptr) return outcome;
  const bool gate_is_finite = is_gate_finite(evidence.inputs);
  for (std::int64_t row = 0; row < valid_rows(*main); ++row) {
    if (gate_is_finite && !row_non_finite(evidence.inputs, row) &&
        !constants_non_finite(oracle::row_constants(evidence.c.spec, evidence.inputs, row))) {
      continue;
    }
    ++outcome.relevant;
    if (!outcome.violation) outcome.violation = check_row(evidence, row, row_view(*main, row));
  }
  return outcome;
}

}  // namespace

constinit const Law kNonFinite = {
    .id = "non_finite",
    .statement =
        "NaN and Inf in any input leave distinct ids and finite weights, and an expert whose key is NaN is "
        "chosen only when no other is left (where experts are ranked)",
    .source = "alibaba/rtp-llm#303, ROCm/aiter#4247, ROCm/aiter#1056, flashinfer-ai/flashinfer#1347",
    .hazards =
        "NaN, +Inf and -Inf in hidden states, gate weight, biases, learned scales and given logits; one, some and all "
        "experts",
    .min_relevant = 4,
    .not_applicable = [](const oracle::RouterSpec&, const Claims&) -> std::optional<std::string> {
      return std::nullopt;
    },
    .check = check,
};

}  // namespace samebits::properties
