#include "oracle/second/test/compare/compare.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <numeric>
#include <utility>

#include "oracle/second/bookkeeping.h"
#include "oracle/second/logits.h"
#include "oracle/second/score.h"
#include "oracle/second/select.h"
#include "oracle/second/test/compare/rules.h"
#include "oracle/second/weigh.h"
#include "oracle/spec/spec_yaml.h"

namespace samebits::second {
namespace {

using Answer = oracle::RowAnswer<float>;
using Balls = std::vector<Ball>;

std::string hex(float value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.9g (0x%08x)", static_cast<double>(value), std::bit_cast<std::uint32_t>(value));
  return text;
}

std::string number(const Ball& ball) {
  char text[96];
  std::snprintf(text, sizeof text, "%.12g +- %.3g", mpfr_get_d(ball.center, MPFR_RNDN), ball.radius);
  return text;
}

Balls exact_all(std::span<const float> values) {
  Balls balls;
  balls.reserve(values.size());
  for (const float value : values) balls.push_back(exact(value));
  return balls;
}

bool contains(const Ball& ball, float value) {
  if (is_unknown(ball)) return true;
  const Ball other = exact(value);
  if (is_nan(ball) || is_nan(other)) return is_nan(ball) && is_nan(other);
  if (is_exact(ball) || !is_finite(other)) return mpfr_equal_p(ball.center, other.center) != 0;
  Real distance;
  mpfr_sub(distance, ball.center, other.center, MPFR_RNDA);
  mpfr_abs(distance, distance, MPFR_RNDN);
  return mpfr_cmp_d(distance, ball.radius) <= 0;
}

class RowComparison {
 public:
  RowComparison(const FirstOracle& first, const Case& test_case, std::int64_t row, Tally& tally)
      : first_(first), case_(test_case), spec_(test_case.spec), row_(row), tally_(tally) {}

  // The ids of the row.
  std::vector<std::int32_t> run(std::span<const float> logits, const Gate* gate);

 private:
  Row compare_constants(const oracle::RowConstants& constants);
  Balls compare_input_and_logits(std::span<const float> logits, const Gate& gate);
  void compare_steps(std::span<const float> logits, const Row& row, const Answer& answer);
  void compare_published(const Balls& logits, const Row& row, const Answer& answer);
  Selection compare_selection(const Balls& logits, const Balls& scores, const Row& row, const Answer& answer,
                              Balls& unmasked_keys);

  void bits(const std::string& what, std::span<const float> found, const Balls& expected);
  template <class T, class U>
  void integers(const std::string& what, const std::vector<T>& found, const std::vector<U>& expected);
  void within(const std::string& what, std::span<const float> found, const Balls& expected);
  void record(const std::string& what, Outcome outcome, const std::string& text);

