#include <fmt/format.h>

#include <chrono>

#include "harness/bench/bench.h"
#include "oracle/emulate/tc256.h"

namespace samebits::harness {
namespace {

using Clock = std::chrono::steady_clock;

template <class Work>
bench::Sample timed(std::int64_t rows, const Work& work) {
  const Clock::time_point start = Clock::now();
  work();
  const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  return {us, {{"rows_per_s", static_cast<double>(rows) * 1e6 / us}}};
}

struct HostBench final : Bench {
  std::unique_ptr<Memory> memory = host_memory();
  std::vector<std::unique_ptr<BenchRouter>> routers;
  std::vector<std::unique_ptr<oracle::RouterInputs>> inputs;
};

}  // namespace

std::unique_ptr<Bench> host_bench(const AbiTable& table, const BenchPlan& plan, bool embedded) {
  auto made = std::make_unique<HostBench>();
  made->context = {{"clock", "steady_clock"}, {"router", describe(table).name}};
  const std::int64_t max_rows = *std::max_element(plan.rows.begin(), plan.rows.end());
  for (const BenchSpec& spec : plan.specs) {
    BenchRouter* router = nullptr;
    try {
      router = made->routers.emplace_back(std::make_unique<BenchRouter>(table, spec, *made->memory, max_rows)).get();
    } catch (const BenchError& refusal) {
      made->refusals.push_back(fmt::format("{}: {}", spec.name, refusal.what()));
      continue;
    }
    const std::vector<std::uint16_t> hidden = bench_hidden_states(max_rows * router->spec().hidden_size);
    made->memory->copy_in(router->hidden_states(), hidden.data(), hidden.size() * sizeof(hidden[0]));
    // Logits have the size of the hidden states here, N(0, 1).
    std::vector<float> given(static_cast<std::size_t>(max_rows * router->gate_rows()));
    for (std::size_t i = 0; i < given.size(); ++i) {
      given[i] = std::bit_cast<float>(static_cast<std::uint32_t>(hidden[i % hidden.size()]) << 16);
    }
    made->memory->copy_in(router->given_logits(), given.data(), given.size() * sizeof(given[0]));
    const auto add = [&](std::int64_t rows, const std::string& column, std::string label, auto work) {
      const std::string name = fmt::format("{}/rows:{}/{}", spec.name, rows, column);
      made->measurements.push_back({name, "", false, std::move(label), [rows, work] { return timed(rows, work); }});
      made->cells.push_back({spec.name, rows, column, name});
    };
    for (const std::int64_t rows : plan.rows) {
      for (const BenchOutputs outputs : plan.outputs) {
        add(rows, name_of(outputs), router->route(rows, outputs),
            [router, rows, outputs] { router->route(rows, outputs); });
      }
    }
    if (!embedded) continue;
    oracle::RouterInputs* inputs =
        made->inputs.emplace_back(std::make_unique<oracle::RouterInputs>(router->host_constants())).get();
    inputs->num_tokens = max_rows;
    inputs->hidden_states = hidden;
    for (const std::int64_t rows : plan.rows) {
      add(rows, "oracle", "logits of the oracle", [&oracle_spec = spec.spec, inputs, rows] {
        std::vector<std::int64_t> wanted(static_cast<std::size_t>(rows));
        for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = static_cast<std::int64_t>(i);
        oracle::tc256_logits(oracle_spec, *inputs, wanted);
      });
    }
  }
  return made;
}

}  // namespace samebits::harness
