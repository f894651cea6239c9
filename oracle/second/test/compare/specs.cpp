#include "oracle/second/test/compare/specs.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <stdexcept>

#include "oracle/spec/spec_yaml.h"
#include "oracle/spec/validate.h"

namespace samebits::second {
namespace {

using oracle::RouterSpec;

void add(std::vector<NamedSpec>& specs, const std::string& name, const RouterSpec& spec) {
  if (spec.capacity == oracle::Capacity::kNone) specs.push_back({name, spec, name == spec.name});
}

void add_file(std::vector<NamedSpec>& specs, const std::filesystem::path& path) {
  const oracle::SpecFile file = oracle::read_spec_file(path);
  add(specs, file.base.name, file.base);
  std::vector<std::optional<std::string>> layers = {std::nullopt};
  for (const oracle::LayerOverride& layer : file.layer_overrides) {
    layers.emplace_back(layer.layers.empty() ? layer.name : std::to_string(layer.layers.front()));
    add(specs, file.base.name + "/layer " + *layers.back(), oracle::resolve(file, {.layer = layers.back()}));
  }
  for (const auto& [variant, assignments] : file.variants) {
    for (const auto& layer : layers) {
      const std::string suffix = layer ? "/layer " + *layer : "";
      // A variant may not go together with an override; such a pair names no router.
      try {
        add(specs, file.base.name + "/" + variant + suffix,
            oracle::resolve(file, {.variant = variant, .layer = layer}));
      } catch (const oracle::SpecError&) {
        if (!layer) throw;
      }
    }
  }
}

template <class T, std::size_t N>
T one_of(Random& random, const std::array<T, N>& values) {
  return random.of(std::span<const T>(values));
}

bool valid(const RouterSpec& spec) {
  return oracle::find_problems(spec).empty();
}

void reduce_groups(RouterSpec& spec, Random& random) {
  const std::int64_t published_groups = spec.selection.n_group;
  const std::int64_t groups = std::min<std::int64_t>(published_groups, random.between(2, 8));
  const std::int64_t least = spec.selection.group_score == oracle::GroupScore::kTop2Sum ? 2 : 1;
  const std::int64_t members = random.between(least, 8);
  spec.shape.num_experts = groups * members;
  spec.selection.n_group = groups;
  const std::int64_t scaled = spec.selection.topk_group * groups / published_groups;
  spec.selection.topk_group = std::clamp<std::int64_t>(scaled, 1, groups);
  if (spec.selection.topk_scope == oracle::TopkScope::kPerGroup) {
    spec.selection.topk_group = groups;
    spec.shape.top_k = groups * random.between(1, members);
  } else {
    const std::int64_t most = spec.selection.topk_group * members;
    spec.shape.top_k = random.one_in(3) ? random.between(1, most) : std::min(*spec.shape.top_k, most);
  }
}

void vary_once(RouterSpec& spec, Random& random) {
  switch (random.below(22)) {
    case 0:
      spec.weights.eps_mode = oracle::EpsMode::kNone;
      spec.weights.eps = 0;
      break;
    case 1:
      spec.weights.eps_mode = one_of(random, std::array{oracle::EpsMode::kAdd, oracle::EpsMode::kClampMin});
      spec.weights.eps = one_of(random, std::array{1e-20, 1e-12, 1e-6, 6.103515625e-05, 1e-45, 0.1, 3.0});
      break;
    case 2:
      spec.weights.routed_scaling_factor = one_of(random, std::array{0.0, 1.0, 2.5, 2.827, 1e-30, 1e38, 0.1});
      break;
    case 3:
      spec.weights.scale_stage =
          one_of(random, std::array{oracle::ScaleStage::kAfterRenorm, oracle::ScaleStage::kBeforeDivide,
                                    oracle::ScaleStage::kOnExpertOutput});
      break;
    case 4:
      spec.weights.renormalize = one_of(random, std::array{oracle::Renormalize::kNone, oracle::Renormalize::kL1});
      break;
    case 5:
      spec.weights.dtype = one_of(random, std::array{oracle::FloatType::kFp32, oracle::FloatType::kBf16});
      break;
    case 6:
      spec.score.dtype = one_of(random, std::array{oracle::FloatType::kFp32, oracle::FloatType::kBf16});
      break;
    case 7:
      spec.score.func = one_of(random, std::array{oracle::ScoreFunc::kSoftmax, oracle::ScoreFunc::kSigmoid,
                                                  oracle::ScoreFunc::kSqrtSoftplus, oracle::ScoreFunc::kIdentity});
      if (random.one_in(2)) spec.weights.renormalize = oracle::Renormalize::kNone;
      break;
    case 8:
      spec.selection.sort = one_of(random, std::array{oracle::SlotOrder::kByKeyDesc, oracle::SlotOrder::kByIndex});
      break;
    case 9:
      spec.selection.rank_by = one_of(random, std::array{oracle::RankBy::kScore, oracle::RankBy::kLogit});
      break;
    case 10:
      spec.selection.bias =
          one_of(random, std::array{oracle::BiasType::kNone, oracle::BiasType::kBf16, oracle::BiasType::kFp32});
      break;
    case 11:
      spec.weights.source =
          one_of(random, std::array{oracle::WeightSource::kUnbiasedScore, oracle::WeightSource::kBiasedScore});
      break;
    case 12:
      spec.selection.group_mask = one_of(random, std::array{oracle::GroupMask::kNegInf, oracle::GroupMask::kZero});
      spec.selection.group_score = one_of(random, std::array{oracle::GroupScore::kMax, oracle::GroupScore::kTop2Sum});
      break;
    case 13:
      spec.weights.per_expert_scale = random.one_in(2);
      spec.weights.global_scale = random.one_in(2);
      break;
    case 14:
      spec.score.stage = one_of(random, std::array{oracle::ScoreStage::kBeforeTopk, oracle::ScoreStage::kAfterTopk});
      spec.selection.rank_by = oracle::RankBy::kLogit;
      break;
    case 15:
      spec.gate.logits_dtype = one_of(random, std::array{oracle::FloatType::kFp32, oracle::FloatType::kBf16});
      spec.gate.linear_bias =
          one_of(random, std::array{oracle::BiasType::kNone, oracle::BiasType::kBf16, oracle::BiasType::kFp32});
      break;
    case 16:
      spec.logits.temperature = one_of(random, std::array{0.5, 1.0, 1.7, 1e-30, 100.0});
      spec.logits.softcap = one_of(random, std::array<std::optional<double>, 4>{std::nullopt, 30.0, 0.3, 1e30});
      break;
    case 17:
      spec.gate.input_scale_vector = random.one_in(2);
      spec.gate.input_norm =
          one_of(random, std::array{oracle::InputNorm::kNone, oracle::InputNorm::kRmsnormUnweighted});
      spec.gate.input_norm_eps = one_of(random, std::array<std::optional<double>, 3>{std::nullopt, 1e-6, 1e-30});
      break;
    case 18:
      spec.gate.input_scale_kind =
          one_of(random, std::array{oracle::InputScale::kFactor, oracle::InputScale::kRsqrtHiddenSize,
                                    oracle::InputScale::kRsqrtHiddenSizeBf16});
      spec.gate.input_scale = spec.gate.input_scale_kind == oracle::InputScale::kFactor ? 0.37 : 1.0;
      break;
    case 19:
      spec.weights.renormalize = oracle::Renormalize::kLogSpaceL1;
      spec.weights.eps_mode = oracle::EpsMode::kNone;
      spec.weights.eps = 0;
      spec.score.func = oracle::ScoreFunc::kSigmoid;
      break;
    case 20:
      spec.special.zero_experts = random.between(1, 4);
      spec.special.zero_type =
          one_of(random, std::array{oracle::ZeroType::kIdentity, oracle::ZeroType::kIdentityRemappedToId0Weight0});
      break;
    case 21:
      spec.special.shared_experts = random.between(1, 3);
      spec.special.shared_mode = oracle::SharedMode::kInGate;
      break;
  }
}

}  // namespace

std::vector<NamedSpec> all_specs() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(SAMEBITS_FIXTURES_DIR "/models")) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<NamedSpec> specs;
  for (const auto& file : files) add_file(specs, file);
  if (specs.empty()) throw std::runtime_error(SAMEBITS_FIXTURES_DIR "/models: found no spec file");
  return specs;
}

