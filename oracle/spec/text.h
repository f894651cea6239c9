// Words for messages: quoting, joining, and the nearest known name.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace samebits::oracle::yaml {

// Text fit for one line of a message: control characters are escaped, and what is long is cut with "...".
std::string shown(std::string_view text);

std::string join(const std::vector<std::string>& words, std::string_view separator);

// Levenshtein distance in bytes.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate with the least edit distance to `word`, or "" when none is close enough to be a likely misspelling.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace samebits::oracle::yaml
