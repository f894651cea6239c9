#include "properties/generate.h"

#include <rapidcheck.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>
#include <vector>

#include "oracle/spec/validate.h"
#include "properties/generators/hazards.h"
#include "properties/generators/random_bits.h"

namespace samebits::properties {
namespace {

using Tokens = std::int64_t;

// Row counts at and around the edges of tiles and dispatch limits, few of them large: a full-size row costs a third of
// a millisecond, and every case repeats its rows several times.
rc::Gen<Tokens> tokens_with_gate() {
  return rc::gen::weightedOneOf<Tokens>({
      {50, rc::gen::inRange<Tokens>(1, 19)},
      {20, rc::gen::element<Tokens>(16, 17, 18)},
      {13, rc::gen::element<Tokens>(31, 32, 33)},
      {7, rc::gen::element<Tokens>(63, 64, 65)},
      {4, rc::gen::element<Tokens>(127, 128, 129)},
      {2, rc::gen::element<Tokens>(255, 256, 257)},
      {1, rc::gen::element<Tokens>(511, 512, 513)},
  });
}

rc::Gen<Tokens> tokens_from_logits() {
  return rc::gen::weightedOneOf<Tokens>({
      {40, rc::gen::inRange<Tokens>(1, 19)},
      {20, rc::gen::element<Tokens>(16, 17, 18, 31, 32, 33)},
      {15, rc::gen::element<Tokens>(63, 64, 65)},
      {10, rc::gen::element<Tokens>(127, 128, 129)},
      {6, rc::gen::element<Tokens>(255, 256, 257)},
      {2, rc::gen::element<Tokens>(511, 512, 513)},
      {1, rc::gen::inRange<Tokens>(1024, 1041)},
  });
}

rc::Gen<Tokens> tokens_at_boundaries() {
  return rc::gen::weightedElement<Tokens>({{3, 15},
                                           {6, 16},
                                           {8, 17},
                                           {3, 18},
                                           {2, 31},
                                           {2, 32},
                                           {2, 33},
                                           {1, 63},
                                           {1, 64},
                                           {1, 65},
                                           {1, 127},
                                           {1, 128},
                                           {1, 129}});
}

rc::Gen<CaseDescription> random_description(const oracle::RouterSpec& spec, const GenerateOptions& options) {
  std::vector<const Hazard*> weighted;
  for (const Hazard& hazard : all_hazards()) {
    if (possible(hazard, spec, options))
      weighted.insert(weighted.end(), static_cast<std::size_t>(hazard.weight), &hazard);
  }
  const auto draws = rc::gen::pair(rc::gen::elementOf(weighted), rc::gen::arbitrary<std::uint64_t>());
  return rc::gen::mapcat(draws, [=](const std::pair<const Hazard*, std::uint64_t>& drawn) {
    const Hazard& hazard = *drawn.first;
    const std::uint64_t choices = drawn.second;
    const bool full = stage_of(hazard, options, {1, choices}) == Stage::kFull;
    const rc::Gen<Tokens> tokens = hazard.label == std::string("dispatch_boundary") ? tokens_at_boundaries()
                                   : full                                           ? tokens_with_gate()
                                                                                    : tokens_from_logits();
    return rc::gen::map(tokens, [=, &hazard](Tokens num_tokens) {
      return describe(hazard, spec, options, {num_tokens, choices});
    });
  });
}

std::vector<const Hazard*> directed_hazards(const oracle::RouterSpec& spec, const GenerateOptions& options) {
  std::vector<const Hazard*> hazards;
  for (const Hazard& hazard : all_hazards()) {
    if (hazard.directed_tokens > 0 && possible(hazard, spec, options)) hazards.push_back(&hazard);
  }
  for (int spare = 1; hazards.size() > kMaxDirected && spare <= kMaxSpare; ++spare) {
    std::erase_if(hazards, [=](const Hazard* hazard) { return hazard->spare == spare; });
  }
  return hazards;
}

CaseDescription describe_case(const oracle::RouterSpec& spec, std::uint64_t seed, std::uint64_t index,
                              const GenerateOptions& options) {
  const std::vector<const Hazard*> directed = directed_hazards(spec, options);
  if (index < directed.size()) return describe(*directed[index], spec, options, {directed[index]->directed_tokens, 0});
  const rc::Random random(rc::Random::Key{seed, index, 0, 0});
  return random_description(spec, options)(random, rc::kNominalSize).value();
}

// The rules of the spec at other sizes: E, k and H at and around the edges of warps, blocks and vectors. What the rules
// do not allow at these sizes gives way, groups last.
oracle::RouterSpec odd_shape(const oracle::RouterSpec& spec, std::uint64_t seed, std::uint64_t index) {
  constexpr std::int64_t kExperts[] = {1,   2,   3,   5,   8,   31,  32,  33,  60,  63,   64,   65,
                                       96,  127, 128, 129, 144, 160, 192, 255, 256, 257,  288,  320,
                                       384, 511, 512, 513, 576, 640, 896, 992, 993, 1023, 1024, 1025};
  constexpr std::int64_t kTopK[] = {1, 2, 3, 5, 6, 7, 8, 9, 10, 16, 17, 22, 31, 32, 33};
  constexpr std::int64_t kHidden[] = {1,  2,   8,   15,  16,  17,  24,  31,   32,  33,
                                      64, 127, 255, 256, 257, 511, 513, 1000, 2056};
  const auto draw = [&](std::int64_t column, const auto& values) {
    const std::uint64_t bits = random_bits(seed, Stream::kShape, static_cast<std::int64_t>(index), column);
    return values[static_cast<std::size_t>(uniform_below(bits, static_cast<std::int64_t>(std::size(values))))];
  };
  oracle::RouterSpec odd = spec;
  odd.shape.num_experts = draw(0, kExperts);
  odd.shape.hidden_size = draw(1, kHidden);
  const std::int64_t ranked = oracle::ranked_experts(odd), top_k = draw(2, kTopK);
  odd.shape.top_k = std::min(top_k, ranked);
  if (oracle::find_problems(odd).empty()) return odd;
  odd.selection.n_group = odd.selection.topk_group = 1;
  odd.selection.group_score = oracle::GroupScore::kNone;
  odd.selection.group_mask = oracle::GroupMask::kNone;
  odd.selection.topk_scope = oracle::TopkScope::kGlobal;
  return oracle::find_problems(odd).empty() ? odd : spec;
}

}  // namespace

std::int64_t directed_cases(const oracle::RouterSpec& spec, const GenerateOptions& options) {
  return static_cast<std::int64_t>(directed_hazards(spec, options).size());
}

Case generate_case(const std::string& spec_name, const std::string& variant, const oracle::RouterSpec& spec,
                   std::uint64_t seed, std::uint64_t index, const GenerateOptions& options) {
  if (!options.full_stage && !options.logits_stage) {
    throw std::invalid_argument("no stage to generate for: neither hidden states nor given logits are allowed");
  }
  if (!spec.shape.num_experts || !spec.shape.top_k || !spec.shape.hidden_size) {
    throw std::invalid_argument("spec " + spec.name +
                                ": shape.hidden_size, shape.num_experts and shape.top_k must be set "
                                "to generate cases");
  }
  const oracle::RouterSpec shaped = options.odd_shapes ? odd_shape(spec, seed, index) : spec;
  CaseDescription description = describe_case(shaped, seed, index, options);
  description.seed = seed;
  description.index = index;
  description.data_key = random_bits(seed, Stream::kCase, static_cast<std::int64_t>(index), 0);
  return {spec_name, variant, apply_shape(shaped, description), std::move(description)};
}

}  // namespace samebits::properties
