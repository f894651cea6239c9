// A router of the CPU backend: its constants and its steps.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/common/call_check.h"
#include "kernels/common/error_texts.h"
#include "kernels/cpu/gate_weight.h"
#include "kernels/cpu/steps.h"

namespace samebits::cpu {

// Throws Error for an unsupported spec or constants that do not fit it.
std::unique_ptr<samebits_router> make_router(const Steps& steps, const samebits_router_spec* spec,
                                             const samebits_constants* constants);

// Workspace of a call with up to max_tokens rows, and its preparation.
std::size_t workspace_bytes(const samebits_router& router, std::int64_t max_tokens);
void init_workspace(const samebits_router& router, void* workspace, std::size_t bytes);

// One call: checks every argument, then runs the steps. Throws Error; outputs are untouched then.
void route(const samebits_router& router, Source source, const samebits_inputs* inputs, samebits_outputs* outputs,
           void* workspace);

}  // namespace samebits::cpu

struct samebits_router {
  const samebits::cpu::Steps* steps = nullptr;
  samebits::cpu::RouterConstants constants{};
  std::unique_ptr<samebits::cpu::GateWeight> gate_weight;
  std::vector<float> linear_bias, selection_bias, input_scale_vector, per_expert_scale, global_scale;
  std::vector<std::int32_t> hash_table;
  mutable samebits::ErrorTexts errors;
};
