// samebits fuzz: known cases first; then generate, run, judge; shrink the first failure of each law.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <cstdio>
#include <set>

#include "harness/cli/campaign.h"
#include "harness/cli/failures.h"
#include "harness/cli/fuzz_targets.h"
#include "harness/cli/interrupt.h"
#include "harness/cli/options.h"
#include "harness/cli/output.h"
#include "harness/cli/program.h"
#include "harness/io/captured_rows.h"
#include "harness/io/files.h"
#include "harness/io/known_cases.h"
#include "harness/report/case_text.h"
#include "oracle/spec/validate.h"
#include "properties/generate.h"
#include "properties/generators/hazards.h"

namespace samebits::harness {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct FuzzOptions {
  SpecOptions spec;
  BackendChoice backend;
  std::vector<std::string> laws;
  std::uint64_t seed = 1;
  std::optional<std::uint64_t> cases, rows;
  std::string time, corpus = "samebits-failures", json, ledger, stage = "any", shard = "0/1", progress = "auto";
  std::string captured;
  bool all_specs = false, fail_fast = false, no_shrink = false, no_known_cases = false, odd_shapes = false;
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

// How far a run goes: a number of cases (of each spec), of rows, a time, or whichever comes first.
struct Budget {
  std::uint64_t cases = 200;
  std::int64_t rows = INT64_MAX;
  std::optional<Clock::time_point> until;

  explicit Budget(const FuzzOptions& options) {
    if (options.all_specs) cases = 24;  // every directed case, and a few random ones
    if (!options.time.empty()) until = Clock::now() + parse_duration("--time", options.time);
    if (options.rows) rows = static_cast<std::int64_t>(*options.rows);
    if (until || options.rows) cases = UINT64_MAX;
    if (options.cases) cases = *options.cases;
  }
  bool left(std::uint64_t index, std::int64_t rows_done) const {
    return index < cases && rows_done < rows && (!until || Clock::now() < *until);
  }
};

// Where a run over `count` routers begins. Runs that are too short for a round meet others with another seed, or in
// another shard: multiples of the golden ratio, modulo 1, are spread evenly, however many there are.
std::size_t first_place(std::uint64_t number, std::size_t count) {
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;  // 2^64 / 1.618...
  return static_cast<std::size_t>(((number * kGolden) >> 32) * count >> 32);
}

properties::GenerateOptions generate_options(const FuzzOptions& options, const properties::Claims& claims) {
  properties::GenerateOptions generate;
  generate.full_stage = options.stage != "from_logits";
  generate.logits_stage = options.stage != "full";
  generate.max_tokens = claims.max_tokens;
  generate.odd_shapes = options.odd_shapes;
  return generate;
}

// One fuzz run: the routers that are asked for, and what was found so far.
class FuzzRun {
 public:
  FuzzRun(const FuzzOptions& options, std::vector<FuzzTarget> targets, std::optional<CapturedRows> captured,
          properties::Subject& subject, Report header, Ledger ledger)
      : options_(options),
        targets_(std::move(targets)),
        captured_(std::move(captured)),
        subject_(subject),
        generate_(generate_options(options, subject.claims())),
        budget_(options),
        campaign_(std::move(header), options.laws, std::move(ledger)),
        progress_(progress_mode(options.progress)) {}

  // Until the budget is spent, a case failed with --fail-fast, or the user interrupts; what was found is reported.
  void run(const Shard& shard) {
    try {
      // Known cases belong to no shard; the first runs them.
      const bool known = !options_.no_known_cases && campaign_.judges_answers();
      if (known && shard.index == 0 && run_known_cases() && options_.fail_fast) return;
      if (!campaign_.judges_cases()) return;
      first_ = first_place(options_.seed + shard.index, targets_.size());
      for (std::uint64_t index = shard.index; !interrupted(); index += shard.count) {
        if (!run_round(index)) return;
      }
    } catch (const Interrupted&) {
    }
  }

  Report finish(const std::string& program) {
    progress_.clear();
    Report report = campaign_.finish(interrupted());
    report.failures =
        keep_failures(campaign_.first_failures(), subject_,
                      {!options_.no_shrink, options_.corpus, program, options_.backend.words()}, progress_);
    report.interrupted = interrupted();
    add_targets(report);
    return report;
  }

 private:
  // The case that a router has its turn with. The directed ones, each for one hazard, begin with another one in every
  // router, so that a first round over many routers, all that a short time may allow, meets every hazard.
  std::uint64_t case_of(std::size_t place, std::uint64_t index) const {
    const auto directed = static_cast<std::uint64_t>(properties::directed_cases(targets_[place].spec.spec, generate_));
    return index < directed ? (index + place) % directed : index;
  }

