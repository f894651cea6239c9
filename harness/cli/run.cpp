// samebits run: what a router answers to case files, as result files. No verdict.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdio>

#include "harness/cli/campaign.h"
#include "harness/cli/interrupt.h"
#include "harness/cli/options.h"
#include "harness/cli/output.h"
#include "harness/cli/program.h"
#include "harness/io/files.h"
#include "harness/report/case_text.h"

namespace samebits::harness {
namespace {

namespace fs = std::filesystem;

struct RunOptions {
  std::string cases, out, progress = "auto";
  BackendChoice backend;
};

int run(const RunOptions& options) {
  const std::vector<fs::path> paths = list_case_files(options.cases);
  const std::unique_ptr<properties::Subject> subject = open(options.backend);
  check_writable_folder(options.out);
  Progress progress(progress_mode(options.progress));
  std::int64_t done = 0, skipped = 0;
  for (const fs::path& path : paths) {
    if (interrupted()) break;
    progress.update(fmt::format("run on {}: {}/{} cases", options.backend.name(), done + skipped, paths.size()));
    const CaseFile file = read_case_file(path);
    require_runnable(path.string(), file.c.spec);
    ResultFile result;
    result.claims = subject->claims();
    if (const auto reason = subject->unsupported(file.c.spec)) {
      result.unsupported = *reason;
      progress.message(fmt::format("{}: not supported by the router: {}", path.string(), *reason));
      ++skipped;
    } else {
      result.runs = run_case(file.c, *subject).runs;
      ++done;
    }
    write_result_file(fs::path(options.out) / path.filename().replace_extension(".safetensors"), result, file.c);
  }
  progress.clear();
  print_out("{} cases run on {}, {} not supported; results in {}\n", grouped(done), options.backend.name(),
            grouped(skipped), options.out);
  if (interrupted()) return 130;
  return done == 0 ? 4 : 0;
}

}  // namespace

void add_run(CLI::App& app, Program& program) {
  CLI::App* command = app.add_subcommand("run", "Run a router on case files and write its answers, without a verdict");
  auto options = std::make_shared<RunOptions>();
  command->add_option("--cases", options->cases, "Folder of case files, or one file")
      ->required()
      ->type_name("DIR|FILE");
  command->add_option("--out", options->out, "Folder for the result files, one a case")->required()->type_name("DIR");
  add_backend_options(*command, options->backend);
  add_progress_option(*command, options->progress);
  command->footer("Example:\n  samebits run --cases cases/ --backend cpu --out results/");
  command->callback([options, &program] { program.action = [options] { return run(*options); }; });
}

}  // namespace samebits::harness
