#include "harness/report/lines.h"

#include <algorithm>

#include "harness/report/printable.h"

namespace samebits::harness {

Lines fitted(const std::string& text, Output output, std::size_t indent, std::size_t most) {
  std::string rest = printable_line(text);
  Lines lines;
  while (output == Output::kTerminal && rest.size() > kWidth) {
    if (lines.size() + 1 == most) {
      rest = rest.substr(0, kWidth - 3) + "...";
      break;
    }
    // A word longer than the line is broken where the line ends, but not inside a UTF-8 sequence.
    std::size_t end = rest.rfind(' ', kWidth);
    if (end == std::string::npos || end <= 2 * indent) {
      for (end = kWidth; (static_cast<unsigned char>(rest[end]) & 0xC0u) == 0x80u && end > kWidth - 4;) --end;
    }
    lines.push_back(rest.substr(0, end));
    const std::size_t next = std::min(rest.find_first_not_of(' ', end), rest.size());
    rest = std::string(indent, ' ') + rest.substr(next);
  }
  lines.push_back(std::move(rest));
  return lines;
}

}  // namespace samebits::harness
