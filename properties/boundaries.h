// At which row counts an unknown router changes a row's bits: its dispatch boundaries, found by bisection.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "properties/run.h"

namespace samebits::properties {

// Consecutive row counts, or places in one run, at which the row has one and the same bits.
struct BitRange {
  std::int64_t first = 0, last = 0;
  std::int64_t kind = 0;  // 0: the bits of the row alone; 1, 2, ...: others, in the order in which they were met
  bool operator==(const BitRange&) const = default;
};

struct Boundaries {
  std::int64_t row = 0;          // of the case
  std::int64_t limit = 0;        // the largest row count that was run
  std::vector<BitRange> counts;  // 1 .. limit, of the row in the first place
  std::int64_t place_count = 0;  // the row count of `places`
  std::vector<BitRange> places;  // 0 .. place_count - 1, where they differ within one run; else empty
  std::int64_t runs = 0;
  std::set<std::int64_t> row_counts;  // that were run
  std::string failure;                // a run that did not end well; it ended the search
  bool found() const { return counts.size() > 1 || !places.empty(); }
};

// Every run holds copies of the one row, so nothing but their number and their places differs. Row counts that are run:
// all up to 33, then the powers of two with both neighbours and the middles between them, up to `limit` (or what the
// router takes); each change between two of them is bisected. A change that is taken back before the next of them is
// not seen.
Boundaries find_boundaries(Subject& subject, const Case& c, const oracle::RouterInputs& inputs, std::int64_t row,
                           std::int64_t limit);

// "row 3: rows agree for T <= 16, differ from 17", then what more there is to say.
std::vector<std::string> boundary_notes(const Boundaries& found);

}  // namespace samebits::properties
