// A comparison of two oracles is worth what it notices. Each test plants a fault in the first oracle and counts how
// many cases (of 16 rows) pass until the comparison sees it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <numeric>
#include <optional>
#include <string>

#include "oracle/second/test/compare/campaign.h"

namespace samebits::second {
namespace {

using Answer = oracle::RowAnswer<float>;
using Constants = oracle::RowConstants;

// Cases until one has a difference of the kind, counting that one.
std::optional<std::int64_t> cases_until(const FirstOracle& faulty, const std::string& what, std::int64_t limit) {
  const std::vector<NamedSpec> specs = all_specs();
  for (std::int64_t i = 0; i < limit; ++i) {
    const Tally tally = compare(faulty, reduced_case(specs, 3, i));
    const auto counts = tally.counts.find(what);
    if (counts != tally.counts.end() && counts->second[static_cast<std::size_t>(Outcome::kDifferent)] > 0) return i + 1;
  }
  return std::nullopt;
}

void expect_noticed(const FirstOracle& faulty, const std::string& what, std::int64_t limit) {
  const auto cases = cases_until(faulty, what, limit);
  ASSERT_TRUE(cases.has_value()) << what << ": " << limit << " cases passed without a difference";
  std::cout << what << ": noticed in case " << *cases << "\n";
  testing::Test::RecordProperty(what, std::to_string(*cases));
}

// Experts of rejected groups get the key 0 and may still win, where the router excludes them. Positive keys hide it.
TEST(FaultyReference, ZeroMask) {
  FirstOracle faulty;
  faulty.route = [](const oracle::RouterSpec& spec, std::span<const float> logits, const Constants& constants) {
    oracle::RouterSpec changed = spec;
    if (spec.selection.group_mask == oracle::GroupMask::kNegInf) {
      changed.selection.group_mask = oracle::GroupMask::kZero;
    }
    return oracle::route_row(changed, logits, constants);
  };
  expect_noticed(faulty, "bits: excluded", 1000);
  expect_noticed(faulty, "bits: ids", 2000);
  expect_noticed(faulty, "published: set", 2000);
}

// The chosen are those of a library function that knows no tie rule; NaN is left to the oracle.
template <class Select>
FirstOracle with_library_selection(const Select& select) {
  FirstOracle faulty;
  faulty.route = [select](const oracle::RouterSpec& spec, std::span<const float> logits, const Constants& constants) {
    Answer answer = oracle::route_row(spec, logits, constants);
    const auto& keys = answer.keys;
    const bool plain = spec.selection.method == oracle::SelectionMethod::kTopk && spec.selection.n_group == 1 &&
                       spec.selection.sort == oracle::SlotOrder::kByKeyDesc && oracle::shared_in_gate(spec) == 0 &&
                       constants.routable;
    if (!plain || std::any_of(keys.begin(), keys.end(), [](float key) { return std::isnan(key); })) return answer;
    std::vector<std::int32_t> order(keys.size());
    std::iota(order.begin(), order.end(), 0);
    const auto larger = [&](std::int32_t a, std::int32_t b) {
      return keys[static_cast<std::size_t>(a)] > keys[static_cast<std::size_t>(b)];
    };
    select(order, static_cast<std::ptrdiff_t>(answer.ids.size()), larger);
    std::copy_n(order.begin(), answer.ids.size(), answer.ids.begin());
    std::copy_n(order.begin(), answer.ids.size(), answer.expert_ids.begin());
    return answer;
  };
  return faulty;
}

TEST(FaultyReference, PartialSort) {
  const FirstOracle faulty = with_library_selection([](auto& order, std::ptrdiff_t k, const auto& larger) {
    std::partial_sort(order.begin(), order.begin() + k, order.end(), larger);
  });
  expect_noticed(faulty, "bits: ids", 1000);
  expect_noticed(faulty, "published: set", 1000);
}

TEST(FaultyReference, NthElement) {
  const FirstOracle faulty = with_library_selection([](auto& order, std::ptrdiff_t k, const auto& larger) {
    if (k < std::ssize(order)) std::nth_element(order.begin(), order.begin() + k, order.end(), larger);
    std::sort(order.begin(), order.begin() + k, larger);
  });
  expect_noticed(faulty, "bits: ids", 1000);
  expect_noticed(faulty, "published: set", 1000);
}

bool is_plain_gate(const oracle::RouterSpec& spec, const oracle::RouterInputs& inputs) {
  return !oracle::prepares_input(spec) && spec.gate.linear_bias == oracle::BiasType::kNone &&
         spec.gate.logits_dtype == oracle::FloatType::kFp32 && spec.logits.temperature == 1.0 && !spec.logits.softcap &&
         !inputs.gate_weight_bf16.empty();
}

// A router that adds two halves of every dot product once it has more than 8 rows.
std::vector<float> dispatched_logits(const oracle::RouterSpec& spec, const oracle::RouterInputs& inputs,
                                     std::span<const std::int64_t> rows) {
  if (rows.size() <= 8 || !is_plain_gate(spec, inputs)) return oracle::tc256_logits(spec, inputs, rows);
  const auto of_half = [&](bool lower) {
    oracle::RouterInputs half = inputs;
    const auto width = static_cast<std::size_t>(inputs.hidden_size);
    for (std::size_t i = 0; i < half.hidden_states.size(); ++i) {
      if ((i % width < width / 2) != lower) half.hidden_states[i] = 0;
    }
    return oracle::tc256_logits(spec, half, rows);
  };
  std::vector<float> logits = of_half(true);
  const std::vector<float> upper = of_half(false);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = to_float(add(exact(logits[i]), exact(upper[i])));
  return logits;
}

// A reference that calls the dispatcher of the router agrees with that router on every bit, whatever it computes.
TEST(FaultyReference, CallsTheDispatcherUnderTest) {
  FirstOracle faulty;
  faulty.logits = dispatched_logits;
  expect_noticed(faulty, "bits: logits", 1000);
}

// The same with a dispatcher that weighs by the biased score.
TEST(FaultyReference, CallsADispatcherThatKeepsTheBias) {
  FirstOracle faulty;
  faulty.route = [](const oracle::RouterSpec& spec, std::span<const float> logits, const Constants& constants) {
    oracle::RouterSpec changed = spec;
    if (!constants.selection_bias.empty()) changed.weights.source = oracle::WeightSource::kBiasedScore;
    return oracle::route_row(changed, logits, constants);
  };
  expect_noticed(faulty, "bits: weights", 1000);
  expect_noticed(faulty, "published: weights", 1000);
}

// Without a fault nothing is noticed over the same cases.
TEST(FaultyReference, NoneWithoutAFault) {
  const FirstOracle first;
  const std::vector<NamedSpec> specs = all_specs();
  for (std::int64_t i = 0; i < 500; ++i) {
    const Tally tally = compare(first, reduced_case(specs, 3, i));
    ASSERT_EQ(tally.num_different(), 0) << tally.differences.front();
  }
}

}  // namespace
}  // namespace samebits::second
