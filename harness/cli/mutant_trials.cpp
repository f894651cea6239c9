#include "harness/cli/mutant_trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "harness/backend/backend.h"
#include "harness/cli/interrupt.h"
#include "harness/io/spec_library.h"
#include "properties/generate.h"
#include "properties/shrink.h"

namespace samebits::harness {
namespace {

using Clock = std::chrono::steady_clock;

// Small cases: no mutant is about size, and a limit that one has lies below the 65 rows of the tiled runs.
constexpr const char* kHiddenSize = "64";
constexpr std::int64_t kMaxTokens = 40;
constexpr std::uint64_t kRandomCases = 60;
constexpr int kShrinkEvaluations = 1000;

// The cases of a router and a seed.
class Cases {
 public:
  explicit Cases(const mutants::Router& router) : name_(router.spec) {
    oracle::Resolution resolution;
    if (router.layer != nullptr) resolution.layer = router.layer;
    resolution.set = {{"shape.hidden_size", kHiddenSize}};
    for (const mutants::Setting& setting : router.set) resolution.set.push_back({setting.path, setting.value});
    spec_ = oracle::resolve(load_spec(name_), resolution);
    options_.max_tokens = kMaxTokens;
    count_ = static_cast<std::uint64_t>(properties::directed_cases(spec_, options_)) + kRandomCases;
  }
  std::uint64_t count() const { return count_; }
  properties::Case at(int seed, std::uint64_t index) const {
    return properties::generate_case(name_, "", spec_, static_cast<std::uint64_t>(seed), index, options_);
  }

 private:
  std::string name_;
  oracle::RouterSpec spec_;
  properties::GenerateOptions options_;
  std::uint64_t count_;
};

// Of one law on one case; relevant 0 where the law does not apply to its shape.
properties::LawOutcome judge(const properties::Case& c, properties::Subject& subject, const std::string& law) {
  properties::LawOutcome outcome;
  for (properties::LawResult& result : properties::evaluate(c, subject, {law})) outcome = std::move(result.outcome);
  return outcome;
}

SeedTrial try_seed(const Cases& cases, int seed, properties::Subject& subject, const std::string& law) {
  SeedTrial trial;
  for (std::uint64_t index = 0; index < cases.count() && !interrupted(); ++index) {
    const properties::Case c = cases.at(seed, index);
    ++trial.cases;
    if (subject.unsupported(c.spec) || !judge(c, subject, law).violation) continue;
    trial.caught = true;
    trial.hazard = c.description.hazard;
    break;
  }
  return trial;
}

void shrink(const Cases& cases, properties::Subject& subject, MutantTrial& trial) {
  const auto index = static_cast<std::uint64_t>(trial.seeds.front().cases) - 1;
  const properties::ShrinkResult result =
      properties::shrink(cases.at(1, index), trial.mutant->caught_by, subject, {kShrinkEvaluations},
                         [](int, const properties::Case&) { return !interrupted(); });
  trial.shrunk_rows = result.minimal.description.num_tokens;
  trial.shrunk_experts = result.minimal.description.num_experts;
  trial.shrink_evaluations = result.evaluations;
  trial.summary = result.violation.summary;
}

MutantTrial try_mutant(const mutants::Mutant& mutant, int seeds) {
  const Clock::time_point start = Clock::now();
  MutantTrial trial;
  trial.mutant = &mutant;
  try {
    const Cases cases(mutant.router);
    const auto subject = open_backend({.name = std::string("mutant:") + mutant.name, .plugin = std::nullopt});
    for (int seed = 1; seed <= seeds && !interrupted(); ++seed) {
      trial.seeds.push_back(try_seed(cases, seed, *subject, mutant.caught_by));
    }
    if (!trial.seeds.empty() && trial.seeds.front().caught && !interrupted()) shrink(cases, *subject, trial);
  } catch (const std::exception& error) {
    trial.problem = error.what();
  }
  trial.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return trial;
}

// How many cases of each seed the right router has to pass.
struct SoundTask {
  const mutants::Router* router;
  std::string law;
  std::vector<std::int64_t> cases;
};

std::vector<SoundTask> sound_tasks(const std::vector<MutantTrial>& trials) {
  std::map<std::pair<std::string, std::string>, SoundTask> tasks;
  for (const MutantTrial& trial : trials) {
    const std::string law = trial.mutant->caught_by;
    SoundTask& task = tasks[{router_text(trial.mutant->router), law}];
    task.router = &trial.mutant->router;
    task.law = law;
    task.cases.resize(std::max(task.cases.size(), trial.seeds.size()));
    for (std::size_t s = 0; s < trial.seeds.size(); ++s) {
      task.cases[s] = std::max(task.cases[s], trial.seeds[s].cases);
    }
  }
  std::vector<SoundTask> list;
  for (auto& [key, task] : tasks) list.push_back(std::move(task));
  return list;
}

SoundTrial try_sound(const SoundTask& task) {
  SoundTrial trial;
  trial.router = task.router;
  trial.law = task.law;
  try {
    const Cases cases(*task.router);
    const auto subject = open_backend({.name = "cpu", .plugin = std::nullopt});
    for (std::size_t s = 0; s < task.cases.size(); ++s) {
      for (std::int64_t i = 0; i < task.cases[s] && !interrupted(); ++i) {
        const properties::Case c = cases.at(static_cast<int>(s) + 1, static_cast<std::uint64_t>(i));
        ++trial.cases;
        const properties::LawOutcome outcome = judge(c, *subject, task.law);
        trial.relevant += outcome.relevant;
        if (!outcome.violation) continue;
        trial.violation = fmt::format("seed {}, case {}: {}", s + 1, i, outcome.violation->summary);
        return trial;
      }
    }
  } catch (const std::exception& error) {
    trial.violation = error.what();
  }
  return trial;
}

// results[i] = work(i) for every i, on one thread a core. An interrupted run leaves results as they were.
template <class Result, class Work>
void for_all(std::vector<Result>& results, const Work& work, const std::function<void()>& after_each) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  const auto loop = [&] {
    for (std::size_t i = next++; i < results.size() && !interrupted(); i = next++) {
      results[i] = work(i);
      const std::lock_guard lock(mutex);
      after_each();
    }
  };
  std::vector<std::jthread> threads;
  const std::size_t count = std::min<std::size_t>(std::max(1u, std::thread::hardware_concurrency()), results.size());
  for (std::size_t t = 1; t < count; ++t) threads.emplace_back(loop);
  loop();
}

}  // namespace

