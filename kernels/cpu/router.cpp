#include "kernels/cpu/router.h"

#include "kernels/cpu/abi_struct.h"
#include "kernels/cpu/error.h"
#include "kernels/cpu/fp_environment.h"
#include "kernels/cpu/score.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/spec_check.h"
#include "kernels/cpu/tensor_check.h"

namespace samebits::cpu {
namespace {

// A bias vector must be there exactly when the spec has one.
void check_bias(const samebits_tensor& bias, const char* name, std::int32_t dtype, const samebits_router_spec& spec) {
  if (dtype == SAMEBITS_DTYPE_NONE) {
    if (bias.data != nullptr) {
      fail_invalid(std::string(name) + ": given, but " + name +
                   "_dtype of the spec is 0 (none); leave it out or name its dtype");
    }
    return;
  }
  check_tensor(bias, name, 1, spec.num_experts, {SAMEBITS_FP32});
}

void refuse(const samebits_tensor& tensor, const char* name) {
  if (tensor.data != nullptr)
    fail_invalid(std::string(name) + ": given, but no spec that this router supports reads it");
}

samebits_constants checked_constants(const samebits_router_spec& spec, const samebits_constants* from) {
  const samebits_constants constants = read_struct(from, "constants");
  if (constants.memory != SAMEBITS_MEMORY_HOST) {
    fail_invalid("constants.memory: found " + std::to_string(constants.memory) + ", allowed 1 (host)");
  }
  if (constants.gate_weight.data != nullptr) {
    if (spec.hidden_size < 1) fail_invalid("hidden_size: found 0, allowed 1 or more with a gate weight");
    check_tensor(constants.gate_weight, "gate_weight", spec.num_experts, spec.hidden_size,
                 {SAMEBITS_BF16, SAMEBITS_FP32});
  }
  // Given logits are finished: without a gate weight nobody reads the linear bias.
  if (constants.gate_weight.data != nullptr || constants.linear_bias.data != nullptr) {
    check_bias(constants.linear_bias, "linear_bias", spec.linear_bias_dtype, spec);
  }
  check_bias(constants.selection_bias, "selection_bias", spec.selection_bias_dtype, spec);
  refuse(constants.input_scale_vector, "input_scale_vector");
  refuse(constants.per_expert_scale, "per_expert_scale");
  refuse(constants.global_scale, "global_scale");
  refuse(constants.hash_table, "hash_table");
  return constants;
}

}  // namespace

std::unique_ptr<samebits_router> make_router(const Steps& steps, const samebits_router_spec* spec_from,
                                             const samebits_constants* constants_from) {
  const DefaultFpEnvironment environment;
  if (!arithmetic_is_right()) {
    throw Error(
        SAMEBITS_INTERNAL_ERROR,
        "this build contracts a * b + c or splits fused multiply-adds; compile with -ffp-contract=off and without "
        "-ffast-math");
  }
  const samebits_router_spec spec = read_struct(spec_from, "spec");
  check_spec(spec);
  const samebits_constants constants = checked_constants(spec, constants_from);

  auto router = std::make_unique<samebits_router>();
  router->steps = &steps;
  router->constants.spec = spec;
  const auto num_experts = static_cast<std::size_t>(spec.num_experts);
  if (constants.gate_weight.data != nullptr) {
    router->gate_weight = std::make_unique<GateWeight>(constants.gate_weight);
    router->constants.gate_weight = router->gate_weight.get();
  }
  if (constants.linear_bias.data != nullptr) {
    router->linear_bias.resize(num_experts);
    round_bias(spec.linear_bias_dtype, static_cast<const float*>(constants.linear_bias.data), spec.num_experts,
               router->linear_bias.data());
    router->constants.linear_bias = router->linear_bias.data();
  }
  if (constants.selection_bias.data != nullptr) {
    router->selection_bias.resize(num_experts);
    steps.prepare_bias(spec, static_cast<const float*>(constants.selection_bias.data), router->selection_bias.data());
    router->constants.selection_bias = router->selection_bias.data();
  }
  return router;
}

}  // namespace samebits::cpu
