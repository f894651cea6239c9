// Known mistakes of routers, as edits of what one row is routed from.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "oracle/reference/answer.h"
#include "oracle/spec/router_spec.h"

namespace samebits::properties {

// What one row is routed from; a mistake changes a copy of it.
struct Setup {
  oracle::RouterSpec spec;
  const oracle::RouterInputs* inputs;
  std::int64_t row;
  std::vector<float> logits;            // [G] finished
  std::vector<float> bias;              // [R] of the row's class, or empty
  std::vector<float> per_expert_scale;  // [G] or empty
  std::optional<float> global_scale;
  std::vector<std::int32_t> table_ids;  // [k] of the row's token, or empty
  bool routable;

  oracle::RowAnswer<float> route() const;
  // Logits as `gate_spec` computes them; false where logits were given.
  bool recompute_logits(const oracle::RouterSpec& gate_spec);
};

// `logits` [G] are the finished ones of this row of the case.
Setup setup_of(const oracle::RouterSpec& spec, const oracle::RouterInputs& inputs, std::int64_t row,
               std::span<const float> logits);

struct Mistake {
  const char* text;
  bool (*make)(Setup& setup);  // false: it would change nothing here
  // What cannot be said as another setup: changes the answer of the changed setup. May be null.
  void (*then)(const Setup& setup, oracle::RowAnswer<float>& answer) = nullptr;
};

// Of bias, score, groups and weights; and of every other feature.
std::span<const Mistake> general_mistakes();
std::span<const Mistake> feature_mistakes();

// The answer if `ids` (ranked experts, in slot order) had been chosen.
oracle::RowAnswer<float> route_chosen(const Setup& setup, const std::vector<std::int32_t>& ids);

}  // namespace samebits::properties
