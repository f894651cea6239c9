// Time of the embedded CPU router on the shape of GLM-5.3-Flash: E = 288, H = 4096, k = 8, sigmoid and a bias.
//
// `route` is that router; `route_prepared_input` is the same with an input norm and a scale vector, as Gemma-4 has
// them. Argument: number of rows. Counters: rows per second, and nanoseconds of one core per k16 step (a full row has
// E * H / 16 = 73,728 of them), which is comparable between shapes.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/cpu/steps.h"
#include "samebits/samebits.h"

namespace {

constexpr std::int32_t kExperts = 288, kHidden = 4096, kTopK = 8;

samebits_router_spec glm_spec() {
  samebits_router_spec spec{};
  spec.struct_size = sizeof(spec);
  spec.hidden_size = kHidden;
  spec.num_experts = kExperts;
  spec.top_k = kTopK;
  spec.logits_dtype = SAMEBITS_FP32;
  spec.input_scale = 1.0f;
  spec.temperature = 1.0f;
  spec.score_func = SAMEBITS_SCORE_SIGMOID;
  spec.score_stage = SAMEBITS_SCORE_BEFORE_TOPK;
  spec.score_dtype = SAMEBITS_FP32;
  spec.selection_method = SAMEBITS_SELECT_TOPK;
  spec.rank_by = SAMEBITS_RANK_BY_SCORE;
  spec.selection_bias_dtype = SAMEBITS_FP32;
  spec.num_bias_variants = 1;
  spec.n_group = 1;
  spec.topk_group = 1;
  spec.topk_scope = SAMEBITS_TOPK_GLOBAL;
  spec.sort = SAMEBITS_SORT_BY_KEY_DESC;
  spec.weight_source = SAMEBITS_WEIGHT_UNBIASED_SCORE;
  spec.renormalize = SAMEBITS_RENORM_L1;
  spec.eps_mode = SAMEBITS_EPS_ADD;
  spec.eps = 1e-20f;
  spec.routed_scaling_factor = 2.5f;
  spec.scale_stage = SAMEBITS_SCALE_AFTER_RENORM;
  spec.weights_dtype = SAMEBITS_FP32;
  return spec;
}

// bf16 values of both signs with exponents near 1; their time does not depend on them otherwise.
std::vector<std::uint16_t> bf16_values(std::size_t count) {
  std::vector<std::uint16_t> values(count);
  std::uint32_t state = 1;
  for (std::uint16_t& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<std::uint16_t>(((state >> 16) & 0x80ffu) | 0x3f00u);
  }
  return values;
}

template <class T>
samebits_tensor matrix(std::vector<T>& data, std::int64_t rows, std::int64_t cols, std::int32_t dtype) {
  return {data.data(), rows, cols, cols, dtype, 0};
}

void route_spec(benchmark::State& state, const samebits_router_spec& spec) {
  samebits::cpu::set_num_threads(1);
  std::vector<std::uint16_t> weight = bf16_values(std::size_t{kExperts} * kHidden);
  std::vector<float> bias(kExperts, 11.5f);
  samebits_constants constants{};
  constants.struct_size = sizeof(constants);
  constants.memory = SAMEBITS_MEMORY_HOST;
  constants.gate_weight = matrix(weight, kExperts, kHidden, SAMEBITS_BF16);
  constants.selection_bias = matrix(bias, 1, kExperts, SAMEBITS_FP32);
  std::vector<float> scale(kHidden, 1.5f);
  if (spec.input_scale_vector != 0) constants.input_scale_vector = matrix(scale, 1, kHidden, SAMEBITS_FP32);
  samebits_router* created = nullptr;
  if (samebits_create(&spec, &constants, &created) != SAMEBITS_OK) {
    return state.SkipWithError(samebits_last_error(nullptr));
  }
  const std::unique_ptr<samebits_router, decltype(&samebits_destroy)> router(created, &samebits_destroy);

  const std::int64_t rows = state.range(0);
  std::vector<std::uint16_t> hidden = bf16_values(static_cast<std::size_t>(rows) * kHidden);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(rows) * kTopK);
  std::vector<float> weights(ids.size());
  samebits_inputs inputs{};
  inputs.struct_size = sizeof(inputs);
  inputs.num_tokens = rows;
  inputs.hidden_states = matrix(hidden, rows, kHidden, SAMEBITS_BF16);
  samebits_outputs outputs{};
  outputs.struct_size = sizeof(outputs);
  outputs.topk_ids = matrix(ids, rows, kTopK, SAMEBITS_INT32);
  outputs.topk_weights = matrix(weights, rows, kTopK, SAMEBITS_FP32);

  const std::size_t bytes = samebits_workspace_bytes(router.get(), rows);
  const std::unique_ptr<void, decltype(&std::free)> workspace(std::aligned_alloc(64, (bytes + 127) / 64 * 64),
                                                              &std::free);
  if (samebits_workspace_init(router.get(), workspace.get(), bytes, nullptr) != SAMEBITS_OK) {
    return state.SkipWithError(samebits_last_error(router.get()));
  }
  for (auto _ : state) {  // NOLINT(clang-analyzer-deadcode.DeadStores): the library's own idiom
    if (samebits_route(router.get(), &inputs, &outputs, workspace.get(), nullptr) != SAMEBITS_OK) {
      return state.SkipWithError(samebits_last_error(router.get()));
    }
    benchmark::DoNotOptimize(ids.data());
  }
  const auto routed = static_cast<double>(state.iterations()) * static_cast<double>(rows);
  state.counters["rows/s"] = benchmark::Counter(routed, benchmark::Counter::kIsRate);
  state.counters["s/step"] = benchmark::Counter(routed * kExperts * (kHidden / 16.0),
                                                benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.SetLabel(outputs.kernel_name);
}

void route(benchmark::State& state) {
  route_spec(state, glm_spec());
}
BENCHMARK(route)->Arg(1)->Arg(16)->Arg(64)->Arg(256)->Unit(benchmark::kMicrosecond);

void route_prepared_input(benchmark::State& state) {
  samebits_router_spec spec = glm_spec();
  spec.input_norm = SAMEBITS_INPUT_NORM_RMSNORM_UNWEIGHTED;
  spec.input_norm_eps = 1e-6f;
  spec.input_scale_vector = 1;
  spec.input_scale_rsqrt_hidden_size = 1;
  route_spec(state, spec);
}
BENCHMARK(route_prepared_input)->Arg(1)->Arg(64)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