  // With captured rows every other random case has some, if it has the sizes of the spec.
  properties::Case case_at(const FuzzTarget& target, std::uint64_t index) const {
    const oracle::RouterSpec& spec = target.spec.spec;
    const auto directed = static_cast<std::uint64_t>(properties::directed_cases(spec, generate_));
    const bool captures = captured_ && index >= directed && (index - directed) % 2 == 0;
    properties::GenerateOptions generate = generate_;
    if (captures) generate.logits_stage = false;
    properties::Case c =
        properties::generate_case(target.spec.name, target.spec.variant, spec, options_.seed, index, generate);
    if (captures) captured_->put_into(c);
    return c;
  }

  // Case `index` of every router, in an order of its own. False: the run is over.
  bool run_round(std::uint64_t index) {
    bool any = false;
    for (std::size_t turn = 0; turn < targets_.size(); ++turn) {
      const std::size_t place = (first_ + turn) % targets_.size();
      FuzzTarget& target = targets_[place];
      if (!target.refused.empty()) continue;
      if (!budget_.left(index, campaign_.rows())) return false;
      if (interrupted()) return false;
      any = true;
      show(target);
      CaseFile file;
      file.c = within_memory([&] { return shape_text(target.spec.spec); },
                             [&] { return case_at(target, case_of(place, index)); });
      file.full_spec = target.spec.spec;
      file.layer = target.spec.layer;
      if (const auto reason = subject_.unsupported(file.c.spec)) {
        campaign_.skip(*reason);
        if (target.run.skipped++ == 0) target.run.skip_reason = *reason;
        continue;
      }
      if (campaign_.quarantines(file)) {
        target.quarantined = true;
        continue;
      }
      ++target.run.cases;
      target.run.rows += file.c.description.num_tokens;
      if (campaign_.add(file, run_case(file.c, subject_)) && options_.fail_fast) return false;
    }
    return any;
  }

  // The known cases of the routers' methods; of all methods where all specs are asked for. True: one failed.
  bool run_known_cases() {
    bool failed = false;
    for (const KnownCase& known : known_cases()) {
      const properties::CaseDescription& d = known.file.c.description;
      const bool wanted = options_.all_specs || same_method(known.file.c.spec, targets_.front().spec.spec);
      const bool stage = d.stage == properties::Stage::kFull ? generate_.full_stage : generate_.logits_stage;
      const bool fits = generate_.max_tokens == 0 || d.num_tokens <= generate_.max_tokens;
      if (!wanted || !stage || !fits || interrupted()) continue;
      if (oracle::unsupported_reason(known.file.c.spec) || subject_.unsupported(known.file.c.spec)) continue;
      if (campaign_.quarantines(known.file, known.name)) continue;
      failed = campaign_.add_known(known, run_main(known.file.c, subject_)) || failed;
      if (failed && options_.fail_fast) return true;
    }
    return failed;
  }

  void show(const FuzzTarget& target) {
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    std::string line =
        fmt::format("fuzz {} on {}: {}", target.spec.name, options_.backend.name(), grouped(campaign_.cases()));
    if (budget_.cases != UINT64_MAX) line += fmt::format("/{}", budget_.cases * targets_.size());
    line += " cases, ";
    line += campaign_.first_failures().empty() ? "no failure" : "FAILED " + campaign_.failed_laws();
    line += fmt::format(", {} rows", grouped(campaign_.rows()));
    const double rate = seconds > 0 ? static_cast<double>(campaign_.cases()) / seconds : 0.0;
    progress_.update(rate > 0 ? line + fmt::format(", {:.1f} cases/s", rate) : line);
  }

  void add_targets(Report& report) {
    std::set<std::string> unmet;
    if (captured_ && !report.hazards.contains(CapturedRows::kHazard)) unmet.insert(CapturedRows::kHazard);
    for (const FuzzTarget& target : targets_) {
      if (!target.refused.empty() || target.run.cases == 0) continue;
      for (const properties::Hazard& hazard : properties::all_hazards()) {
        if (properties::possible(hazard, target.spec.spec, generate_) && !report.hazards.contains(hazard.label)) {
          unmet.insert(hazard.label);
        }
      }
    }
    report.hazards_not_met.assign(unmet.begin(), unmet.end());
    report.only_known_cases = !campaign_.judges_cases();
    if (!options_.all_specs || report.only_known_cases) return;
    for (const FuzzTarget& target : targets_) {
      SpecRun run = target.run;
      run.name = target.spec.name;
      run.layer = target.spec.layer;
      if (!target.refused.empty()) run.skip_reason = target.refused;
      if (run.cases == 0 && target.quarantined) run.skip_reason = "quarantined by the ledger";
      run.inconclusive = campaign_.inconclusive_laws(target.spec.spec);
      report.specs.push_back(std::move(run));
    }
  }

