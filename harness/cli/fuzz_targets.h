// Which routers a fuzz run asks for.
#pragma once

#include <string>
#include <vector>

#include "harness/cli/options.h"
#include "harness/report/report.h"

namespace samebits::harness {

struct FuzzTarget {
  ChosenSpec spec;
  std::string refused;  // why it cannot be run at all; empty: it can
  SpecRun run;
  bool quarantined = false;  // the ledger kept a case of it from being run
};

// Every built-in spec, and every layer of one that routes by another method. `changes`: --set, for each.
std::vector<FuzzTarget> all_targets(const SpecOptions& changes);
// "all specs (91: 86 run, 5 that cannot be)"
std::string all_specs_text(const std::vector<FuzzTarget>& targets);

}  // namespace samebits::harness
