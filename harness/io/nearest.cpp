#include "harness/io/nearest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <numeric>

namespace samebits::harness {
namespace {

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Levenshtein distance.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string suggest_names(const std::string& name, const std::vector<std::string>& known) {
  std::vector<std::pair<std::size_t, std::string>> near;
  const std::string wanted = lower(name).substr(0, 256);
  for (const std::string& candidate : known) {
    const std::string text = lower(candidate);
    const bool contained = wanted.size() >= 3 && text.find(wanted) != std::string::npos;
    const std::size_t distance = contained ? 0 : edit_distance(wanted, text);
    if (distance <= std::max<std::size_t>(2, wanted.size() / 3)) near.emplace_back(distance, candidate);
  }
  if (near.empty()) return fmt::format("allowed are {}", fmt::join(known, ", "));
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  if (near.size() > 3) near.resize(3);
  std::vector<std::string> names;
  for (const auto& [distance, candidate] : near) names.push_back(candidate);
  return fmt::format("did you mean {}?", fmt::join(names, " or "));
}

}  // namespace samebits::harness
