// The case files of fixtures/cases (compiled in): inputs on which routers failed, with the right answers.
#pragma once

#include <string_view>
#include <vector>

#include "harness/io/case_file.h"

namespace samebits::harness {

struct BuiltinCase {
  std::string_view name;  // "nan_ahead_in_a_lane"
  std::string_view yaml;
};
const std::vector<BuiltinCase>& builtin_cases();  // generated at configure time from fixtures/cases

struct KnownCase {
  std::string name;
  CaseFile file;
};
// In the order of their names.
std::vector<KnownCase> known_cases();

// Whether two specs ask for the same steps: all fields that a router computes with are equal but the sizes (hidden
// size, experts, k, groups, vocabulary, numbers of shared and zero experts) and the scaling factor.
bool same_method(const oracle::RouterSpec& a, const oracle::RouterSpec& b);

}  // namespace samebits::harness
