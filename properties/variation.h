// Derived routers: other specs and inputs whose answers follow from those of the case, whatever the right answer is.
#pragma once

#include <cstdint>

#include "oracle/spec/router_spec.h"
#include "oracle/tensors/router_inputs.h"

namespace samebits::properties {

enum class Variation : std::uint8_t {
  kNone,
  kPermutedExperts,  // experts trade places, with the tensors that belong to them
  kDoubledScale,     // twice the routed scaling factor
  kOtherScale,       // a routed scaling factor of 1, or of 2.5 where it was 1
  kBf16Weights,      // weights rounded to bf16
  kAllGroups,        // groups of which every one is kept
  kNoGroups,         // no groups, where kAllGroups has those of the spec
  kGivenLogits,      // given logits, finite multiples of 2^-10 in [-64, 64]
  kShiftedLogits,    // those, all larger by 4
  kAppendedExpert,   // those, and one more expert whose logit and selection bias are -Inf
  kRoundBiases,      // those, and selection biases that are multiples of 2^-4 in [-8, 8)
  kRaisedBiases,     // those, all selection biases larger by 8
  kSoftmaxOfChosen,  // given logits, with a softmax over the chosen instead of a renormalised softmax over all
};
inline constexpr Variation kVariations[] = {
    Variation::kPermutedExperts, Variation::kDoubledScale, Variation::kOtherScale,   Variation::kBf16Weights,
    Variation::kAllGroups,       Variation::kNoGroups,     Variation::kGivenLogits,  Variation::kShiftedLogits,
    Variation::kAppendedExpert,  Variation::kRoundBiases,  Variation::kRaisedBiases, Variation::kSoftmaxOfChosen,
};
const char* name_of(Variation variation);  // "permuted_experts", ...

// Whether the derived router exists and answers as `metamorphic` (laws/metamorphic.cpp) says.
bool can_vary(const oracle::RouterSpec& spec, Variation variation);
// The router to compare with: kNone is that of the case.
Variation base_of(const oracle::RouterSpec& spec, Variation variation);
// The id under kPermutedExperts of the expert that the case knows as `id`. Its own inverse.
std::int64_t permuted_id(const oracle::RouterSpec& spec, std::int64_t id);

struct DerivedRouter {
  oracle::RouterSpec spec;
  oracle::RouterInputs inputs;
};
// For kNone the arguments. Otherwise can_vary must hold.
DerivedRouter derive(const oracle::RouterSpec& spec, const oracle::RouterInputs& inputs, Variation variation);

}  // namespace samebits::properties
