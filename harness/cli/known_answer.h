// The `expected` block of a case file as a law of its own.
#pragma once

#include <string>
#include <vector>

#include "harness/io/case_file.h"
#include "properties/law.h"

namespace samebits::harness {

// id "known_answer"; judged by check_known_answer, so its `check` must not be called.
const properties::Law& known_answer_law();

// Every law that a command judges, by name: all_laws(), then known_answer.
std::vector<std::string> law_names();

// The run "main" against the answer that the file states. A run that failed is left to the other laws.
properties::LawOutcome check_known_answer(const KnownAnswer& expected, const properties::Claims& claims,
                                          const std::vector<properties::Run>& runs);

}  // namespace samebits::harness
