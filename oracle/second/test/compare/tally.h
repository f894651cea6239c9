// What a comparison found.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace samebits::second {

enum class Outcome {
  kEqual,        // the same bits; or within a bound that leaves one answer
  kUndecided,    // the bound leaves several answers, and the first oracle gives the same as the second
  kOtherInside,  // the same, and the first oracle gives another one of them
  kDifferent,    // other bits, or outside of the bound
};

struct Tally {
  std::int64_t rows = 0;
  std::int64_t rows_without_answer = 0;
  // By what was compared: "bits: keys", "published: set", ...
  std::map<std::string, std::array<std::int64_t, 4>> counts;
  std::map<std::string, std::int64_t> rules;  // rows that met a special rule of the contract
  std::vector<std::string> differences;       // texts of the first few

  void add(const std::string& what, Outcome outcome) { ++counts[what][static_cast<std::size_t>(outcome)]; }
  void add(const Tally& other);
  std::int64_t num_different() const;
  std::string text() const;
};

}  // namespace samebits::second
