// The validity rules of a RouterSpec, and what this program can run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "oracle/spec/router_spec.h"

namespace samebits::oracle {

struct Problem {
  std::string path;     // dotted path of the field to change
  std::string message;  // value found, values allowed, what to do
};

// Rules that hold for any meaningful spec (1 <= k <= E, n_group | E, after_topk implies rank_by logit, ...).
std::vector<Problem> find_problems(const RouterSpec& spec);

// A reason when a valid spec cannot be run: a refusal by design (capacity: batch_dependent), or "not implemented: ...".
// nullopt: reference, emulation and laws all cover it.
std::optional<std::string> unsupported_reason(const RouterSpec& spec);

}  // namespace samebits::oracle