  const FuzzOptions& options_;
  std::vector<FuzzTarget> targets_;
  std::optional<CapturedRows> captured_;
  properties::Subject& subject_;
  properties::GenerateOptions generate_;
  Budget budget_;
  Campaign campaign_;
  Progress progress_;
  std::size_t first_ = 0;  // the place that every round begins at
  Clock::time_point start_ = Clock::now();
};

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
  if (options.all_specs == !options.spec.spec.empty()) {
    throw UsageError(options.all_specs ? "--all-specs and --spec: found both; allowed: one of them"
                                       : "no spec: give --spec S (see `samebits list specs`) or --all-specs");
  }
  std::vector<FuzzTarget> targets;
  if (options.all_specs) {
    targets = all_targets(options.spec);
  } else {
    targets.emplace_back().spec = resolve_runnable_spec(options.spec);
  }
  require_known_laws(options.laws);
  std::optional<CapturedRows> captured;
  if (!options.captured.empty()) {
    if (options.all_specs || options.odd_shapes || options.stage == "from_logits") {
      throw UsageError(
          "--captured: the rows are of one spec and its sizes; not allowed with --all-specs, --odd-shapes or "
          "--stage from_logits");
    }
    captured.emplace(options.captured, targets.front().spec.spec);
  }
  const Shard shard = parse_shard(options.shard);
  const std::vector<LedgerEntry> ledger = read_ledger_option(options.ledger);
  if (!options.json.empty()) check_writable_file(options.json);
  const CorpusFolder corpus(options.corpus);
  const std::unique_ptr<properties::Subject> subject = open(options.backend);

  Report header;
  header.command = "fuzz";
  header.spec = options.all_specs ? all_specs_text(targets) : targets.front().spec.name;
  header.variant = options.all_specs ? "" : targets.front().spec.variant;
  if (!options.all_specs) header.notes = targets.front().spec.notes;
  header.backend = options.backend.name();
  header.claims = subject->claims();
  header.seed = options.seed;
  FuzzRun run(options, std::move(targets), std::move(captured), *subject, std::move(header),
              Ledger(ledger, subject->claims(), today()));
  run.run(shard);
  const Report report = run.finish(program);
  publish(report, options.json);
  return exit_code(report);
}

}  // namespace

void add_fuzz(CLI::App& app, Program& program) {
  CLI::App* command = app.add_subcommand("fuzz", "Generate cases, run a router on them and judge its answers");
  auto options = std::make_shared<FuzzOptions>();
  add_spec_options(*command, options->spec);
  CLI::Option* spec = command->get_option("--spec")->required(false);
  command
      ->add_flag("--all-specs", options->all_specs,
                 "Every built-in spec in turn, from one that the seed decides; those that cannot be run are named")
      ->excludes(spec)
      ->excludes(command->get_option("--variant"))
      ->excludes(command->get_option("--layer"));
  add_backend_options(*command, options->backend);
  add_laws_option(*command, options->laws);
  command->add_option("--seed", options->seed, "Case I of a seed is the same everywhere")
      ->type_name("N")
      ->check(whole_number(0, UINT64_MAX))
      ->capture_default_str();
  command
      ->add_option("--cases", options->cases,
                   "Number of cases, with --all-specs of each [200, 24; without limit with --time or --rows]")
      ->type_name("N")
      ->check(whole_number(1, INT64_MAX));
  command->add_option("--rows", options->rows, "Stop when this number of rows was judged")
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
  add_ledger_option(*command, options->ledger);
  command
      ->add_option("--stage", options->stage,
                   "Cases that start from hidden states (full), from given logits (from_logits), or both (any)")
      ->check(CLI::IsMember({"any", "full", "from_logits"}))
      ->type_name("STAGE")
      ->capture_default_str();
  command->add_flag("--no-known-cases", options->no_known_cases,
                    "Leave out the built-in case files of the same method, which come first (see `list cases`)");
  command
      ->add_option(
          "--captured", options->captured,
          "Take the rows of every other random case from a safetensors file with hidden_states [N, H]; what it "
          "has of gate weight, biases and scales, too (docs/files.md)")
      ->type_name("FILE");
  command->add_flag("--odd-shapes", options->odd_shapes,
                    "Draw E, k and H at the edges of warps, blocks and vectors instead of those of the spec");
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
