#include "harness/io/nearest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "oracle/spec/text.h"

namespace samebits::harness {
namespace {

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

std::string suggest_names(const std::string& name, const std::vector<std::string>& known) {
  std::vector<std::pair<std::size_t, std::string>> near;
  const std::string wanted = lower(name).substr(0, 256);
  for (const std::string& candidate : known) {
    const std::string text = lower(candidate);
    const bool contained = wanted.size() >= 3 && text.find(wanted) != std::string::npos;
    const std::size_t distance = contained ? 0 : oracle::yaml::edit_distance(wanted, text);
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
