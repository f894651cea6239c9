// What the parts of the plan share: the rows of the case, and a stream of choices.
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "properties/run.h"

namespace samebits::properties {

// Sebastiano Vigna's splitmix64: a fixed stream of choices for a case, independent of the data.
class Choices {
 public:
  explicit Choices(std::uint64_t key) : state_(key) {}
  std::int64_t below(std::int64_t bound) {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<std::int64_t>((z ^ (z >> 31)) % static_cast<std::uint64_t>(bound));
  }

 private:
  std::uint64_t state_;
};

// Two patterns that cannot both be a right answer; equal halves, so that a 16-bit output shows them too.
inline constexpr std::uint32_t kPoisonA = 0xffffffffu;  // -1, NaN
inline constexpr std::uint32_t kPoisonB = 0x5a5a5a5au;  // 1515870810, 1.5e16

inline std::vector<std::int64_t> first_rows(std::int64_t count) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), std::int64_t{0});
  return rows;
}

// Appends the special runs (run.h) to a plan that begins with "main". valid: its rows before the padding, at least one.
void plan_special_runs(const Case& c, const Claims& claims, std::int64_t valid, std::vector<RunRequest>& plan);
// Appends the runs of many rows, for a router whose rows do not depend on each other.
void plan_wide_runs(const Case& c, const Claims& claims, std::int64_t valid, std::vector<RunRequest>& plan);

// Whether rows of the case have a class, so that an input of the call holds it.
bool has_row_class(const Case& c);

}  // namespace samebits::properties
