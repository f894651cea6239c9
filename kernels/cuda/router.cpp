#include "kernels/cuda/router.h"

#include "kernels/common/abi_struct.h"
#include "kernels/common/gate_input.h"
#include "kernels/common/sizes.h"
#include "kernels/common/spec_check.h"
#include "kernels/cuda/force_form.h"
#include "kernels/cuda/host_constants.h"
#include "kernels/cuda/limits.h"
#include "kernels/logits/pack.h"
#include "kernels/logits/prefill.h"

namespace samebits::cuda {

RouterView sizes_of(const samebits_router_spec& spec) {
  RouterView view{};
  view.spec = spec;
  view.hidden_size = spec.hidden_size;
  view.padded_hidden_size = static_cast<std::int32_t>(padded_hidden_size(spec.hidden_size));
  view.num_chunks = static_cast<std::int32_t>(num_chunks(spec.hidden_size));
  view.ranked_experts = static_cast<std::int32_t>(ranked_experts(spec));
  view.gate_rows = static_cast<std::int32_t>(gate_rows(spec));
  view.padded_gate_rows = static_cast<std::int32_t>(round_up(gate_rows(spec), kGateRowPad));
  view.top_k = spec.top_k;
  view.columns = static_cast<std::int32_t>(topk_columns(spec));
  view.input_scale = input_scale_factor(spec);
  return view;
}

void make_router(const samebits_router_spec* spec_from, const samebits_constants* constants_from, Router& router) {
  const samebits_router_spec spec = read_struct(spec_from, "spec");
  check_spec(spec);
  check_limits(spec);
  forced_form();  // a wrong SAMEBITS_CUDA_FORM is found here rather than in the first call

  check(cudaGetDevice(&router.device), "cudaGetDevice");
  router.tensor_cores = test_tensor_cores();
  const HostConstants host = read_constants(spec, constants_from);

  RouterView& view = router.view;
  view = sizes_of(spec);
  const auto upload = [&](const auto& values) {
    router.arrays.emplace_back(values);
    return router.arrays.back().template as<typename std::decay_t<decltype(values)>::value_type>();
  };
  view.num_parts = host.num_parts;
  if (host.num_parts > 0) {
    view.weight_rows = upload(host.weight_rows);
    view.weight_fragments =
        upload(pack_fragments(host.weight_rows, host.num_parts, view.padded_gate_rows, view.padded_hidden_size));
    view.weight_tiles =
        upload(pack_tiles(host.weight_rows, host.num_parts, view.padded_gate_rows, view.padded_hidden_size));
  }
  view.linear_bias = upload(host.linear_bias);
  view.selection_bias = upload(host.selection_bias);
  view.input_scale_vector = upload(host.input_scale_vector);
  view.per_expert_scale = upload(host.per_expert_scale);
  view.global_scale = upload(host.global_scale);
  view.hash_table = upload(host.hash_table);
}

}  // namespace samebits::cuda
