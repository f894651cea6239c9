#include "harness/io/known_cases.h"

#include <algorithm>

#include "oracle/spec/spec_yaml.h"

namespace samebits::harness {
namespace {

// What is left of a spec without sizes, and without what only describes the published model.
oracle::RouterSpec method_of(const oracle::RouterSpec& spec) {
  oracle::RouterSpec method;
  method.gate = spec.gate;
  method.gate.gemm_dtype = {};
  method.logits = spec.logits;
  method.score = spec.score;
  method.selection = spec.selection;
  const bool groups = spec.selection.n_group > 1;
  method.selection.n_group = groups ? 2 : 1;
  method.selection.topk_group = 1;
  if (!groups) {
    method.selection.group_score = {};
    method.selection.group_mask = {};
    method.selection.topk_scope = {};
  }
  // One row of biases or several: their names play no part.
  method.selection.bias_variants.assign(spec.selection.bias_variants.size() > 1 ? 2 : 1, "class");
  method.weights = spec.weights;
  method.weights.routed_scaling_factor = spec.weights.routed_scaling_factor == 1.0 ? 1.0 : 2.0;
  method.special.shared_mode = oracle::shared_in_gate(spec) > 0 ? spec.special.shared_mode : oracle::SharedMode{};
  method.special.zero_type = spec.special.zero_type;
  method.sparsemixer_jitter_eps = spec.sparsemixer_jitter_eps;
  return method;
}

}  // namespace

std::vector<KnownCase> known_cases() {
  std::vector<KnownCase> cases;
  for (const BuiltinCase& builtin : builtin_cases()) {
    const std::string name(builtin.name);
    cases.push_back({name, read_case_text(std::string(builtin.yaml), name + ".yaml")});
  }
  std::sort(cases.begin(), cases.end(), [](const KnownCase& a, const KnownCase& b) { return a.name < b.name; });
  return cases;
}

bool same_method(const oracle::RouterSpec& a, const oracle::RouterSpec& b) {
  return method_of(a) == method_of(b);
}

}  // namespace samebits::harness
