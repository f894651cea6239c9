// Hazards: what a case is meant to provoke, each with the description that provokes it on purpose.
#pragma once

#include <cstdint>
#include <span>

#include "properties/case.h"
#include "properties/generate.h"

namespace samebits::properties {

// The free choices of a case. Directed cases use `choices` 0, random ones draw it.
struct Draw {
  std::int64_t num_tokens = 1;
  std::uint64_t choices = 0;
};

// Where a hazard can be planted.
enum class HazardStage {
  kFull,       // needs hidden states
  kAny,        // hidden states, or given logits where only those are possible
  kLogits,     // given logits, or a gate weight that yields the same logits where only hidden states are possible
  kGivenOnly,  // needs given logits
  kBias,       // hidden states, as a linear bias acts before the logits are finished; given logits where only those are
               // possible and the spec has a selection bias
};

struct Hazard {
  const char* label;
  HazardStage stage;
  bool (*applies)(const oracle::RouterSpec& spec);
  std::int64_t directed_tokens;  // 0: no directed case
  int weight;                    // share among the random cases; 0: directed only
  void (*build)(const oracle::RouterSpec& spec, const Draw& draw, CaseDescription& description);
  // Left to the random cases (with a weight of 0: out) where a spec has more than kMaxDirected hazards, 1 first; 0:
  // never.
  int spare = 0;
};
inline constexpr int kMaxSpare = 8;
inline constexpr std::size_t kMaxDirected = 20;

// Those of every router, in the order of the directed cases; those of features that a spec may have; those of places
// and counts; those of constants.
std::span<const Hazard> general_hazards();
std::span<const Hazard> feature_hazards();
std::span<const Hazard> edge_hazards();
std::span<const Hazard> constant_hazards();
std::span<const Hazard> all_hazards();  // of all four
bool possible(const Hazard& hazard, const oracle::RouterSpec& spec, const GenerateOptions& options);
Stage stage_of(const Hazard& hazard, const GenerateOptions& options, const Draw& draw);

// The description of a hazard: sizes of the spec, `draw`, and everything else as the hazard needs it.
CaseDescription describe(const Hazard& hazard, const oracle::RouterSpec& spec, const GenerateOptions& options,
                         const Draw& draw);

}  // namespace samebits::properties
