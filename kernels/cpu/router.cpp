#include "kernels/cpu/router.h"

#include "kernels/common/abi_struct.h"
#include "kernels/common/constants_check.h"
#include "kernels/common/error.h"
#include "kernels/common/gate_input.h"
#include "kernels/common/hash_table.h"
#include "kernels/common/sizes.h"
#include "kernels/common/spec_check.h"
#include "kernels/cpu/fp_environment.h"
#include "kernels/cpu/score.h"
#include "kernels/cpu/simd.h"

namespace samebits::cpu {
namespace {

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
  const samebits_constants constants = checked_constants(spec, constants_from, SAMEBITS_MEMORY_HOST);

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
