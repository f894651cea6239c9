#include "harness/report/printable.h"

#include <algorithm>

namespace samebits::harness {
namespace {

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0u) == 0x80u;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  std::size_t expected = 0;  // continuation bytes that the sequence at hand still needs
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0u;
    if (is_continuation(text[i])) {
      result += expected > 0 ? text[i] : '?';
      if (expected > 0) --expected;
      continue;
    }
    expected = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : byte >= 0xC2 ? 1 : 0;
    if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {  // C1: U+0080 to U+009F
      result += '?';
      ++i;
      expected = 0;
    } else {
      result += (byte < 0x20 && byte != '\n') || byte == 0x7F ? '?' : text[i];
    }
  }
  return result;
}

std::string printable_line(std::string_view text) {
  std::string line = printable(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

}  // namespace samebits::harness
