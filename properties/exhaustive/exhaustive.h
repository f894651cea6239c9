// Sweeps that leave nothing to luck: each enumerates every input of one kind, in batches of rows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "properties/case.h"
#include "properties/claims.h"
#include "properties/run.h"

namespace samebits::properties {

// A case of an enumeration, and how many of its items it holds. Its inputs are explicit tensors.
struct SweepBatch {
  Case c;
  std::int64_t items = 0;
  // Blocks of the padded form that the runs ask for; empty: one size, as in any run.
  std::vector<std::int32_t> block_sizes;
};

// Lazy: a batch is made when it is asked for, and none is kept.
class SweepStream {
 public:
  virtual ~SweepStream() = default;
  // All items, by a closed formula; those that the batches hold, and those that were refused.
  virtual std::int64_t size() const = 0;
  virtual std::optional<SweepBatch> next() = 0;
  // Of the batches so far: combinations that the rules of a spec refuse.
  virtual std::int64_t refused() const { return 0; }
};

struct ExhaustiveSweep {
  const char* name;
  const char* item;       // what is counted: "rows", "calls", "specs"
  const char* statement;  // what is enumerated
  const char* law;        // that it is made for
  bool takes_spec;        // enumerates for the shape and rules of a given spec
  std::unique_ptr<SweepStream> (*open)(const oracle::RouterSpec& spec);
};

std::span<const ExhaustiveSweep> exhaustive_sweeps();
const ExhaustiveSweep* find_exhaustive(const std::string& name);  // nullptr: there is none

// "main", "repeat" (other poison) and, where the router claims batch invariance, "permuted"; for each further block
// size one more.
std::vector<RunRequest> exhaustive_runs(const SweepBatch& batch, const Claims& claims);

// The same case with one of its rows alone, of a case with explicit tensors.
Case only_row(const Case& c, std::int64_t row);

}  // namespace samebits::properties
