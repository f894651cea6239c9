// Lines of the console report.
#pragma once

#include <string>
#include <vector>

#include "harness/report/printable.h"

namespace samebits::harness {

using Lines = std::vector<std::string>;

// One line of at most `most` bytes; a cut is marked.
inline std::string clipped(const std::string& text, std::size_t most) {
  const std::string line = printable_line(text);
  return line.size() <= most ? line : line.substr(0, most - 3) + "...";
}

}  // namespace samebits::harness