RouterSpec reduced(RouterSpec spec, Random& random) {
  constexpr std::array<std::int64_t, 13> kSizes{1, 2, 3, 4, 7, 8, 12, 16, 17, 24, 33, 63, 64};
  spec.shape.num_layers.reset();
  spec.shape.num_moe_layers.reset();
  spec.shape.hidden_size = one_of(random, kSizes);
  if (spec.selection.n_group > 1) {
    reduce_groups(spec, random);
  } else {
    spec.shape.num_experts = one_of(random, kSizes);
    const std::int64_t experts = *spec.shape.num_experts;
    spec.shape.top_k = random.one_in(4) ? random.between(1, experts) : std::min(*spec.shape.top_k, experts);
  }
  const std::int64_t experts = *spec.shape.num_experts;
  if (spec.special.zero_experts > 0) spec.special.zero_experts = random.between(1, experts);
  spec.special.shared_experts = std::min<std::int64_t>(spec.special.shared_experts, 3);
  if (spec.hash.vocab_size) spec.hash.vocab_size = random.between(1, 16);
  if (!valid(spec)) throw std::logic_error(spec.name + ": not valid at a reduced size");
  return spec;
}

RouterSpec varied(const RouterSpec& spec, Random& random) {
  RouterSpec result = spec;
  for (std::int64_t changes = random.between(1, 3); changes > 0; --changes) {
    RouterSpec changed = result;
    vary_once(changed, random);
    if (valid(changed)) result = std::move(changed);
  }
  return result;
}

RouterSpec full_size(RouterSpec spec) {
  if (!spec.shape.hidden_size) spec.shape.hidden_size = 1024;
  return spec;
}

}  // namespace samebits::second
