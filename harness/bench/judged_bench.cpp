// Rows per second of the judged loop on the shape of GLM-5.3-Flash: E = 288, H = 4096, k = 8, sigmoid and a bias.
//
// `judged`: the runs of an exhaustive sweep (main, repeat, permuted) of one ordinary case on the embedded CPU router,
// between guard bands, and every law. `fuzz`: cases as `samebits fuzz` draws them, with all their runs and the making
// of their tensors. `oracle`: the answer of a row alone, from its hidden states or its logits. Counters: rows/s of one
// core, and of `judged` and `fuzz` also the rows that the router returned, which are several for each row of a case.
// Time is that of the process: the loop uses threads where it may.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "harness/backend/backend.h"
#include "harness/io/spec_library.h"
#include "oracle/emulate/gate_weight.h"
#include "oracle/emulate/tc256.h"
#include "oracle/reference/answer.h"
#include "oracle/spec/spec_yaml.h"
#include "properties/exhaustive/exhaustive.h"
#include "properties/generate.h"
#include "properties/judge.h"

namespace {

using namespace samebits;
using properties::Case;

constexpr const char* kSpec = "glm-5.3-flash";
enum Start : std::uint8_t { kFull, kFromLogits };

Case drawn_case(Start start, std::uint64_t index) {
  static const oracle::RouterSpec spec = oracle::resolve(harness::load_spec(kSpec), {});
  properties::GenerateOptions options;
  options.full_stage = start == kFull;
  options.logits_stage = start == kFromLogits;
  return properties::generate_case(kSpec, "", spec, 1, index, options);
}

// Ordinary values, `rows` of them.
Case plain_case(Start start, std::int64_t rows) {
  std::uint64_t index = 0;
  while (drawn_case(start, index).description.hazard != "plain") ++index;
  Case c = drawn_case(start, index);
  c.description.num_tokens = rows;
  c.description.num_valid_rows.reset();
  return c;
}

properties::Subject& router() {
  static const std::unique_ptr<properties::Subject> subject = [] {
    harness::BackendOptions options;
    options.name = "cpu";
    return harness::open_backend(options);
  }();
  return *subject;
}

// Runs the case and judges it; the rows that the router returned.
std::int64_t judge_case(benchmark::State& state, const Case& c, const oracle::RouterInputs& inputs,
                        const std::vector<properties::RunRequest>& requests) {
  const std::vector<properties::Run> runs = router().run(c, inputs, requests);
  for (const properties::LawResult& result : properties::judge(c, router().claims(), inputs, runs)) {
    if (result.outcome.violation) state.SkipWithError(result.outcome.violation->summary.c_str());
  }
  std::int64_t routed = 0;
  for (const properties::Run& run : runs) routed += static_cast<std::int64_t>(run.request.rows.size());
  return routed;
}

void count(benchmark::State& state, const char* name, std::int64_t rows) {
  state.counters[name] = benchmark::Counter(static_cast<double>(rows), benchmark::Counter::kIsRate);
}

void judged(benchmark::State& state, Start start) {
  const Case c = plain_case(start, state.range(0));
  const oracle::RouterInputs inputs = properties::materialize(c);
  const std::vector<properties::RunRequest> requests =
      properties::exhaustive_runs({c, inputs.num_tokens, {}}, router().claims());
  std::int64_t rows = 0, routed = 0;
  for (auto _ : state) {  // NOLINT(clang-analyzer-deadcode.DeadStores): the library's own idiom
    routed += judge_case(state, c, inputs, requests);
    rows += inputs.num_tokens;
  }
  count(state, "rows/s", rows);
  count(state, "routed/s", routed);
}
BENCHMARK_CAPTURE(judged, from_logits, kFromLogits)->Arg(17)->Arg(256)->Arg(4096)->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(judged, full, kFull)->Arg(17)->Arg(256)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime();

void fuzz(benchmark::State& state, Start start) {
  std::int64_t rows = 0, routed = 0;
  std::uint64_t index = 0;
  for (auto _ : state) {  // NOLINT(clang-analyzer-deadcode.DeadStores): the library's own idiom
    const Case c = drawn_case(start, index++);
    const oracle::RouterInputs inputs = properties::materialize(c);
    routed += judge_case(state, c, inputs, properties::plan_runs(c, router().claims()));
    rows += inputs.num_tokens;
  }
  count(state, "rows/s", rows);
  count(state, "routed/s", routed);
}
// A fixed number of cases, so that all measurements see the same ones.
BENCHMARK_CAPTURE(fuzz, from_logits, kFromLogits)
    ->Iterations(200)
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(fuzz, full, kFull)->Iterations(40)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime();

void oracle_rows(benchmark::State& state, Start start) {
  const Case c = plain_case(start, state.range(0));
  const oracle::RouterInputs inputs = properties::materialize(c);
  std::optional<oracle::PackedGateWeight> packed;
  if (start == kFull) packed.emplace(inputs);
  std::vector<std::int64_t> wanted(static_cast<std::size_t>(inputs.num_tokens));
  std::iota(wanted.begin(), wanted.end(), std::int64_t{0});
  const auto width = static_cast<std::size_t>(inputs.gate_rows);
  for (auto _ : state) {  // NOLINT(clang-analyzer-deadcode.DeadStores): the library's own idiom
    const std::vector<float> logits =
        packed ? oracle::tc256_logits(c.spec, inputs, *packed, wanted) : inputs.router_logits;
    for (const std::int64_t row : wanted) {
      benchmark::DoNotOptimize(oracle::route_row(
          c.spec, std::span<const float>(logits).subspan(static_cast<std::size_t>(row) * width, width),
          oracle::row_constants(c.spec, inputs, row)));
    }
  }
  count(state, "rows/s", static_cast<std::int64_t>(state.iterations()) * inputs.num_tokens);
}
BENCHMARK_CAPTURE(oracle_rows, from_logits, kFromLogits)->Arg(256)->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(oracle_rows, full, kFull)->Arg(256)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime();

}  // namespace

BENCHMARK_MAIN();
