// The three kinds of `samebits sweep`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/cli/campaign.h"
#include "harness/cli/options.h"

namespace samebits::harness {

struct SweepOptions {
  SpecOptions spec;
  BackendChoice backend;
  std::vector<std::string> laws;  // empty: those that the runs of the sweep can show
  std::uint64_t seed = 1;
  std::int64_t rows = 8193;
  std::string exhaustive;  // name of an exhaustive sweep, or "all"
  bool boundaries = false;
  std::string corpus = "samebits-failures", json, progress = "auto";
};

// One pool of rows at every row count at which routers change their kernels.
int sweep_row_counts(const SweepOptions& options, const std::string& program);
// The enumerations of properties/exhaustive.
int sweep_exhaustive(const SweepOptions& options, const std::string& program);
// The row counts at which this router changes a row's bits.
int sweep_boundaries(const SweepOptions& options, const std::string& program);

// Command, spec, backend, claims and seed of a report.
Report sweep_header(const SweepOptions& options, const ChosenSpec& spec, const properties::Subject& subject);

}  // namespace samebits::harness
