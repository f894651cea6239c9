// samebits bench: time of a router by row count, and on a GPU beside the floor. Timing only; nothing is judged.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>

#include "harness/backend/abi_adapter.h"
#include "harness/bench/bench.h"
#include "harness/cli/interrupt.h"
#include "harness/cli/options.h"
#include "harness/cli/output.h"
#include "harness/cli/program.h"
#include "harness/io/files.h"

namespace samebits::harness {
namespace {

constexpr int kClean = 0, kTooLittle = 4;
constexpr std::int64_t kMaxRows = 65537;

// The shapes whose public routers were measured: wide and narrow gates, with and without biases and groups.
constexpr const char* kSpecs[] = {"glm-5.3-flash", "deepseek-v3", "qwen3-30b-a3b", "kimi-k3", "deepseek-v4.1-flash"};
constexpr std::int64_t kGpuRows[] = {1, 2, 4, 6, 8, 16, 17, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};
constexpr std::int64_t kShortGpuRows[] = {1, 6, 16, 32, 64, 128, 256, 1024, 4096, 8192};
constexpr std::int64_t kHostRows[] = {1, 16, 64};

struct Options {
  std::vector<std::string> specs, outputs;
  SpecOptions resolution;  // of each spec
  std::vector<std::int64_t> rows;
  std::string backend, plugin, form, filter, json, progress = "auto";
  int repetitions = 0;
  bool is_short = false, kernels = false;
};

struct Loaded {
  AbiTable table;
  std::filesystem::path library;  // empty: embedded
};

Loaded load(const Options& options) {
  try {
    if (!options.plugin.empty()) return {load_table(options.plugin), options.plugin};
    if (options.backend == "cpu") return {embedded_table(), {}};
    if (options.backend != "cuda") {
      throw UsageError(
          fmt::format("--backend {}: allowed for bench are cpu and cuda; any other router can be timed as "
                      "--plugin LIB.so",
                      options.backend));
    }
    const std::filesystem::path library = cuda_library();
    return {load_table(library), library};
  } catch (const AbiError& error) {
    throw BackendError(fmt::format("{}: {}", options.plugin.empty() ? options.backend : options.plugin, error.what()));
  }
}

BenchPlan make_plan(const Options& options, bool on_gpu) {
  BenchPlan plan;
  std::vector<std::string> names = options.specs;
  if (names.empty() && on_gpu) names.assign(std::begin(kSpecs), std::end(kSpecs));
  if (names.empty()) names = {kSpecs[0]};
  for (const std::string& name : names) {
    SpecOptions spec = options.resolution;
    spec.spec = name;
    plan.specs.push_back({name, resolve_runnable_spec(spec).spec});
  }
  plan.rows = options.rows;
  if (plan.rows.empty() && !on_gpu) plan.rows.assign(std::begin(kHostRows), std::end(kHostRows));
  if (plan.rows.empty() && options.is_short) plan.rows.assign(std::begin(kShortGpuRows), std::end(kShortGpuRows));
  if (plan.rows.empty()) plan.rows.assign(std::begin(kGpuRows), std::end(kGpuRows));
  std::sort(plan.rows.begin(), plan.rows.end());
  plan.rows.erase(std::unique(plan.rows.begin(), plan.rows.end()), plan.rows.end());
  for (const BenchOutputsName& known : kBenchOutputs) {
    const auto& wanted = options.outputs;
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), known.name) != wanted.end()) {
      plan.outputs.push_back(known.outputs);
    }
  }
  return plan;
}

// How the specs differ from those of their names.
std::vector<std::pair<std::string, std::string>> resolution_context(const SpecOptions& options) {
  std::vector<std::pair<std::string, std::string>> context;
  if (!options.variant.empty()) context.emplace_back("variant", options.variant);
  if (options.layer) context.emplace_back("layer", *options.layer);
  if (!options.set.empty()) context.emplace_back("set", fmt::format("{}", fmt::join(options.set, ", ")));
  return context;
}

