// samebits mutants: every router with a planted fault must be caught by the law that it names.
#include "kernels/mutants/mutants.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "harness/cli/interrupt.h"
#include "harness/cli/mutant_trials.h"
#include "harness/cli/mutants_elsewhere.h"
#include "harness/cli/options.h"
#include "harness/cli/output.h"
#include "harness/cli/program.h"
#include "harness/io/files.h"
#include "harness/io/nearest.h"

namespace samebits::harness {
namespace {

using nlohmann::ordered_json;

struct MutantsOptions {
  std::vector<std::string> names;
  int seeds = 5;
  std::string json, progress = "auto";
};

std::vector<const mutants::Mutant*> chosen_mutants(const std::vector<std::string>& names) {
  std::vector<const mutants::Mutant*> chosen;
  if (names.empty()) {
    for (const mutants::Mutant& mutant : mutants::all_mutants()) chosen.push_back(&mutant);
  }
  for (const std::string& name : names) {
    chosen.push_back(mutants::find_mutant(name.c_str()));
    if (chosen.back() != nullptr) continue;
    std::vector<std::string> known;
    for (const mutants::Mutant& mutant : mutants::all_mutants()) known.emplace_back(mutant.name);
    throw UsageError(fmt::format("--mutant: unknown mutant \"{}\"; {}", name, suggest_names(name, known)));
  }
  return chosen;
}

std::string count(std::int64_t number, const char* thing) {
  return fmt::format("{} {}{}", number, thing, number == 1 ? "" : "s");
}

std::string line_of(const MutantTrial& trial) {
  const mutants::Mutant& mutant = *trial.mutant;
  std::string line = fmt::format("{:<4} {:<32} ", mutant.id, mutant.name);
  if (!trial.problem.empty()) return line + fmt::format("NOT TRIED: {}", trial.problem);
  line += fmt::format("{} by {:<18} {} of {} seeds, {}", trial.caught() ? "caught" : "NOT CAUGHT", mutant.caught_by,
                      trial.seeds_caught(), trial.seeds.size(), count(trial.most_cases(), "case"));
  if (trial.shrunk_rows > 0) {
    line += fmt::format(", shrunk to {} × {}", count(trial.shrunk_rows, "row"), count(trial.shrunk_experts, "expert"));
  }
  return line;
}

// The middle one; of an even number the larger of the two in the middle. 0: there is none.
template <class Size>
std::int64_t median(const std::vector<MutantTrial>& trials, Size size) {
  std::vector<std::int64_t> sizes;
  for (const MutantTrial& trial : trials) {
    if (trial.shrunk_rows > 0) sizes.push_back(trial.*size);
  }
  if (sizes.empty()) return 0;
  const auto middle = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2);
  std::ranges::nth_element(sizes, middle);
  return *middle;
}

std::string to_json(const Trials& trials, double seconds) {
  ordered_json rows = ordered_json::array();
  for (const MutantTrial& trial : trials.mutants) {
    const mutants::Mutant& mutant = *trial.mutant;
    ordered_json seeds = ordered_json::array();
    for (const SeedTrial& seed : trial.seeds) {
      seeds.push_back({{"caught", seed.caught}, {"cases", seed.cases}, {"hazard", seed.hazard}});
    }
    rows.push_back({{"id", mutant.id},
                    {"name", mutant.name},
                    {"fault", mutant.fault},
                    {"caught_by", mutant.caught_by},
                    {"source", mutant.source},
                    {"router", router_text(mutant.router)},
                    {"caught", trial.caught()},
                    {"seeds", std::move(seeds)},
                    {"shrunk_rows", trial.shrunk_rows},
                    {"shrunk_experts", trial.shrunk_experts},
                    {"shrink_evaluations", trial.shrink_evaluations},
                    {"summary", trial.summary},
                    {"problem", trial.problem},
                    {"seconds", trial.seconds}});
  }
  ordered_json sound = ordered_json::array();
  for (const SoundTrial& trial : trials.sound) {
    sound.push_back({{"router", router_text(*trial.router)},
                     {"law", trial.law},
                     {"passed", trial.passed()},
                     {"cases", trial.cases},
                     {"relevant", trial.relevant},
                     {"violation", trial.violation}});
  }
  ordered_json elsewhere = ordered_json::array();
  for (const MutantElsewhere& mutant : mutants_elsewhere()) {
    elsewhere.push_back({{"id", mutant.id},
                         {"name", mutant.name},
                         {"fault", mutant.fault},
                         {"caught_by", mutant.caught_by},
                         {"where", mutant.where}});
  }
  const ordered_json root = {{"schema_version", 1},
                             {"program", "samebits"},
                             {"program_version", SAMEBITS_VERSION},
                             {"command", "mutants"},
                             {"passed", trials.passed()},
                             {"seconds", seconds},
                             {"mutants", std::move(rows)},
                             {"sound_router", std::move(sound)},
                             {"tested_elsewhere", std::move(elsewhere)}};
  return root.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

void print_summary(const Trials& trials, int seeds, double seconds) {
  const auto caught = std::ranges::count_if(trials.mutants, &MutantTrial::caught);
  print_out("{} of {} caught by the law that they name on {}; median of the shrunk cases: {} and {}; {:.0f} s\n",
            caught, count(static_cast<std::int64_t>(trials.mutants.size()), "mutant"), count(seeds, "seed"),
            count(median(trials.mutants, &MutantTrial::shrunk_rows), "row"),
            count(median(trials.mutants, &MutantTrial::shrunk_experts), "expert"), seconds);
  std::int64_t cases = 0;
  for (const SoundTrial& trial : trials.sound) {
    cases += trial.cases;
    if (trial.passed()) continue;
    print_out("FAILED: the right router cpu under {} on {}: {}\n", trial.law, router_text(*trial.router),
              trial.violation.empty() ? "no relevant case" : trial.violation);
  }
  if (std::ranges::all_of(trials.sound, &SoundTrial::passed)) {
    print_out("the right router passes the same laws on the same {} cases\n", cases);
  }
}

int run_mutants(const MutantsOptions& options) {
  const std::vector<const mutants::Mutant*> chosen = chosen_mutants(options.names);
  if (!options.json.empty()) check_writable_file(options.json);
  const auto start = std::chrono::steady_clock::now();
  Progress progress(progress_mode(options.progress));
  const Trials trials = try_mutants(chosen, {options.seeds}, [&](std::size_t done, std::size_t all) {
    progress.update(done < all ? fmt::format("mutants: {}/{}", done, all) : "mutants: the right router");
  });
  progress.clear();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const MutantTrial& trial : trials.mutants) print_out("{}\n", line_of(trial));
  if (options.names.empty()) {
    for (const MutantElsewhere& mutant : mutants_elsewhere()) {
      print_out("{:<4} {:<32} tested elsewhere: {}\n", mutant.id, mutant.name, mutant.where);
    }
  }
  print_summary(trials, options.seeds, seconds);
  flush_output();
  if (!options.json.empty()) write_file(options.json, to_json(trials, seconds));
  if (interrupted()) return 130;
  return trials.passed() ? 0 : 1;
}

}  // namespace

void add_mutants(CLI::App& app, Program& program) {
  CLI::App* command =
      app.add_subcommand("mutants", "Judge routers with one planted fault each, which a law must catch");
  auto options = std::make_shared<MutantsOptions>();
  command->add_option("--mutant", options->names, "Only these, by name or id, e.g. --mutant bf16_bias,M27")
      ->delimiter(',')
      ->type_name("A,B")
      ->allow_extra_args(false);
  command->add_option("--seeds", options->seeds, "Seeds 1 to N, each of which must show the fault")
      ->type_name("N")
      ->check(whole_number(1, 1000))
      ->capture_default_str();
  command->add_option("--json", options->json, "Write the results as JSON")->type_name("FILE");
  add_progress_option(*command, options->progress);
  command->footer("Example:\n  samebits mutants --mutant ties_to_higher_id");
  command->callback([options, &program] { program.action = [options] { return run_mutants(*options); }; });
}

}  // namespace samebits::harness
