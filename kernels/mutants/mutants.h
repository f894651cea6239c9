// Routers with one planted fault each; every one is the embedded CPU router with one step replaced.
#pragma once

#include <span>

#include "kernels/cpu/steps.h"

namespace samebits::mutants {

struct Mutant {
  const char* name;       // "row_dependent_split"
  const char* fault;      // one sentence: what is wrong with it
  const char* caught_by;  // id of the law that must name it
  const char* source;     // public fault or article section that shipped it
  const cpu::Steps* steps;
};

std::span<const Mutant> all_mutants();
const Mutant* find_mutant(const char* name);  // nullptr: no such mutant

}  // namespace samebits::mutants