int run_bench(const Options& options) {
  if (options.backend.empty() && options.plugin.empty()) {
    throw UsageError("bench needs a router: give --backend cpu, --backend cuda or --plugin LIB.so");
  }
  if (!options.json.empty()) check_writable_file(options.json);
  if (!options.form.empty()) ::setenv("SAMEBITS_CUDA_FORM", options.form.c_str(), 1);  // read by the CUDA router
  const Loaded loaded = load(options);
  samebits_info info{};
  try {
    info = describe(loaded.table);
  } catch (const AbiError& error) {
    throw BackendError(error.what());
  }
  const bool on_gpu = (info.memory_kinds & SAMEBITS_MEMORY_HOST) == 0;
  const BenchPlan plan = make_plan(options, on_gpu);
  const std::unique_ptr<Bench> bench =
      on_gpu ? gpu_bench(loaded.table, plan, loaded.library) : host_bench(loaded.table, plan, loaded.library.empty());

  bench::SuiteOptions suite;
  suite.repetitions = options.repetitions > 0 ? options.repetitions : !on_gpu ? 5 : options.is_short ? 20 : 60;
  suite.json = options.json;
  for (auto& entry : resolution_context(options.resolution)) bench->context.push_back(std::move(entry));
  suite.context = bench->context;
  suite.context.emplace_back("repetitions", std::to_string(suite.repetitions));
  Progress progress(progress_mode(options.progress));
  suite.progress = [&](std::int64_t done, std::int64_t all) {
    progress.update(fmt::format("bench: {} of {} measurements", done, all));
  };
  std::vector<bench::Measurement> measurements;
  try {
    measurements = bench::filtered(bench->measurements, options.filter);
  } catch (const std::invalid_argument& error) {
    throw UsageError(fmt::format("--filter {}; allowed: a POSIX extended regular expression", error.what()));
  }
  if (measurements.empty()) {
    print_error("samebits: bench: nothing to measure; {}\n", bench->refusals.empty()
                                                                 ? "no name matches --filter"
                                                                 : fmt::format("{}", fmt::join(bench->refusals, "; ")));
    return kTooLittle;
  }
  const std::vector<bench::Result> results = bench::run_suite(measurements, suite);
  progress.clear();
  print_out("{}", bench_table(*bench, results, options.kernels));
  const bool failed = std::any_of(results.begin(), results.end(), [](const auto& r) { return !r.error.empty(); });
  return failed || !bench->refusals.empty() ? kTooLittle : kClean;
}

}  // namespace

void add_bench(CLI::App& app, Program& program) {
  CLI::App* command =
      app.add_subcommand("bench", "Time a router by row count, on a GPU cold, warm and beside the floor");
  auto options = std::make_shared<Options>();
  CLI::Option* spec = command->add_option("--spec", options->specs,
                                          "Built-in spec or spec file; may be repeated (default on a GPU: five)");
  spec->type_name("S")->take_all()->allow_extra_args(false);
  add_resolution_options(*command, options->resolution);
  for (const char* option : {"--variant", "--layer"}) command->get_option(option)->needs(spec);
  CLI::Option* backend = command->add_option("--backend", options->backend, "Router of this program: cpu, cuda");
  backend->type_name("B");
  command->add_option("--plugin", options->plugin, "Shared library with the C ABI; runs in this process")
      ->type_name("LIB.so")
      ->excludes(backend);
  command->add_option("--rows", options->rows, "Row counts, separated by commas; boundaries between kernels are added")
      ->type_name("T,T,...")
      ->delimiter(',')
      ->check(whole_number(1, kMaxRows));
  command->add_option("--outputs", options->outputs, "ids (and weights), logits, bookkeeping, given (logits)")
      ->type_name("O,O,...")
      ->delimiter(',')
      ->check(CLI::IsMember({"ids", "logits", "bookkeeping", "given"}));
  command->add_option("--form", options->form, "Force one form of the CUDA router (docs/kernels.md)")->type_name("F");
  command->add_option("--filter", options->filter, "Only measurements whose name matches")->type_name("REGEX");
  command->add_option("--repetitions", options->repetitions, "Of every measurement; the median counts")
      ->type_name("N")
      ->check(whole_number(3, 100000));
  command->add_flag("--short", options->is_short, "Fewer row counts and repetitions");
  command->add_flag("--kernels", options->kernels, "Also the median time of every kernel");
  command->add_option("--json", options->json, "Write all numbers in Google Benchmark's form")->type_name("FILE");
  add_progress_option(*command, options->progress);
  command->footer("Example:\n  samebits bench --backend cuda --spec glm-5.3-flash --rows 1,16,256 --outputs ids");
  command->callback([options, &program] { program.action = [options] { return run_bench(*options); }; });
}

}  // namespace samebits::harness
