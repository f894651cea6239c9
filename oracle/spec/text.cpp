#include "oracle/spec/text.h"

#include <algorithm>
#include <cstdint>

namespace samebits::oracle::yaml {
namespace {

constexpr std::size_t kLongestShown = 80;

bool starts_character(char c) {
  return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
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

std::string shown(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string line;
  for (const char c : text) {
    if (line.size() >= kLongestShown && starts_character(c)) return line + "...";
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      line += c;
    } else {
      line += "\\x";
      line += kHex[byte >> 4];
      line += kHex[byte & 15];
    }
  }
  return line;
}

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += separator;
    text += words[i];
  }
  return text;
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.size() > kLongestShown) return "";
  std::string best;
  std::size_t best_distance = word.size() / 3 + 2;  // a third of the letters and one more may differ
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace samebits::oracle::yaml
