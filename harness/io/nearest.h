// Suggestions for a name that does not exist.
#pragma once

#include <string>
#include <vector>

namespace samebits::harness {

// "did you mean glm-5.3-flash or glm-5.2?" for the (at most three) nearest names; all names when none is near.
std::string suggest_names(const std::string& name, const std::vector<std::string>& known);

}  // namespace samebits::harness
