#include "oracle/second/test/compare/campaign.h"

namespace samebits::second {

Case reduced_case(const std::vector<NamedSpec>& specs, std::uint64_t seed, std::int64_t index) {
  Random random((seed * 0x2545f4914f6cdd1du) ^ (static_cast<std::uint64_t>(index) * 0x9e3779b97f4a7c15u));
  random.next();
  const NamedSpec& named = specs[static_cast<std::size_t>(index) % specs.size()];
  Case result;
  result.spec = reduced(named.spec, random);
  result.name = named.name + ", case " + std::to_string(index);
  if (random.one_in(3)) {
    result.spec = varied(result.spec, random);
    result.name += " (varied)";
  }
  const Start start = random.one_in(3) ? Start::kHiddenStates : Start::kGivenLogits;
  result.inputs = make_inputs(result.spec, start, kRowsOfCase, random.one_in(4), random);
  return result;
}

Case full_size_case(const NamedSpec& spec, std::uint64_t seed, std::int64_t num_rows) {
  Random random(seed);
  Case result;
  result.spec = full_size(spec.spec);
  result.name = spec.name + " at full size";
  const Start start = spec.is_base ? Start::kHiddenStates : Start::kGivenLogits;
  result.inputs = make_inputs(result.spec, start, num_rows, true, random);
  result.most_contract_logits = 4;
  return result;
}

}  // namespace samebits::second
