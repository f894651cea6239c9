// Planted faults that no CPU router can have: those of the oracle itself and those in CUDA code.
#pragma once

#include <string>
#include <vector>

namespace samebits::harness {

struct MutantElsewhere {
  std::string id;  // "M93"; "" where the list of known faults has no number of its own for it
  std::string name, fault, caught_by;
  std::string where;  // which command or test shows that it is caught
};
std::vector<MutantElsewhere> mutants_elsewhere();

// kernels/mutants/cuda_mutants.txt, as it was at configure time.
extern const char* const kCudaMutants;

}  // namespace samebits::harness
