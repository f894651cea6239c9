#include "harness/cli/known_answer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace samebits::harness {
namespace {

using Pair = std::pair<std::int64_t, double>;  // id, weight

std::string text(const std::vector<Pair>& pairs, bool weights) {
  std::vector<std::string> words;
  for (const auto& [id, weight] : pairs)
    words.push_back(weights ? fmt::format("{}: {:.9g}", id, weight) : fmt::format("{}", id));
  return fmt::format("{}", fmt::join(words, ", "));
}

// False also for a NaN.
bool near(double found, double wanted, double tolerance) {
  return std::abs(found - wanted) <= tolerance * std::abs(wanted);
}

}  // namespace

const properties::Law& known_answer_law() {
  static const properties::Law law = {
      "known_answer",
      "The answer is the one that the case file states, as far as the claims determine it, and breaks no law.",
      "the source that the file names",
      "a case file with an expected block",
      1,
      nullptr,
      nullptr};
  return law;
}

std::vector<std::string> law_names() {
  std::vector<std::string> names;
  for (const properties::Law& law : properties::all_laws()) names.emplace_back(law.id);
  names.emplace_back(known_answer_law().id);
  return names;
}

properties::LawOutcome check_known_answer(const KnownAnswer& expected, const properties::Claims& claims,
                                          const std::vector<properties::Run>& runs) {
  properties::LawOutcome outcome;
  const auto main = std::find_if(runs.begin(), runs.end(), [](const auto& run) { return run.request.id == "main"; });
  if (main == runs.end() || main->result.status != properties::RunResult::Status::kOk) return outcome;
  const oracle::RouterOutputs& outputs = main->result.outputs;
  for (const ExpectedRow& row : expected.rows) {
    ++outcome.relevant;
    if (outcome.violation) continue;
    const bool with_weights = !row.topk_weights.empty();
    std::vector<Pair> found, wanted;
    for (std::int64_t slot = 0; slot < outputs.top_k; ++slot) {
      const auto place = static_cast<std::size_t>(row.row * outputs.top_k + slot);
      found.emplace_back(outputs.topk_ids.at(place), static_cast<double>(outputs.topk_weights.at(place)));
      const auto column = static_cast<std::size_t>(slot);
      wanted.emplace_back(row.topk_ids[column], with_weights ? row.topk_weights[column] : 0.0);
    }
    const std::string observed = text(found, with_weights), stated = text(wanted, with_weights);
    if (claims.output_order == properties::OutputOrder::kAny) {
      std::sort(found.begin(), found.end());
      std::sort(wanted.begin(), wanted.end());
    }
    bool same_ids = true, same_weights = true;
    for (std::size_t slot = 0; slot < found.size(); ++slot) {
      same_ids = same_ids && found[slot].first == wanted[slot].first;
      same_weights =
          same_weights && (!with_weights || near(found[slot].second, wanted[slot].second, expected.weight_tolerance));
    }
    if (same_ids && same_weights) continue;
    properties::Violation violation;
    violation.law = known_answer_law().id;
    violation.row = row.row;
    violation.summary = fmt::format("row {}: {} of {}", row.row, same_ids ? "weights" : "experts", expected.source);
    violation.observed = observed;
    violation.expected = stated;
    if (!expected.fault.empty()) violation.notes.push_back("known fault: " + expected.fault);
    if (same_ids) {
      violation.notes.push_back(
          fmt::format("weights may differ by {:g} relative: {}", expected.weight_tolerance, expected.tolerance_reason));
    }
    outcome.violation = std::move(violation);
  }
  return outcome;
}

}  // namespace samebits::harness
