#include "oracle/second/test/compare/tally.h"

#include <cstdio>

namespace samebits::second {
namespace {

constexpr std::size_t kTexts = 20;

}  // namespace

void Tally::add(const Tally& other) {
  rows += other.rows;
  rows_without_answer += other.rows_without_answer;
  for (const auto& [what, outcomes] : other.counts) {
    for (std::size_t i = 0; i < outcomes.size(); ++i) counts[what][i] += outcomes[i];
  }
  for (const auto& [rule, count] : other.rules) rules[rule] += count;
  for (const std::string& text : other.differences) {
    if (differences.size() < kTexts) differences.push_back(text);
  }
}

std::int64_t Tally::num_different() const {
  std::int64_t different = 0;
  for (const auto& [what, outcomes] : counts) different += outcomes[static_cast<std::size_t>(Outcome::kDifferent)];
  return different;
}

std::string Tally::text() const {
  std::string text = "rows " + std::to_string(rows) + ", of these without an answer " +
                     std::to_string(rows_without_answer) + ", differences " + std::to_string(num_different()) + "\n";
  char line[200];
  std::snprintf(line, sizeof line, "%-28s %12s %12s %12s %12s\n", "compared", "equal", "inside bound", "other inside",
                "different");
  text += line;
  for (const auto& [what, n] : counts) {
    std::snprintf(line, sizeof line, "%-28s %12lld %12lld %12lld %12lld\n", what.c_str(), static_cast<long long>(n[0]),
                  static_cast<long long>(n[1]), static_cast<long long>(n[2]), static_cast<long long>(n[3]));
    text += line;
  }
  text += "rows that met a rule:";
  for (const auto& [rule, count] : rules) text += "  " + rule + " " + std::to_string(count);
  return text + "\n";
}

}  // namespace samebits::second
