// Lines of the console report.
#pragma once

#include <string>
#include <vector>

#include "harness/report/report.h"

namespace samebits::harness {

using Lines = std::vector<std::string>;

// A terminal's lines have at most this many bytes.
inline constexpr std::size_t kWidth = 120;

// One text. For a file it is one line, whole. On a terminal it is wrapped between words, the lines after the first
// indented; what exceeds `most` lines is cut, and the cut is marked.
Lines fitted(const std::string& text, Output output, std::size_t indent = 2, std::size_t most = 6);

}  // namespace samebits::harness
