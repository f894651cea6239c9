// explain: what a router returned for one row, and which known mistake returns the same.
#pragma once

#include <optional>
#include <vector>

#include "harness/cli/explain_contract.h"
#include "properties/run.h"

namespace samebits::harness {

// The row as the first run returned it that has another answer than the contract, else as the first run did. nullopt:
// no run returned it.
std::optional<ObservedRow> observe(const ExplainedRow& row, std::int64_t case_row,
                                   const std::vector<properties::Run>& runs);

// Slot by slot beside the contract's answer, and the first logit that differs.
void print_observed(const ExplainedRow& row, const ObservedRow& observed, const std::string& router, bool sorted_slots);

// The forms in which the runs returned the row, where there are several: which runs, by which sum of the logits, and
// whether the number of rows decides.
void print_runs(const ExplainedRow& row, std::int64_t case_row, const std::vector<properties::Run>& runs,
                const std::string& router);

// Known mistakes: those that would change this row, with what they give, the ones that `observed` (may be null) shows
// first; the others in one line. sorted_slots: the router promises the contract's order of slots.
void print_alternatives(const ExplainedRow& row, const ObservedRow* observed, bool sorted_slots);

}  // namespace samebits::harness
