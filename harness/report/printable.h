// Text of other programs, made safe for a terminal. JSON does not need it: there control characters are escaped.
#pragma once

#include <string>
#include <string_view>

namespace samebits::harness {

// Control characters (C0 without newline, DEL, and C1 as UTF-8 or as bytes of no UTF-8 sequence) become '?'.
std::string printable(std::string_view text);
// As printable; a newline becomes a space, so that foreign text cannot begin a line of its own.
std::string printable_line(std::string_view text);

}  // namespace samebits::harness
