// Whether each mutant is caught by the law that it names, and whether the right router passes that law on the same
// cases.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/mutants/mutants.h"

namespace samebits::harness {

struct TrialOptions {
  int seeds = 5;  // 1, 2, ...
};

// One seed of a mutant: the directed cases of its router, then random ones, up to the first that its law catches.
struct SeedTrial {
  bool caught = false;
  std::int64_t cases = 0;  // judged, the one that was caught included
  std::string hazard;      // of the case that was caught
};

struct MutantTrial {
  const mutants::Mutant* mutant = nullptr;
  std::vector<SeedTrial> seeds;  // seed 1 first
  // The case of seed 1 after shrinking; 0: it was not caught.
  std::int64_t shrunk_rows = 0, shrunk_experts = 0;
  int shrink_evaluations = 0;
  std::string summary;  // what the law says of the shrunk case
  std::string problem;  // why it could not be tried; empty: it could
  double seconds = 0;   // of one thread

  int seeds_caught() const;
  std::int64_t most_cases() const;
  bool caught() const;  // on every seed
};

// The router `cpu` under one law, on every case on which a mutant of this router spec was tried under it.
struct SoundTrial {
  const mutants::Router* router = nullptr;
  std::string law;
  std::int64_t cases = 0, relevant = 0;
  std::string violation;  // or why it could not be tried; empty: none
  bool passed() const { return violation.empty() && relevant > 0; }
};

struct Trials {
  std::vector<MutantTrial> mutants;  // in the order given
  std::vector<SoundTrial> sound;
  bool passed() const;
};

// One thread a core. on_progress(done, all) is called between mutants, by one thread at a time. Stops early when
// interrupted() becomes true; what was not tried is missing then.
Trials try_mutants(const std::vector<const mutants::Mutant*>& mutants, const TrialOptions& options,
                   const std::function<void(std::size_t, std::size_t)>& on_progress);

// "deepseek-v4-flash, layer 0, shape.top_k=1"
std::string router_text(const mutants::Router& router);

}  // namespace samebits::harness
