#include "harness/cli/explain_router.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "harness/cli/output.h"
#include "harness/report/case_text.h"
#include "properties/explain_row.h"

namespace samebits::harness {
namespace {

using Answer = oracle::RowAnswer<float>;

// One slot: expert and bits of its weight.
using Slot = std::pair<std::int64_t, std::uint32_t>;

template <class Ids>
std::vector<Slot> slots(const Ids& ids, const std::vector<float>& weights, bool in_order) {
  std::vector<Slot> result;
  for (std::size_t i = 0; i < ids.size(); ++i) result.emplace_back(ids[i], std::bit_cast<std::uint32_t>(weights[i]));
  if (!in_order) std::sort(result.begin(), result.end());
  return result;
}

template <class Ids>
std::vector<std::int64_t> sorted(const Ids& ids) {
  std::vector<std::int64_t> copy(ids.begin(), ids.end());
  std::sort(copy.begin(), copy.end());
  return copy;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

bool same_answer(const Answer& a, const Answer& b) {
  return a.ids == b.ids && same_bits(a.weights, b.weights);
}

std::string distance(float a, float b) {
  if (!std::isfinite(a) || !std::isfinite(b)) return "not both finite";
  return grouped(oracle::ulp_distance(a, b)) + " ulp apart";
}

// Two ways to compute the same formula: in each, a weight has at most 5 roundings of its own (score, division, three
// scales) and the K - 1 of its sum, 2^-24 relative each, and an ulp is at least 2^-24 of its value.
std::int64_t rounding_ulps(std::size_t columns) {
  return 2 * (static_cast<std::int64_t>(columns) + 4);
}

bool only_rounding(const Answer& a, const Answer& b) {
  if (a.ids != b.ids) return false;
  for (std::size_t i = 0; i < a.weights.size(); ++i) {
    if (oracle::ulp_distance(a.weights[i], b.weights[i]) > rounding_ulps(a.ids.size())) return false;
  }
  return true;
}

std::string difference(const Answer& contract, const Answer& other) {
  const std::string replaced = replaced_experts(contract.ids, other.ids);
  if (!replaced.empty()) return replaced;
  return contract.ids == other.ids ? "the same experts, other weights" : "the same experts in another order";
}

// "5 = 0.53, 0 = 0.47"
std::string choice_text(const Answer& answer) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < answer.ids.size(); ++i) {
    words.push_back(fmt::format("{} = {}", answer.ids[i], number_text(answer.weights[i])));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string mark(const Answer& contract, const Answer& other, const ObservedRow* observed, bool sorted_slots) {
  if (observed == nullptr) return "";
  if (slots(other.ids, other.weights, sorted_slots) == slots(observed->ids, observed->weights, sorted_slots)) {
    return "  <- this is what the router returned";
  }
  const std::vector<std::int64_t> theirs = sorted(observed->ids);
  if (sorted(other.ids) == theirs && sorted(contract.ids) != theirs) {
    return "  <- the experts that the router returned";
  }
  return "";
}

std::string alternative_text(const properties::Alternative& other, const Answer& contract, const std::string& marked) {
  return fmt::format("  {}: {}{}\n    {}\n", other.text, difference(contract, other.answer), marked,
                     choice_text(other.answer));
}

}  // namespace

std::optional<ObservedRow> observe(const ExplainedRow& row, std::int64_t case_row,
                                   const std::vector<properties::Run>& runs) {
  std::optional<ObservedRow> first;
  for (const auto& [request, result] : runs) {
    if (!properties::is_ordinary(request)) continue;
    const oracle::RouterOutputs& outputs = result.outputs;
    const auto k = static_cast<std::size_t>(outputs.top_k);
    for (std::size_t r = 0; r < request.rows.size(); ++r) {
      const bool replaced = !request.replace.empty() && request.replace[r] != properties::RowReplacement::kKeep;
      const bool padding = request.num_valid_rows && static_cast<std::int64_t>(r) >= *request.num_valid_rows;
      if (request.rows[r] != case_row || replaced || padding) continue;
      if (result.status != properties::RunResult::Status::kOk || outputs.topk_ids.size() < (r + 1) * k ||
          outputs.topk_weights.size() < (r + 1) * k) {
        continue;
      }
      ObservedRow observed{request.id, static_cast<std::int64_t>(r), {}, {}, {}};
      const auto at = static_cast<std::ptrdiff_t>(r * k), end = static_cast<std::ptrdiff_t>((r + 1) * k);
      observed.ids.assign(outputs.topk_ids.begin() + at, outputs.topk_ids.begin() + end);
      observed.weights.assign(outputs.topk_weights.begin() + at, outputs.topk_weights.begin() + end);
      const std::size_t experts = row.logits.size();
      if (outputs.router_logits.size() >= (r + 1) * experts) {
        const auto begin = outputs.router_logits.begin() + static_cast<std::ptrdiff_t>(r * experts);
        observed.logits.assign(begin, begin + static_cast<std::ptrdiff_t>(experts));
      }
      const bool differs =
          sorted(observed.ids) != sorted(row.answer.ids) ||
          slots(observed.ids, observed.weights, false) != slots(row.answer.ids, row.answer.weights, false) ||
          (!observed.logits.empty() && !same_bits(observed.logits, row.answer.logits));
      if (differs) return observed;
      if (!first) first = std::move(observed);
    }
  }
  return first;
}

void print_observed(const ExplainedRow& row, const ObservedRow& observed, const std::string& router,
                    bool sorted_slots) {
  const Answer& answer = row.answer;
  print_out("{} returned (run {}, row {} of it){}:\n", router, observed.run, observed.row,
            sorted_slots ? "" : ", slots in any order");
  print_out("  {:>4} {:>7} {:<28} {:>7} {}\n", "slot", "expert", "weight by the contract", "expert",
            "weight by the router");
  std::size_t differing = 0;
  for (std::size_t i = 0; i < answer.ids.size(); ++i) {
    std::string note;
    if (observed.ids[i] != answer.ids[i]) {
      note = "another expert";
    } else if (std::bit_cast<std::uint32_t>(observed.weights[i]) != std::bit_cast<std::uint32_t>(answer.weights[i])) {
      note = "another weight: " + distance(observed.weights[i], answer.weights[i]);
    }
    if (!note.empty()) ++differing;
    print_out("  {:>4} {:>7} {:<28} {:>7} {:<28} {}\n", i, answer.ids[i], number_and_bits(answer.weights[i]),
              observed.ids[i], number_and_bits(observed.weights[i]), note.empty() ? "same" : note);
  }
  if (differing == 0) {
    print_out("  every slot has the contract's bits\n");
  } else {
    print_out("  {} of {} slots differ\n", differing, answer.ids.size());
  }
  if (observed.logits.empty()) return;
  std::vector<std::size_t> other;
  for (std::size_t e = 0; e < observed.logits.size(); ++e) {
    if (std::bit_cast<std::uint32_t>(observed.logits[e]) != std::bit_cast<std::uint32_t>(answer.logits[e])) {
      other.push_back(e);
    }
  }
  if (other.empty()) {
    print_out("  logits: all {} have the bits of the contract\n", observed.logits.size());
  } else {
    const std::size_t e = other.front();
    print_out("  logits: {} of {} differ; the first is expert {}: {}, by the contract {}, {}\n", other.size(),
              observed.logits.size(), e, number_and_bits(observed.logits[e]), number_and_bits(answer.logits[e]),
              distance(observed.logits[e], answer.logits[e]));
  }
}

void print_alternatives(const ExplainedRow& row, const ObservedRow* observed, bool sorted_slots) {
  const Answer& contract = row.answer;
  std::vector<properties::Alternative> known = properties::alternatives(row.spec, row.inputs, row.row, row.logits);
  if (observed != nullptr && !observed->logits.empty() && !same_bits(observed->logits, contract.logits)) {
    const std::span<const float> theirs(observed->logits);
    known.push_back({"the right steps on the router's own logits", oracle::route_row(row.spec, theirs, row.constants)});
  }
  std::vector<std::string> reproducing, changing;
  std::vector<const char*> rounding, unchanged;
  for (const properties::Alternative& other : known) {
    const std::string marked = mark(contract, other.answer, observed, sorted_slots);
    if (same_answer(contract, other.answer)) {
      unchanged.push_back(other.text);
    } else if (!marked.empty()) {
      reproducing.push_back(alternative_text(other, contract, marked));
    } else if (only_rounding(contract, other.answer)) {
      rounding.push_back(other.text);
    } else {
      changing.push_back(alternative_text(other, contract, ""));
    }
  }
  print_out("mistakes that would change this row:\n");
  if (reproducing.empty() && changing.empty()) print_out("  none of those known\n");
  for (const std::string& text : reproducing) print_out("{}", text);
  for (const std::string& text : changing) print_out("{}", text);
  if (!rounding.empty()) {
    print_out("only rounding of weights (up to {} ulp) would change: {}\n", rounding_ulps(contract.ids.size()),
              fmt::join(rounding, "; "));
  }
  if (!unchanged.empty()) print_out("nothing would change: {}\n", fmt::join(unchanged, "; "));
}

}  // namespace samebits::harness