int MutantTrial::seeds_caught() const {
  return static_cast<int>(std::ranges::count_if(seeds, &SeedTrial::caught));
}

std::int64_t MutantTrial::most_cases() const {
  std::int64_t most = 0;
  for (const SeedTrial& seed : seeds) most = std::max(most, seed.cases);
  return most;
}

bool MutantTrial::caught() const {
  return problem.empty() && !seeds.empty() && std::ranges::all_of(seeds, &SeedTrial::caught);
}

bool Trials::passed() const {
  return std::ranges::all_of(mutants, &MutantTrial::caught) && std::ranges::all_of(sound, &SoundTrial::passed);
}

std::string router_text(const mutants::Router& router) {
  std::string text = router.spec;
  if (router.layer != nullptr) text += fmt::format(", layer {}", router.layer);
  for (const mutants::Setting& setting : router.set) text += fmt::format(", {}={}", setting.path, setting.value);
  return text;
}

Trials try_mutants(const std::vector<const mutants::Mutant*>& list, const TrialOptions& options,
                   const std::function<void(std::size_t, std::size_t)>& on_progress) {
  Trials trials;
  trials.mutants.resize(list.size());
  std::size_t done = 0;
  for_all(
      trials.mutants, [&](std::size_t i) { return try_mutant(*list[i], options.seeds); },
      [&] { on_progress(++done, list.size()); });
  std::erase_if(trials.mutants, [](const MutantTrial& trial) { return trial.mutant == nullptr; });
  const std::vector<SoundTask> tasks = sound_tasks(trials.mutants);
  trials.sound.resize(tasks.size());
  for_all(
      trials.sound, [&](std::size_t i) { return try_sound(tasks[i]); }, [&] { on_progress(done, list.size()); });
  std::erase_if(trials.sound, [](const SoundTrial& trial) { return trial.router == nullptr; });
  return trials;
}

}  // namespace samebits::harness
