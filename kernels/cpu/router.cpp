#include "kernels/cpu/router.h"

#include "kernels/cpu/abi_struct.h"
#include "kernels/cpu/error.h"
#include "kernels/cpu/fp_environment.h"
#include "kernels/cpu/hash_table.h"
#include "kernels/cpu/prepare.h"
#include "kernels/cpu/score.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/sizes.h"
#include "kernels/cpu/spec_check.h"
#include "kernels/cpu/tensor_check.h"

namespace samebits::cpu {
namespace {

// A tensor must be there exactly when the spec asks for it. `unless` says what the spec has where it does not.
void check_wanted(const samebits_tensor& tensor, const char* name, bool wanted, const char* unless, std::int64_t rows,
                  std::int64_t cols) {
  if (wanted) return check_tensor(tensor, name, rows, cols, {SAMEBITS_FP32});
  if (tensor.data != nullptr)
    fail_invalid(std::string(name) + ": given, but " + unless + "; leave it out or change it");
}

samebits_constants checked_constants(const samebits_router_spec& spec, const samebits_constants* from) {
  const samebits_constants constants = read_struct(from, "constants");
  if (constants.memory != SAMEBITS_MEMORY_HOST) {
    fail_invalid("constants.memory: found " + std::to_string(constants.memory) + ", allowed 1 (host)");
  }
  const std::int64_t num_rows = gate_rows(spec);
  const bool has_gate = constants.gate_weight.data != nullptr;
  if (has_gate) {
    if (spec.hidden_size < 1) fail_invalid("hidden_size: found 0, allowed 1 or more with a gate weight");
    check_tensor(constants.gate_weight, "gate_weight", num_rows, spec.hidden_size, {SAMEBITS_BF16, SAMEBITS_FP32});
  }
  // Given logits are finished: without a gate weight nobody reads the linear bias and the input scale.
  if (has_gate || constants.linear_bias.data != nullptr) {
    check_wanted(constants.linear_bias, "linear_bias", spec.linear_bias_dtype != SAMEBITS_DTYPE_NONE,
                 "linear_bias_dtype of the spec is 0 (none)", 1, num_rows);
  }
  if (has_gate || constants.input_scale_vector.data != nullptr) {
    check_wanted(constants.input_scale_vector, "input_scale_vector", spec.input_scale_vector != 0,
                 "input_scale_vector of the spec is 0 (no)", 1, spec.hidden_size);
  }
  check_wanted(constants.selection_bias, "selection_bias", spec.selection_bias_dtype != SAMEBITS_DTYPE_NONE,
               "selection_bias_dtype of the spec is 0 (none)", spec.num_bias_variants, ranked_experts(spec));
  check_wanted(constants.per_expert_scale, "per_expert_scale", spec.per_expert_scale != 0,
               "per_expert_scale of the spec is 0 (no)", 1, num_rows);
  check_wanted(constants.global_scale, "global_scale", spec.global_scale != 0, "global_scale of the spec is 0 (no)", 1,
               1);
  if (spec.selection_method != SAMEBITS_SELECT_HASH_TABLE && constants.hash_table.data != nullptr) {
    fail_invalid(
        "hash_table: given, but selection_method of the spec is not 2 (hash_table); leave it out or change it");
  }
  return constants;
}

// The values of a vector, or null for one that is absent.
const float* copy_vector(const samebits_tensor& tensor, std::vector<float>& to) {
  if (tensor.data == nullptr) return nullptr;
  const auto* values = static_cast<const float*>(tensor.data);
  to.assign(values, values + tensor.cols);
  return to.data();
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
  RouterConstants& known = router->constants;
  known.spec = spec;
  known.input_scale = input_scale_factor(spec);
  if (constants.gate_weight.data != nullptr) {
    router->gate_weight = std::make_unique<GateWeight>(constants.gate_weight);
    known.gate_weight = router->gate_weight.get();
  }
  if (constants.linear_bias.data != nullptr) {
    known.linear_bias = copy_vector(constants.linear_bias, router->linear_bias);
    round_bias(spec.linear_bias_dtype, known.linear_bias, gate_rows(spec), router->linear_bias.data());
  }
  if (constants.selection_bias.data != nullptr) {
    const std::int64_t num_ranked = ranked_experts(spec);
    router->selection_bias.resize(static_cast<std::size_t>(spec.num_bias_variants * num_ranked));
    for (std::int64_t v = 0; v < spec.num_bias_variants; ++v) {
      steps.prepare_bias(
          spec, static_cast<const float*>(constants.selection_bias.data) + v * constants.selection_bias.row_stride,
          router->selection_bias.data() + v * num_ranked);
    }
    known.selection_bias = router->selection_bias.data();
  }
  known.input_scale_vector = copy_vector(constants.input_scale_vector, router->input_scale_vector);
  known.per_expert_scale = copy_vector(constants.per_expert_scale, router->per_expert_scale);
  known.global_scale = copy_vector(constants.global_scale, router->global_scale);
  if (spec.selection_method == SAMEBITS_SELECT_HASH_TABLE) {
    router->hash_table = read_hash_table(spec, constants.hash_table);
    known.hash_table = router->hash_table.data();
  }
  return router;
}

}  // namespace samebits::cpu
