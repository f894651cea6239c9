// Time of the oracle's logits on the shape of GLM-5.3-Flash: E = 288, H = 4096, bf16 weights.
//
// Counter: nanoseconds of one core per k16 step (a row has E * H / 16 = 73,728 of them), comparable between shapes.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "oracle/emulate/arithmetic_model.h"
#include "oracle/emulate/fast_chain.h"
#include "oracle/emulate/gate_weight.h"
#include "oracle/emulate/packed_chains.h"
#include "oracle/emulate/tc256.h"

namespace {

using namespace samebits::oracle;

constexpr std::int64_t kExperts = 288, kHidden = 4096, kSteps = kExperts * kHidden / 16;

// bf16 values of both signs with exponents near 1; the time does not depend on them otherwise.
std::vector<std::uint16_t> bf16_values(std::size_t count) {
  std::vector<std::uint16_t> values(count);
  std::uint32_t state = 1;
  for (std::uint16_t& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<std::uint16_t>(((state >> 16) & 0x80ffu) | 0x3f00u);
  }
  return values;
}

RouterInputs glm_inputs() {
  RouterInputs inputs;
  inputs.num_tokens = 1;
  inputs.hidden_size = kHidden;
  inputs.gate_rows = kExperts;
  inputs.hidden_states = bf16_values(kHidden);
  inputs.gate_weight_bf16 = bf16_values(kExperts * kHidden);
  return inputs;
}

void count_steps(benchmark::State& state, std::int64_t steps_of_iteration) {
  state.counters["s/step"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(steps_of_iteration),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

bool select(benchmark::State& state, const char* isa) {
  try {
    fast_chain::select_for_test(isa);
    return true;
  } catch (const std::invalid_argument& error) {
    state.SkipWithError(error.what());
    return false;
  }
}

// Finished logits of one row: too little work for threads, so this is one core.
void contract_row(benchmark::State& state, const char* isa) {
  if (!select(state, isa)) return;
  const RouterInputs inputs = glm_inputs();
  const PackedGateWeight packed(inputs);
  const std::vector<std::int64_t> rows = {0};
  for (auto _ : state) {  // NOLINT(clang-analyzer-deadcode.DeadStores): the library's own idiom
    benchmark::DoNotOptimize(tc256_logits(RouterSpec{}, inputs, packed, rows));
  }
  fast_chain::select_for_test(nullptr);
  count_steps(state, kSteps);
}
BENCHMARK_CAPTURE(contract_row, avx512, "avx512");
BENCHMARK_CAPTURE(contract_row, avx2, "avx2");
BENCHMARK_CAPTURE(contract_row, baseline, "baseline");

// Chunks of 256 of one group of experts, as the contract has them.
void group_of_experts(benchmark::State& state, const char* isa) {
  if (!select(state, isa)) return;
  const RouterInputs inputs = glm_inputs();
  const PackedGateWeight packed(inputs);
  const DecodedRow row = decode_row(inputs.hidden_states, kHidden);
  float result[fast_chain::kColumns];
  for (auto _ : state) {  // NOLINT(clang-analyzer-deadcode.DeadStores): the library's own idiom
    for (std::int64_t k = 0; k < kHidden; k += kChunk) packed_chains(sm90(), row, packed, 0, 0, k, kChunk, result);
    benchmark::DoNotOptimize(result);
  }
  fast_chain::select_for_test(nullptr);
  count_steps(state, fast_chain::kColumns * kHidden / 16);
}
BENCHMARK_CAPTURE(group_of_experts, avx512, "avx512");
BENCHMARK_CAPTURE(group_of_experts, avx2, "avx2");
BENCHMARK_CAPTURE(group_of_experts, baseline, "baseline");

void definition(benchmark::State& state) {
  const RouterInputs inputs = glm_inputs();
  const std::span<const std::uint16_t> column(inputs.gate_weight_bf16.data(), kHidden);
  for (auto _ : state) {  // NOLINT(clang-analyzer-deadcode.DeadStores): the library's own idiom
    benchmark::DoNotOptimize(chain(sm90(), 0, inputs.hidden_states, column));
  }
  count_steps(state, kHidden / 16);
}
BENCHMARK(definition);

// Packing of the weight included. A sum that is no chain of steps is counted as one of H / 16 of them all the same.
void model_rows(benchmark::State& state, const char* name) {
  const RouterInputs inputs = glm_inputs();
  const ArithmeticModel model = arithmetic_model(name);
  const std::vector<std::int64_t> rows(16, 0);
  for (auto _ : state) {  // NOLINT(clang-analyzer-deadcode.DeadStores): the library's own idiom
    benchmark::DoNotOptimize(emulate_logits(model, RouterSpec{}, inputs, rows));
  }
  count_steps(state, kSteps * 16);
}

BENCHMARK_CAPTURE(model_rows, tc256, "tc256")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(model_rows, tc_chain, "tc-chain")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(model_rows, tc_chain_sm_80, "tc-chain@sm_80")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(model_rows, fp32_fma_chains, "fp32-fma-chains:8")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(model_rows, exact, "exact")->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
