// One recorded run against the oracle.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "harness/witness/reading.h"
#include "oracle/spec/spec_yaml.h"

namespace samebits::harness {

// What a router does beyond its spec: fields that it has otherwise, and roundings. Differences are cumulative.
struct Difference {
  std::string kind;
  std::vector<oracle::Assignment> set;
  Roundings roundings;
};

struct RecordedRun {
  std::string name, dtype;
  // safetensors: the tensors of a case file, router_logits (of the linear layer of the gate), topk_ids, topk_weights,
  // and prepared_input where the spec prepares the row.
  std::filesystem::path file;
  std::string spec;
  oracle::Resolution resolution;
  std::vector<Difference> differences;
  int input_roundings = 0;  // roundings to bf16 of a prepared row
  bool try_wrong_rules = true;
};

struct Comparison {
  std::int64_t rows = 0;
  std::int64_t decided = 0;                         // no logits within the declared bound lead to another set
  std::int64_t equal_sets = 0;                      // the set that the oracle chooses in double precision
  std::int64_t inside_bound = 0;                    // another set, which logits within the bound lead to
  std::int64_t unexplained = 0;                     // neither, or a weight or a logit out of bounds
  std::map<std::string, std::int64_t> explained;    // rows, by the kind of difference that explains them
  double largest_weight_difference = 0.0;           // relative to the oracle in double, where the sets are equal
  std::int64_t decided_by_logits = 0;               // rows that the router's own logits decide
  std::int64_t inputs_outside = 0;                  // values of prepared rows that are not those of the spec
  std::map<std::string, std::int64_t> wrong_rules;  // rows that contradict them
  std::int64_t unnoticed = 0;                       // wrong rules that too few rows contradict
  std::vector<std::string> examples;                // of what is unexplained, a few

  void operator+=(const Comparison& other);
};

// Throws when the file or the spec cannot be read, or the tensors are not those that the spec asks for.
Comparison compare(const RecordedRun& run);

}  // namespace samebits::harness
