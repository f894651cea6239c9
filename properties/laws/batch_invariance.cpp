#include <iterator>
#include <map>
#include <utility>

#include "properties/laws/laws.h"
#include "properties/laws/rows.h"

namespace samebits::properties {
namespace {

std::optional<std::string> not_applicable(const oracle::RouterSpec&, const Claims& claims) {
  if (claims.determinism == Determinism::kBatchInvariant) return std::nullopt;
  return "the router does not claim that a row's bits are independent of the other rows";
}

// Runs that hold rows of the case as they are, in other places or among another number of rows.
bool compares(const Evidence& evidence, const Run& run) {
  return run.request.replace.empty() && run.request.id != "main" && run.request.id != "repeat" &&
         is_usable(evidence, run);
}

std::string list(const std::map<std::int64_t, bool>& same_at, bool wanted) {
  std::string line;
  for (const auto& [num_tokens, same] : same_at) {
    if (same == wanted) line += (line.empty() ? "" : ", ") + std::to_string(num_tokens);
  }
  return line;
}

// At which row counts the row has the bits that it has in main, and between which two the bits change.
std::vector<std::string> row_counts(const Evidence& evidence, const Run& main, std::int64_t row) {
  std::map<std::int64_t, bool> same_at{{num_rows(main), true}};
  const RowView expected = row_view(main, row);
  for (const Run& run : evidence.runs) {
    if (!compares(evidence, run)) continue;
    for (std::int64_t r = 0; r < valid_rows(run); ++r) {
      if (case_row(run, r) != row) continue;
      const auto [entry, added] = same_at.emplace(num_rows(run), true);
      entry->second = entry->second && !first_difference(row_view(run, r), expected);
    }
  }

  std::vector<std::string> notes;
  const std::string differs = list(same_at, false);
  if (differs.empty()) return notes;
  if (!same_at.at(num_rows(main))) {
    notes.push_back("at T = " + std::to_string(num_rows(main)) + " the bits depend on the place of the row");
    return notes;
  }
  notes.push_back("row " + std::to_string(row) + " has the same bits at T = " + list(same_at, true) +
                  ", other bits at T = " + differs);
  for (auto it = same_at.begin(), next = std::next(it); next != same_at.end(); it = next++) {
    if (it->second != next->second) {
      notes.push_back("the bits change between T = " + std::to_string(it->first) +
                      " and T = " + std::to_string(next->first));
    }
  }
  return notes;
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  const Run* main = usable(evidence, "main");
  if (main == nullptr) return outcome;
  const std::int64_t valid = valid_rows(*main);

  for (const Run& run : evidence.runs) {
    if (!compares(evidence, run)) continue;
    for (std::int64_t r = 0; r < valid_rows(run); ++r) {
      const std::int64_t row = case_row(run, r);
      if (row >= valid) continue;
      ++outcome.relevant;
      if (outcome.violation) continue;
      const RowView observed = row_view(run, r);
      const RowView expected = row_view(*main, row);
      const auto difference = first_difference(observed, expected);
      if (!difference) continue;
      outcome.violation = violation_of(
          *difference, kBatchInvariance.id, row,
          " as row " + std::to_string(r) + " of " + std::to_string(num_rows(run)) + " (run " + run.request.id + ")");
      outcome.violation->summary +=
          "; expected is its value as row " + std::to_string(row) + " of " + std::to_string(num_rows(*main));
      outcome.violation->notes.push_back(count_differences(observed, expected));
      for (std::string& note : row_counts(evidence, *main, row)) outcome.violation->notes.push_back(std::move(note));
    }
  }
  return outcome;
}

}  // namespace

constinit const Law kBatchInvariance = {
    .id = "batch_invariance",
    .statement =
        "a row's bits are a function of the row and the constants alone: the same alone, at every place and "
        "among any number of rows",
    .source =
        "sgl-project/sglang#10785, vllm-project/vllm#27433, NVIDIA/TransformerEngine#2986, "
        "thinking-machines-lab/batch_invariant_ops",
    .hazards =
        "rows alone, first rows at T = 16 and 17, permuted rows, rows repeated to T = 17 and 65, sums whose "
        "result depends on the order of additions",
    .min_relevant = 8,
    .not_applicable = not_applicable,
    .check = check,
};

}  // namespace samebits::properties
