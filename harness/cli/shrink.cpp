// samebits shrink: a failing case file becomes one of a few numbers that fails the same law.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <stdexcept>

#include "harness/cli/failures.h"
#include "harness/cli/interrupt.h"
#include "harness/cli/known_answer.h"
#include "harness/cli/options.h"
#include "harness/cli/output.h"
#include "harness/cli/program.h"
#include "harness/io/case_file.h"
#include "harness/io/files.h"
#include "harness/report/case_text.h"
#include "harness/report/printable.h"

namespace samebits::harness {
namespace {

struct ShrinkOptions {
  std::string case_path, law, out, progress = "auto";
  int max_evaluations = properties::ShrinkLimits{}.max_evaluations;
  BackendChoice backend;
};

int shrink_case(const ShrinkOptions& options, const std::string& program) {
  CaseFile file = read_case_file(options.case_path);
  require_runnable(options.case_path, file.c.spec);
  const std::string law = options.law.empty() ? file.law : options.law;
  if (law.empty()) throw UsageError(fmt::format("{} names no law; give one with --law", options.case_path));
  if (law == known_answer_law().id) {
    throw UsageError(
        fmt::format("--law {}: the stated answer belongs to the case as it is; give another law with --law", law));
  }
  require_known_laws({law});
  check_writable_file(options.out);
  const std::unique_ptr<properties::Subject> subject = open(options.backend);
  if (const auto reason = subject->unsupported(file.c.spec)) {
    throw BackendError(fmt::format("the router does not support this case: {}", *reason));
  }
  Progress progress(progress_mode(options.progress));
  const auto on_progress = [&](int evaluations, const properties::Case& current) {
    progress.update(fmt::format("shrinking {}: {} evaluations, now {}", law, evaluations, case_sizes(current)));
    return !interrupted();
  };
  const std::string before = case_sizes(file.c);
  try {
    properties::ShrinkResult result = properties::shrink(file.c, law, *subject, {options.max_evaluations}, on_progress);
    progress.clear();
    file.c = std::move(result.minimal);
    file.law = law;
    file.expected.reset();
    write_case_file(options.out, file);
    print_out("{}: {}\n", law, printable_line(result.violation.summary));
    const std::string limit = interrupted() ? "interrupted" : evaluation_limit(result, {options.max_evaluations});
    if (!limit.empty()) print_out("shrinking {}; a smaller case may exist\n", limit);
    const CaseNumbers numbers = case_numbers(file.c, 40);
    print_out("{} -> {} in {} evaluations; {} numbers that are not 0\n", before, case_sizes(file.c), result.evaluations,
              grouped(numbers.count));
    for (const std::string& line : numbers.lines) print_out("  {}\n", line);
    print_out("REPRO: {}\n", repro_line(program, options.out, options.backend.words()));
  } catch (const std::invalid_argument&) {
    progress.clear();
    print_out("{} does not break {} on {}: nothing to shrink\n", options.case_path, law, options.backend.name());
    return 4;
  }
  return interrupted() ? 130 : 0;
}

}  // namespace

void add_shrink(CLI::App& app, Program& program) {
  CLI::App* command = app.add_subcommand("shrink", "Make a failing case file smaller, keeping the same law broken");
  auto options = std::make_shared<ShrinkOptions>();
  command->add_option("--case", options->case_path, "Failing case file")->required()->type_name("FILE");
  command->add_option("--law", options->law, "The law to keep broken; the file's own by default")->type_name("LAW");
  command->add_option("--out", options->out, "The smaller case file")->required()->type_name("FILE");
  command->add_option("--max-evaluations", options->max_evaluations, "Cases tried in all")
      ->type_name("N")
      ->check(whole_number(1, 1'000'000))
      ->capture_default_str();
  add_backend_options(*command, options->backend);
  add_progress_option(*command, options->progress);
  command->footer(
      "Example:\n  samebits shrink --case big.yaml --law selection --backend mutant:bf16_bias --out small.yaml");
  command->callback(
      [options, &program] { program.action = [options, path = program.path] { return shrink_case(*options, path); }; });
}

}  // namespace samebits::harness
