#include "properties/generate.h"

#include <rapidcheck.h>

#include <stdexcept>
#include <utility>
#include <vector>

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
  for (int spare = 1; hazards.size() > kMaxDirected; ++spare) {
    if (std::erase_if(hazards, [=](const Hazard* hazard) { return hazard->spare == spare; }) == 0) break;
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
  CaseDescription description = describe_case(spec, seed, index, options);
  description.seed = seed;
  description.index = index;
  description.data_key = random_bits(seed, Stream::kCase, static_cast<std::int64_t>(index), 0);
  return {spec_name, variant, apply_shape(spec, description), std::move(description)};
}

}  // namespace samebits::properties
