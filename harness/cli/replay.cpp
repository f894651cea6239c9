// samebits replay: run and judge case files again, with the answers that they state.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdio>

#include "harness/cli/campaign.h"
#include "harness/cli/failures.h"
#include "harness/cli/interrupt.h"
#include "harness/cli/options.h"
#include "harness/cli/output.h"
#include "harness/cli/program.h"
#include "harness/io/files.h"
#include "oracle/spec/validate.h"

namespace samebits::harness {
namespace {

namespace fs = std::filesystem;

struct ReplayOptions {
  std::string case_path, json, ledger, progress = "auto";
  std::vector<std::string> laws;
  SpecChanges changes;
  BackendChoice backend;
};

int replay(const ReplayOptions& options, const std::string& program) {
  require_known_laws(options.laws);
  const std::vector<LedgerEntry> ledger = read_ledger_option(options.ledger);
  if (!options.json.empty()) check_writable_file(options.json);
  const std::vector<fs::path> paths = list_case_files(options.case_path);
  // All files are read before the first is run, so that a bad one is told at once.
  std::vector<CaseFile> files;
  for (const fs::path& path : paths) {
    files.push_back(read_case_file(path));
    change_spec(files.back(), options.changes);
    if (paths.size() == 1) require_runnable(path.string(), files.back().c.spec);
  }
  const std::unique_ptr<properties::Subject> subject = open(options.backend);
  Report header;
  header.command = "replay";
  header.spec = paths.size() == 1 ? files.front().c.spec_name : fmt::format("of {} case files", paths.size());
  header.variant = paths.size() == 1 ? files.front().c.variant : "";
  for (const std::string& change : options.changes.set) header.notes.push_back("changed: " + change);
  header.backend = options.backend.name();
  header.claims = subject->claims();
  header.seed = files.front().c.description.seed;
  Campaign campaign(std::move(header), options.laws, Ledger(ledger, subject->claims(), today()));
  Progress progress(progress_mode(options.progress));
  for (std::size_t i = 0; i < paths.size() && !interrupted(); ++i) {
    progress.update(fmt::format("replay on {}: {}/{} cases", options.backend.name(), i, paths.size()));
    auto reason = oracle::unsupported_reason(files[i].c.spec);
    if (!reason) reason = subject->unsupported(files[i].c.spec);
    if (reason) {
      campaign.skip(fmt::format("{}: {}", paths[i].string(), *reason));
      continue;
    }
    if (campaign.quarantines(files[i], paths[i].stem().string())) continue;
    campaign.add(files[i], run_case(files[i].c, *subject), paths[i].string());
  }
  progress.clear();
  Report report = campaign.finish(interrupted());
  for (const FirstFailure& first : campaign.first_failures()) {
    Failure failure;
    failure.violation = first.violation;
    failure.original_summary = first.violation.summary;
    failure.case_index = first.case_index;
    failure.shrunk = first.file.c;
    failure.case_file = first.case_file;
    failure.repro = repro_line(program, first.case_file, options.changes.words() + options.backend.words());
    report.failures.push_back(std::move(failure));
  }
  publish(report, options.json);
  return exit_code(report);
}

}  // namespace

void add_replay(CLI::App& app, Program& program) {
  CLI::App* command = app.add_subcommand("replay", "Run and judge a case file again, with the answer that it states");
  auto options = std::make_shared<ReplayOptions>();
  command->add_option("--case", options->case_path, "Case file, or a folder of them")->required()->type_name("FILE");
  add_spec_changes(*command, options->changes);
  add_backend_options(*command, options->backend);
  add_laws_option(*command, options->laws);
  command->add_option("--json", options->json, "Write the report as JSON")->type_name("FILE");
  add_ledger_option(*command, options->ledger);
  add_progress_option(*command, options->progress);
  command->footer("Example:\n  samebits replay --case samebits-failures/selection-0123456789abcdef.yaml --backend cpu");
  command->callback(
      [options, &program] { program.action = [options, path = program.path] { return replay(*options, path); }; });
}

}  // namespace samebits::harness
