#include <algorithm>
#include <set>

#include "harness/bench/bench.h"

namespace samebits::harness {
namespace {

using NameOf = std::function<std::string(std::int64_t)>;

// Adds the boundaries between two row counts; equal names at both are taken to mean none.
void add_boundaries(std::int64_t low, const std::string& low_name, std::int64_t high, const std::string& high_name,
                    const NameOf& name_of, std::set<std::int64_t>& rows) {
  if (low_name == high_name) return;
  if (high - low == 1) {
    for (const std::int64_t count : {low - 1, low, high, high + 1}) rows.insert(count);
    return;
  }
  const std::int64_t middle = low + (high - low) / 2;
  const std::string middle_name = name_of(middle);
  add_boundaries(low, low_name, middle, middle_name, name_of, rows);
  add_boundaries(middle, middle_name, high, high_name, name_of, rows);
}

}  // namespace

std::vector<std::int64_t> with_boundaries(std::vector<std::int64_t> rows, const NameOf& name_of) {
  std::sort(rows.begin(), rows.end());
  std::set<std::int64_t> all(rows.begin(), rows.end());
  std::string name = rows.empty() ? "" : name_of(rows.front());
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const std::string next = name_of(rows[i]);
    add_boundaries(rows[i - 1], name, rows[i], next, name_of, all);
    name = next;
  }
  if (!rows.empty()) {  // nothing outside of what was asked for
    all.erase(all.begin(), all.lower_bound(rows.front()));
    all.erase(all.upper_bound(rows.back()), all.end());
  }
  return {all.begin(), all.end()};
}

}  // namespace samebits::harness
