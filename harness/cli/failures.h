// From the first failure of each law to a small case file and a line that shows it again.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/cli/campaign.h"
#include "harness/cli/progress.h"
#include "properties/shrink.h"

namespace samebits::harness {

struct FailureOptions {
  bool shrink = true;
  std::filesystem::path corpus;        // where new case files go
  std::string program, backend_words;  // of the REPRO line
};

// Shrinks (unless interrupted), writes <law>-<hash>.yaml into the corpus and fills in the REPRO line.
std::vector<Failure> keep_failures(const std::vector<FirstFailure>& first_failures, properties::Subject& subject,
                                   const FailureOptions& options, Progress& progress);

// "stopped after 2000 evaluations" when this limit ended the shrinking; "" otherwise.
std::string evaluation_limit(const properties::ShrinkResult& result, const properties::ShrinkLimits& limits);

// "PROGRAM replay --case FILE --backend B"
std::string repro_line(const std::string& program, const std::filesystem::path& case_file,
                       const std::string& backend_words);

}  // namespace samebits::harness
