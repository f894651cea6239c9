// How a recorded router is read: a spec, and roundings that it has no field for.
#pragma once

#include <string>
#include <vector>

#include "oracle/spec/router_spec.h"

namespace samebits::harness {

// Roundings to bf16 for which a spec has no field, each a factor within 1 +- 2^-8.
struct Roundings {
  int score = 0;      // before the last one of a score
  int key = 0;        // of the rank key
  int group = 0;      // of the group score
  int threshold = 0;  // of what sparsemixer compares with its threshold, the threshold included
  int weight = 0;     // of the weight
  int log = 0;        // of each logarithm from which a weight follows
};

struct Reading {
  oracle::RouterSpec spec;
  Roundings roundings;
};

struct WrongReading {
  std::string rule;
  Reading reading;
};
// Readings that a correct comparison must refuse: each leaves out or changes one step after the gate's input.
std::vector<WrongReading> wrong_readings(const Reading& right);
// The same for the steps that prepare the gate's input; empty for a spec without any.
std::vector<WrongReading> wrong_preparations(const Reading& right);

}  // namespace samebits::harness
