// samebits check: judge result files, made by `run` or by another program.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>

#include "harness/cli/campaign.h"
#include "harness/cli/interrupt.h"
#include "harness/cli/options.h"
#include "harness/cli/output.h"
#include "harness/cli/program.h"
#include "harness/io/claims_json.h"
#include "harness/io/files.h"

namespace samebits::harness {
namespace {

namespace fs = std::filesystem;

struct CheckOptions {
  std::string cases, results, json, ledger, progress = "auto";
  std::vector<std::string> laws;
};

fs::path result_path(const fs::path& case_path, const std::string& results) {
  std::error_code error;
  if (!fs::is_directory(results, error)) return results;
  return fs::path(results) / case_path.filename().replace_extension(".safetensors");
}

void require_one_router(const properties::Claims& first, const properties::Claims& other, const fs::path& path) {
  if (claims_to_json(first) == claims_to_json(other)) return;
  throw FileError(fmt::format("{}: from {} ({}), but the first result is from {} ({}); allowed is one router a check",
                              path.string(), other.name, claims_line(other), first.name, claims_line(first)));
}

// All of them before the first is judged, so that one look at the message tells what is left to be run.
void require_results(const std::vector<fs::path>& cases, const std::string& results) {
  constexpr std::size_t kNamed = 20;
  std::vector<std::string> missing;
  for (const fs::path& path : cases) {
    const fs::path result = result_path(path, results);
    std::error_code error;
    if (!fs::exists(result, error)) missing.push_back(result.string());
  }
  if (missing.empty() || cases.size() == 1) return;  // the reading of one file says what is wrong with it
  const std::size_t left_out = missing.size() - std::min(missing.size(), kNamed);
  std::string text = fmt::format(
      "{} of {} cases have no result; write one for each, or check the others alone:", missing.size(), cases.size());
  missing.resize(missing.size() - left_out);
  for (const std::string& file : missing) text += "\n  " + file;
  if (left_out > 0) text += fmt::format("\n  and {} more", left_out);
  throw FileError(text);
}

// Laws that judge ids or bookkeeping, so that results without weights will do: a program that does one stage alone.
bool judge_no_weights(const std::vector<std::string>& laws) {
  constexpr std::string_view kLaws[] = {"unique_in_range", "padding", "precision",  "selection",
                                        "hash_routing",    "order",   "bookkeeping"};
  return !laws.empty() && std::all_of(laws.begin(), laws.end(), [&](const std::string& law) {
    return std::find(std::begin(kLaws), std::end(kLaws), law) != std::end(kLaws);
  });
}

int check(const CheckOptions& options, const std::string& program) {
  require_known_laws(options.laws);
  const std::vector<LedgerEntry> ledger = read_ledger_option(options.ledger);
  if (!options.json.empty()) check_writable_file(options.json);
  const std::vector<fs::path> paths = list_case_files(options.cases);
  std::error_code error;
  if (paths.size() > 1 && !fs::is_directory(options.results, error)) {
    throw UsageError(
        fmt::format("--results {}: not a folder; a folder of cases needs a folder of results", options.results));
  }
  require_results(paths, options.results);
  Progress progress(progress_mode(options.progress));
  std::optional<Campaign> campaign;
  properties::Claims claims;
  std::string spec_name, variant;
  for (const fs::path& path : paths) {
    if (interrupted()) break;
    progress.update(fmt::format("check: {}/{} cases", campaign ? campaign->cases() : 0, paths.size()));
    const CaseFile file = read_case_file(path);
    require_runnable(path.string(), file.c.spec);
    const fs::path result_file = result_path(path, options.results);
    ResultFile result = read_result_file(result_file, file.c, judge_no_weights(options.laws));
    if (!campaign) {
      claims = result.claims;
      Report header;
      header.command = "check";
      header.spec = file.c.spec_name;
      header.variant = file.c.variant;
      header.backend = options.results;
      header.claims = claims;
      header.seed = file.c.description.seed;
      campaign.emplace(std::move(header), options.laws, Ledger(ledger, claims, today()));
    }
    require_one_router(claims, result.claims, result_file);
    if (!result.unsupported.empty()) {
      campaign->skip(result.unsupported);
      continue;
    }
    if (campaign->quarantines(file, path.stem().string())) continue;
    campaign->add(file, {properties::materialize(file.c), std::move(result.runs)}, path.string());
  }
  progress.clear();
  Report report = campaign ? campaign->finish(interrupted()) : Report{};
  report.command = "check";
  report.interrupted = interrupted();
  for (const FirstFailure& first : campaign ? campaign->first_failures() : std::vector<FirstFailure>{}) {
    Failure failure;
    failure.violation = first.violation;
    failure.original_summary = first.violation.summary;
    failure.case_index = first.case_index;
    failure.shrunk = first.file.c;
    failure.case_file = first.case_file;
    failure.repro = fmt::format("{} check --cases {} --results {}", shell_word(program), shell_word(first.case_file),
                                shell_word(result_path(first.case_file, options.results).string()));
    report.failures.push_back(std::move(failure));
  }
  publish(report, options.json);
  return exit_code(report);
}

}  // namespace

void add_check(CLI::App& app, Program& program) {
  CLI::App* command = app.add_subcommand("check", "Judge result files, made by `run` or by another program");
  auto options = std::make_shared<CheckOptions>();
  command->add_option("--cases", options->cases, "Folder of case files, or one file")
      ->required()
      ->type_name("DIR|FILE");
  command->add_option("--results", options->results, "Folder of result files with the same stems, or one file")
      ->required()
      ->type_name("DIR|FILE");
  add_laws_option(*command, options->laws);
  command->add_option("--json", options->json, "Write the report as JSON")->type_name("FILE");
  add_ledger_option(*command, options->ledger);
  add_progress_option(*command, options->progress);
  command->footer(
      "A result file is a safetensors file with main/topk_ids [T, k] (I32 or I64) and main/topk_weights [T, k] (F32);\n"
      "without claims in its metadata it is judged as fp32-any-order with no further claim. See docs/files.md.\n\n"
      "Example:\n  samebits check --cases cases/ --results results/ --json report.json");
  command->callback(
      [options, &program] { program.action = [options, path = program.path] { return check(*options, path); }; });
}

}  // namespace samebits::harness
