// samebits fuzz: generate, run, judge; shrink the first failure of each law.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>

#include "harness/cli/campaign.h"
#include "harness/cli/failures.h"
#include "harness/cli/interrupt.h"
#include "harness/cli/options.h"
#include "harness/cli/output.h"
#include "harness/cli/program.h"
#include "harness/io/files.h"
#include "harness/report/case_text.h"
#include "properties/generate.h"

namespace samebits::harness {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct FuzzOptions {
  SpecOptions spec;
  BackendChoice backend;
  std::vector<std::string> laws;
  std::uint64_t seed = 1;
  std::optional<std::uint64_t> cases;
  std::string time, corpus = "samebits-failures", json, shard = "0/1", progress = "auto";
  bool fail_fast = false, no_shrink = false;
};

struct Shard {
  std::uint64_t index = 0, count = 1;
};

Shard parse_shard(const std::string& text) {
  Shard shard;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, shard.index);
  const bool slash = first.ec == std::errc() && first.ptr != end && *first.ptr == '/';
  const auto second = slash ? std::from_chars(first.ptr + 1, end, shard.count) : first;
  if (!slash || second.ec != std::errc() || second.ptr != end || shard.index >= shard.count) {
    throw UsageError(fmt::format("--shard {}: allowed is I/N with 0 <= I < N, e.g. 0/4", text));
  }
  return shard;
}

// How far a run goes: a number of cases, a time, or whichever comes first.
struct Budget {
  std::uint64_t cases = 200;
  std::optional<Clock::time_point> until;

  explicit Budget(const FuzzOptions& options) {
    if (!options.time.empty()) {
      until = Clock::now() + parse_duration("--time", options.time);
      cases = UINT64_MAX;
    }
    if (options.cases) cases = *options.cases;
  }
  bool left(std::uint64_t index) const { return index < cases && (!until || Clock::now() < *until); }
};

std::string progress_line(const ChosenSpec& spec, const FuzzOptions& options, const Campaign& campaign,
                          const Budget& budget, double seconds) {
  std::string line = fmt::format("fuzz {} on {}: {}", spec.name, options.backend.name(), grouped(campaign.cases()));
  if (budget.cases != UINT64_MAX) line += fmt::format("/{}", budget.cases);
  line += " cases, ";
  line += campaign.first_failures().empty() ? "no failure" : "FAILED " + campaign.failed_laws();
  line += fmt::format(", {} rows", grouped(campaign.rows()));
  const double rate = seconds > 0 ? static_cast<double>(campaign.cases()) / seconds : 0.0;
  return rate > 0 ? line + fmt::format(", {:.1f} cases/s", rate) : line;
}

// Removes a folder again that was made to see whether it can be written, if nothing was.
class CorpusFolder {
 public:
  explicit CorpusFolder(fs::path path) : path_(std::move(path)), created_(check_writable_folder(path_)) {}
  ~CorpusFolder() {
    std::error_code ignored;
    if (created_) fs::remove(path_, ignored);  // fails, as it should, when it is not empty
  }
  CorpusFolder(const CorpusFolder&) = delete;
  CorpusFolder& operator=(const CorpusFolder&) = delete;

 private:
  fs::path path_;
  bool created_;
};

int fuzz(const FuzzOptions& options, const std::string& program) {
  const ChosenSpec spec = resolve_runnable_spec(options.spec);
  require_known_laws(options.laws);
  const Shard shard = parse_shard(options.shard);
  if (!options.json.empty()) check_writable_file(options.json);
  const CorpusFolder corpus(options.corpus);
  const std::unique_ptr<properties::Subject> subject = open(options.backend);

  Report header;
  header.command = "fuzz";
  header.spec = spec.name;
  header.variant = spec.variant;
  header.notes = spec.notes;
  header.backend = options.backend.name();
  header.claims = subject->claims();
  header.seed = options.seed;
  Campaign campaign(std::move(header), options.laws);
  properties::GenerateOptions generate;
  generate.max_tokens = subject->claims().max_tokens;

  Progress progress(progress_mode(options.progress));
  const Budget budget(options);
  const Clock::time_point start = Clock::now();
  for (std::uint64_t index = shard.index; budget.left(index) && !interrupted(); index += shard.count) {
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    progress.update(progress_line(spec, options, campaign, budget, seconds));
    CaseFile file;
    file.c = within_memory(
        [&] { return shape_text(spec.spec); },
        [&] { return properties::generate_case(spec.name, spec.variant, spec.spec, options.seed, index, generate); });
    file.full_spec = spec.spec;
    file.layer = spec.layer;
    try {
      if (const auto reason = subject->unsupported(file.c.spec)) {
        campaign.skip(*reason);
        continue;
      }
      if (campaign.add(file, run_case(file.c, *subject)) && options.fail_fast) break;
    } catch (const Interrupted&) {
      break;  // what was found before is reported
    }
  }
  progress.clear();
  Report report = campaign.finish(interrupted());
  report.failures = keep_failures(campaign.first_failures(), *subject,
                                  {!options.no_shrink, options.corpus, program, options.backend.words()}, progress);
  report.interrupted = interrupted();
  if (!options.json.empty()) write_file(options.json, to_json(report));
  print_out("{}", to_console(report));
  return exit_code(report);
}

}  // namespace

void add_fuzz(CLI::App& app, Program& program) {
  CLI::App* command = app.add_subcommand("fuzz", "Generate cases, run a router on them and judge its answers");
  auto options = std::make_shared<FuzzOptions>();
  add_spec_options(*command, options->spec);
  add_backend_options(*command, options->backend);
  add_laws_option(*command, options->laws);
  command->add_option("--seed", options->seed, "Case I of a seed is the same everywhere")
      ->type_name("N")
      ->check(whole_number(0, UINT64_MAX))
      ->capture_default_str();
  command->add_option("--cases", options->cases, "Number of cases [200; without limit when --time is given]")
      ->type_name("N")
      ->check(whole_number(1, INT64_MAX));
  command
      ->add_option("--time", options->time,
                   "Stop after this time, e.g. 60s (shrinking comes after, at most 60 s a law)")
      ->type_name("TIME");
  command->add_option("--corpus", options->corpus, "Folder for shrunk failing cases")
      ->type_name("DIR")
      ->capture_default_str();
  command->add_option("--json", options->json, "Write the report as JSON")->type_name("FILE");
  command->add_flag("--fail-fast", options->fail_fast, "Stop at the first failure");
  command->add_flag("--no-shrink", options->no_shrink, "Keep failing cases as they are met");
  command->add_option("--shard", options->shard, "Only cases I, I+N, I+2N, ...; 0 <= I < N")
      ->type_name("I/N")
      ->capture_default_str();
  add_progress_option(*command, options->progress);
  command->footer("Example:\n  samebits fuzz --spec deepseek-v3 --plugin ./librouter.so --time 60s --json report.json");
  command->callback(
      [options, &program] { program.action = [options, path = program.path] { return fuzz(*options, path); }; });
}

}  // namespace samebits::harness
