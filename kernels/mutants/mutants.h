// Routers with one planted fault each: the embedded CPU router with one of its steps, or one function of its C ABI,
// replaced. Nothing of it is copied: a fault calls the right step and spoils what goes in or comes out.
#pragma once

#include <span>
#include <vector>

#include "kernels/cpu/steps.h"

namespace samebits::mutants {

// Where a fault is one: a published spec whose rule it breaks.
struct Setting {
  const char* path;  // "shape.hidden_size"
  const char* value;
};
struct Router {
  const char* spec;
  const char* layer = nullptr;
  std::vector<Setting> set = {};
};

// Functions that stand for those of the C ABI; null: the embedded router's own.
struct AbiFaults {
  decltype(&samebits_supports) supports = nullptr;
  decltype(&samebits_create) create = nullptr;
  decltype(&samebits_workspace_bytes) workspace_bytes = nullptr;
  decltype(&samebits_workspace_init) workspace_init = nullptr;
  decltype(&samebits_route) route = nullptr;
  decltype(&samebits_route_from_logits) route_from_logits = nullptr;
  decltype(&samebits_destroy) destroy = nullptr;
};

struct Mutant {
  const char* id;         // "M21" as in the list of known faults (docs/mutants.md); "U01" ...: not in that list
  const char* name;       // "bf16_bias"
  const char* fault;      // one sentence: what is wrong with it
  const char* caught_by;  // id of the law that must name it
  const char* source;     // public fault or article section that shipped it; "" where none is known
  Router router;
  cpu::Steps steps;  // what create makes the router of, unless abi has a create of its own
  AbiFaults abi = {};
};

// The steps of the CPU router with one of them replaced; their name follows from the list.
template <class Step>
cpu::Steps with(Step cpu::Steps::*step, Step fault) {
  cpu::Steps steps = cpu::tc256_steps();
  steps.*step = fault;
  return steps;
}

// One list a file of faults; all_mutants() holds them in the order of their ids.
std::vector<Mutant> bias_mutants();
std::vector<Mutant> bookkeeping_mutants();
std::vector<Mutant> determinism_mutants();
std::vector<Mutant> group_mutants();
std::vector<Mutant> hash_mutants();
std::vector<Mutant> layout_mutants();
std::vector<Mutant> mapping_mutants();
std::vector<Mutant> non_finite_mutants();
std::vector<Mutant> padding_mutants();
std::vector<Mutant> precision_mutants();
std::vector<Mutant> renorm_mutants();
std::vector<Mutant> row_mutants();
std::vector<Mutant> scale_mutants();
std::vector<Mutant> semantics_mutants();
std::vector<Mutant> shape_mutants();
std::vector<Mutant> sync_mutants();
std::vector<Mutant> ties_mutants();
// Faults that are not in the list of known ones.
std::vector<Mutant> unlisted_bookkeeping_mutants();
std::vector<Mutant> unlisted_call_mutants();
std::vector<Mutant> unlisted_choice_mutants();
std::vector<Mutant> unlisted_constant_mutants();
std::vector<Mutant> unlisted_gate_mutants();
std::vector<Mutant> unlisted_group_mutants();
std::vector<Mutant> unlisted_history_mutants();
std::vector<Mutant> unlisted_logit_mutants();
std::vector<Mutant> unlisted_logit_call_mutants();
std::vector<Mutant> unlisted_many_row_mutants();
std::vector<Mutant> unlisted_output_mutants();
std::vector<Mutant> unlisted_score_mutants();
std::vector<Mutant> unlisted_sum_mutants();
std::vector<Mutant> unlisted_wanted_mutants();
std::vector<Mutant> unlisted_weight_mutants();

std::span<const Mutant> all_mutants();
const Mutant* find_mutant(const char* name);  // by name or id; nullptr: no such mutant

}  // namespace samebits::mutants
