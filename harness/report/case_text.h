// A case as a few lines for people: sizes, and its numbers where they are few.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/case.h"

namespace samebits::harness {

// "T=2 E=8 k=2 H=64, from hidden states"
std::string case_sizes(const properties::Case& c);

struct CaseNumbers {
  std::int64_t count = 0;          // numbers that are not +0, of all tensors
  std::vector<std::string> lines;  // one a tensor: "hidden_states [1, 4]: (0,1)=1 (0,3)=-2"; empty past `most`
};
CaseNumbers case_numbers(const properties::Case& c, std::int64_t most);

// "12,345"
std::string grouped(std::int64_t number);

}  // namespace samebits::harness