  const FirstOracle& first_;
  const Case& case_;
  const RouterSpec& spec_;
  std::int64_t row_;
  Tally& tally_;
  std::span<const float> logits_;
};

void RowComparison::record(const std::string& what, Outcome outcome, const std::string& text) {
  tally_.add(what, outcome);
  if (outcome != Outcome::kDifferent || tally_.differences.size() >= 3) return;
  std::string message = case_.name + ", row " + std::to_string(row_) + ": " + what + ": " + text + "\n";
  if (logits_.size() <= 16) {
    message += "  logits:";
    for (const float logit : logits_) message += " " + hex(logit);
    message += "\n";
    const Row row = row_of(spec_, case_.inputs, row_);
    if (!row.selection_bias.empty()) {
      message += "  selection bias:";
      for (const float bias : row.selection_bias) message += " " + hex(bias);
      message += "\n";
    }
  }
  tally_.differences.push_back(message + oracle::to_yaml(spec_));
}

void RowComparison::bits(const std::string& what, std::span<const float> found, const Balls& expected) {
  if (found.size() != expected.size()) {
    record(what, Outcome::kDifferent,
           "found " + std::to_string(found.size()) + " values, expected " + std::to_string(expected.size()));
    return;
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    const float value = to_float(expected[i]);
    if (std::bit_cast<std::uint32_t>(found[i]) == std::bit_cast<std::uint32_t>(value)) continue;
    record(what, Outcome::kDifferent,
           "element " + std::to_string(i) + ": found " + hex(found[i]) + ", expected " + hex(value));
    return;
  }
  record(what, Outcome::kEqual, "");
}

template <class T, class U>
void RowComparison::integers(const std::string& what, const std::vector<T>& found, const std::vector<U>& expected) {
  const bool equal = std::equal(found.begin(), found.end(), expected.begin(), expected.end());
  std::string text = "found";
  if (!equal) {
    for (const T value : found) text += " " + std::to_string(value);
    text += ", expected";
    for (const U value : expected) text += " " + std::to_string(value);
  }
  record(what, equal ? Outcome::kEqual : Outcome::kDifferent, text);
}

void RowComparison::within(const std::string& what, std::span<const float> found, const Balls& expected) {
  bool all_known = true;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    all_known = all_known && !is_unknown(expected[i]);
    if (contains(expected[i], found[i])) continue;
    record(what, Outcome::kDifferent,
           "element " + std::to_string(i) + ": found " + hex(found[i]) + ", published " + number(expected[i]));
    return;
  }
  record(what, all_known ? Outcome::kEqual : Outcome::kUndecided, "");
}

Row RowComparison::compare_constants(const oracle::RowConstants& constants) {
  const Row row = row_of(spec_, case_.inputs, row_);
  const auto same = [](auto a, auto b) { return a.size() == b.size() && (a.empty() || a.data() == b.data()); };
  const bool equal = constants.routable == row.has_answer &&
                     (!row.has_answer || (same(constants.selection_bias, row.selection_bias) &&
                                          same(constants.per_expert_scale, row.per_expert_scale) &&
                                          same(constants.table_ids, row.table_ids) &&
                                          constants.global_scale.has_value() == row.global_scale.has_value()));
  record("bits: row constants", equal ? Outcome::kEqual : Outcome::kDifferent,
         std::string("the row has ") + (row.has_answer ? "an" : "no") + " answer");
  return row;
}

Balls RowComparison::compare_input_and_logits(std::span<const float> logits, const Gate& gate) {
  const std::vector<std::uint16_t> x = contract_input(spec_, case_.inputs, row_);
  if (oracle::prepares_input(spec_)) {
    integers("bits: input of the gate", first_.prepared_input(spec_, case_.inputs, row_), x);
    std::vector<float> values;
    for (const std::uint16_t value : x) values.push_back(to_float(exact_bf16(value)));
    within("published: input", values, published_input(spec_, case_.inputs, row_));
  }
  std::vector<std::int64_t> experts(logits.size());
  std::iota(experts.begin(), experts.end(), 0);
  if (std::ssize(experts) > case_.most_contract_logits) {
    // The first, the last, and some that depend on the row.
    experts.resize(static_cast<std::size_t>(case_.most_contract_logits));
    for (std::size_t i = 1; i < experts.size(); ++i) {
      experts[i] = ((row_ * 37) + static_cast<std::int64_t>(i * 101)) % std::ssize(logits);
    }
    experts.back() = std::ssize(logits) - 1;
  }
  std::vector<float> found;
  for (const std::int64_t expert : experts) found.push_back(logits[static_cast<std::size_t>(expert)]);
  bits("bits: logits", found, exact_all(contract_logits(spec_, gate, x, experts, FedFunctions(first_.functions))));
  Balls published = published_logits(spec_, gate, x);
  within("published: logits", logits, published);
  return published;
}

Selection RowComparison::compare_selection(const Balls& logits, const Balls& scores, const Row& row,
                                           const Answer& answer, Balls& unmasked_keys) {
  if (spec_.selection.method == oracle::SelectionMethod::kHashTable) {
    Selection selection;
    selection.ids.assign(row.table_ids.begin(), row.table_ids.end());
    bits("bits: keys", answer.keys, {});
    return selection;
  }
  unmasked_keys = rank_keys(spec_, row, logits, scores);
  Selection selection = select(spec_, unmasked_keys);
  bits("bits: keys", answer.keys, selection.keys);
  bits("bits: group scores", answer.group_scores, selection.group_scores);
  integers("bits: groups", answer.group_kept, selection.group_kept);
  integers("bits: excluded", answer.excluded, selection.excluded);
  if (spec_.selection.topk_scope == oracle::TopkScope::kGlobal) {
    integers("bits: cut", std::vector{answer.last_chosen, answer.first_rejected},
             std::vector{selection.last_chosen, selection.first_rejected});
  }
  return selection;
}

std::vector<std::int32_t> with_shared(const RouterSpec& spec, std::vector<std::int32_t> ids) {
  for (std::int64_t id = oracle::ranked_experts(spec); id < oracle::gate_rows(spec); ++id) {
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

Balls of_slots(const Balls& values, std::span<const std::int32_t> slots) {
  Balls result;
  for (const std::int32_t id : slots) result.push_back(values[static_cast<std::size_t>(id)]);
  return result;
}

void RowComparison::compare_steps(std::span<const float> logits, const Row& row, const Answer& answer) {
  const FedFunctions functions(first_.functions);
  const Balls exact_logits = exact_all(logits);
  const Balls first_scores = exact_all(answer.scores);
  bits("bits: finished logits", answer.logits, exact_logits);
  if (!scores_the_chosen(spec_)) bits("bits: scores", answer.scores, scores(spec_, functions, exact_logits));
  Balls unmasked_keys;
  const Selection selection = compare_selection(exact_logits, first_scores, row, answer, unmasked_keys);
  const std::vector<std::int32_t> slots = with_shared(spec_, selection.ids);
  Balls slot_scores = of_slots(first_scores, slots);
  if (scores_the_chosen(spec_)) {
    bool certain = true;
    slot_scores = chosen_scores(spec_, functions, exact_logits, slots, certain);
    Balls by_id(logits.size(), exact(0));
    for (std::size_t i = 0; i < slots.size(); ++i) by_id[static_cast<std::size_t>(slots[i])] = slot_scores[i];
    bits("bits: scores", answer.scores, by_id);
  }
  const Weighing weighing = weigh(spec_, row, functions, slots, exact_logits, slot_scores, unmasked_keys);
  integers("bits: ids", answer.ids, weighing.ids);
  integers("bits: ids", answer.expert_ids, weighing.expert_ids);
  bits("bits: values", answer.values, weighing.values);
  bits("bits: S and D", std::vector{answer.sum, answer.denominator}, {weighing.sum, weighing.denominator});
  bits("bits: weights", answer.weights, weighing.weights);
}

void RowComparison::compare_published(const Balls& logits, const Row& row, const Answer& answer) {
  const Functions& functions = published_functions();
  Balls all_scores(logits.size(), exact(0));
  if (!scores_the_chosen(spec_)) {
    all_scores = scores(spec_, functions, logits);
    within("published: scores", answer.scores, all_scores);
  }
  Selection selection;
  Balls unmasked_keys;
  if (spec_.selection.method == oracle::SelectionMethod::kHashTable) {
    selection.ids.assign(row.table_ids.begin(), row.table_ids.end());
  } else {
    unmasked_keys = rank_keys(spec_, row, logits, all_scores);
    selection = select(spec_, unmasked_keys);
    if (selection.set_is_certain) within("published: keys", answer.keys, selection.keys);
  }
  const std::vector<std::int32_t> slots = with_shared(spec_, selection.ids);
  const auto sorted = [](std::vector<std::int32_t> ids) {
    std::sort(ids.begin(), ids.end());
    return ids;
  };
  const bool same_set = sorted(slots) == sorted(answer.expert_ids);
  if (selection.set_is_certain) {
    record("published: set", same_set ? Outcome::kEqual : Outcome::kDifferent, "another set of experts");
  } else {
    record("published: set", same_set ? Outcome::kUndecided : Outcome::kOtherInside, "");
  }
  if (!same_set) return;

  bool certain = true;
  Balls slot_scores =
      scores_the_chosen(spec_) ? chosen_scores(spec_, functions, logits, slots, certain) : of_slots(all_scores, slots);
  // Passes of sparsemixer depend on the order of the slots.
  if (spec_.selection.method == oracle::SelectionMethod::kSparsemixer && (!certain || !selection.order_is_certain)) {
    record("published: weights", Outcome::kUndecided, "");
    return;
  }
  const Weighing weighing = weigh(spec_, row, functions, slots, logits, slot_scores, unmasked_keys);
  Balls expected(answer.weights.size());
  for (std::size_t i = 0; i < weighing.expert_ids.size(); ++i) {
    const auto at = std::find(answer.expert_ids.begin(), answer.expert_ids.end(), weighing.expert_ids[i]);
    expected[static_cast<std::size_t>(at - answer.expert_ids.begin())] = weighing.weights[i];
  }
  within("published: weights", answer.weights, expected);
}

std::vector<std::int32_t> RowComparison::run(std::span<const float> logits, const Gate* gate) {
  logits_ = logits;
  ++tally_.rows;
  const oracle::RowConstants constants = first_.row_constants(spec_, case_.inputs, row_);
  const Row row = compare_constants(constants);
  const Balls published = gate != nullptr ? compare_input_and_logits(logits, *gate) : exact_all(logits);
  const Answer answer = first_.route(spec_, logits, constants);
  if (!row.has_answer) {
    ++tally_.rows_without_answer;
    const auto columns = static_cast<std::size_t>(oracle::topk_columns(spec_));
    integers("bits: ids", answer.ids, std::vector<std::int32_t>(columns, -1));
    bits("bits: weights", answer.weights, Balls(columns, exact(0)));
    return answer.ids;
  }
  for (const std::string& rule : rules_met(spec_, logits, answer)) ++tally_.rules[rule];
  compare_steps(logits, row, answer);
  compare_published(published, row, answer);
  return answer.ids;
}

void compare_bookkeeping(const FirstOracle& first, const Case& test_case, const std::vector<std::int64_t>& ids,
                         Tally& tally) {
  const std::int64_t columns = oracle::topk_columns(test_case.spec);
  const std::int64_t num_ids = oracle::gate_rows(test_case.spec);
  for (const std::int32_t block_size : {0, 1, 3, 16}) {
    const bool equal = first.bookkeeping(ids, test_case.inputs.num_tokens, columns, num_ids, block_size) ==
                       bookkeeping(ids, num_ids, block_size);
    tally.add("bits: bookkeeping", equal ? Outcome::kEqual : Outcome::kDifferent);
    if (!equal) {
      tally.differences.push_back(test_case.name + ": bookkeeping with blocks of " + std::to_string(block_size) + "\n" +
                                  oracle::to_yaml(test_case.spec));
    }
  }
}

}  // namespace

Tally compare(const FirstOracle& first, const Case& test_case) {
  Tally tally;
  const oracle::RouterInputs& inputs = test_case.inputs;
  std::vector<float> logits = inputs.router_logits;
  std::optional<Gate> gate;
  if (!inputs.from_logits()) {
    gate.emplace(inputs);
    std::vector<std::int64_t> rows(static_cast<std::size_t>(inputs.num_tokens));
    std::iota(rows.begin(), rows.end(), 0);
    logits = first.logits(test_case.spec, inputs, rows);
  }
  const auto width = static_cast<std::size_t>(inputs.gate_rows);
  std::vector<std::int64_t> ids;
  for (std::int64_t row = 0; row < inputs.num_tokens; ++row) {
    const auto row_logits = std::span(logits).subspan(static_cast<std::size_t>(row) * width, width);
    const auto row_ids = RowComparison(first, test_case, row, tally).run(row_logits, gate ? &*gate : nullptr);
    ids.insert(ids.end(), row_ids.begin(), row_ids.end());
  }
  compare_bookkeeping(first, test_case, ids, tally);
  return tally;
}

}  // namespace samebits::second
