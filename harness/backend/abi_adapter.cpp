#include "harness/backend/abi_adapter.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string_view>

namespace samebits::harness {
namespace {

using namespace oracle;

template <class Enum>
struct Pair {
  Enum ours;
  std::int32_t abi;
};

constexpr Pair<FloatType> kFloatTypes[] = {{FloatType::kFp32, SAMEBITS_FP32}, {FloatType::kBf16, SAMEBITS_BF16}};
constexpr Pair<BiasType> kBiasTypes[] = {
    {BiasType::kNone, SAMEBITS_DTYPE_NONE}, {BiasType::kFp32, SAMEBITS_FP32}, {BiasType::kBf16, SAMEBITS_BF16}};
constexpr Pair<InputNorm> kInputNorms[] = {{InputNorm::kNone, SAMEBITS_INPUT_NORM_NONE},
                                           {InputNorm::kRmsnormUnweighted, SAMEBITS_INPUT_NORM_RMSNORM_UNWEIGHTED}};
// Of input_scale_rsqrt_hidden_size, which has no enumeration in the C ABI.
constexpr Pair<InputScale> kInputScales[] = {
    {InputScale::kFactor, 0}, {InputScale::kRsqrtHiddenSize, 1}, {InputScale::kRsqrtHiddenSizeBf16, 2}};
constexpr Pair<ScoreFunc> kScoreFuncs[] = {{ScoreFunc::kSoftmax, SAMEBITS_SCORE_SOFTMAX},
                                           {ScoreFunc::kSigmoid, SAMEBITS_SCORE_SIGMOID},
                                           {ScoreFunc::kSqrtSoftplus, SAMEBITS_SCORE_SQRT_SOFTPLUS},
                                           {ScoreFunc::kIdentity, SAMEBITS_SCORE_IDENTITY}};
constexpr Pair<ScoreStage> kScoreStages[] = {{ScoreStage::kBeforeTopk, SAMEBITS_SCORE_BEFORE_TOPK},
                                             {ScoreStage::kAfterTopk, SAMEBITS_SCORE_AFTER_TOPK}};
constexpr Pair<SelectionMethod> kSelectionMethods[] = {{SelectionMethod::kTopk, SAMEBITS_SELECT_TOPK},
                                                       {SelectionMethod::kHashTable, SAMEBITS_SELECT_HASH_TABLE},
                                                       {SelectionMethod::kSparsemixer, SAMEBITS_SELECT_SPARSEMIXER}};
constexpr Pair<RankBy> kRankBys[] = {{RankBy::kScore, SAMEBITS_RANK_BY_SCORE},
                                     {RankBy::kLogit, SAMEBITS_RANK_BY_LOGIT}};
constexpr Pair<GroupScore> kGroupScores[] = {{GroupScore::kNone, SAMEBITS_GROUP_SCORE_NONE},
                                             {GroupScore::kMax, SAMEBITS_GROUP_SCORE_MAX},
                                             {GroupScore::kTop2Sum, SAMEBITS_GROUP_SCORE_TOP2_SUM}};
constexpr Pair<GroupMask> kGroupMasks[] = {{GroupMask::kNone, SAMEBITS_GROUP_MASK_NONE},
                                           {GroupMask::kNegInf, SAMEBITS_GROUP_MASK_NEG_INF},
                                           {GroupMask::kZero, SAMEBITS_GROUP_MASK_ZERO}};
constexpr Pair<TopkScope> kTopkScopes[] = {{TopkScope::kGlobal, SAMEBITS_TOPK_GLOBAL},
                                           {TopkScope::kPerGroup, SAMEBITS_TOPK_PER_GROUP}};
constexpr Pair<SlotOrder> kSlotOrders[] = {{SlotOrder::kByKeyDesc, SAMEBITS_SORT_BY_KEY_DESC},
                                           {SlotOrder::kByIndex, SAMEBITS_SORT_BY_INDEX}};
constexpr Pair<WeightSource> kWeightSources[] = {{WeightSource::kUnbiasedScore, SAMEBITS_WEIGHT_UNBIASED_SCORE},
                                                 {WeightSource::kBiasedScore, SAMEBITS_WEIGHT_BIASED_SCORE}};
constexpr Pair<Renormalize> kRenormalizes[] = {{Renormalize::kNone, SAMEBITS_RENORM_NONE},
                                               {Renormalize::kL1, SAMEBITS_RENORM_L1},
                                               {Renormalize::kLogSpaceL1, SAMEBITS_RENORM_LOG_SPACE_L1}};
constexpr Pair<EpsMode> kEpsModes[] = {{EpsMode::kNone, SAMEBITS_EPS_NONE},
                                       {EpsMode::kAdd, SAMEBITS_EPS_ADD},
                                       {EpsMode::kClampMin, SAMEBITS_EPS_CLAMP_MIN}};
constexpr Pair<ScaleStage> kScaleStages[] = {{ScaleStage::kAfterRenorm, SAMEBITS_SCALE_AFTER_RENORM},
                                             {ScaleStage::kBeforeDivide, SAMEBITS_SCALE_BEFORE_DIVIDE},
                                             {ScaleStage::kOnExpertOutput, SAMEBITS_SCALE_ON_EXPERT_OUTPUT}};
constexpr Pair<SharedMode> kSharedModes[] = {
    {SharedMode::kOutsideRouter, SAMEBITS_SHARED_OUTSIDE_ROUTER},
    {SharedMode::kOutsideRouterSigmoidGate, SAMEBITS_SHARED_OUTSIDE_ROUTER_SIGMOID_GATE},
    {SharedMode::kFusedIds, SAMEBITS_SHARED_FUSED_IDS},
    {SharedMode::kInGate, SAMEBITS_SHARED_IN_GATE}};
constexpr Pair<ZeroType> kZeroTypes[] = {
    {ZeroType::kNone, SAMEBITS_ZERO_EXPERTS_NONE},
    {ZeroType::kIdentity, SAMEBITS_ZERO_EXPERTS_IDENTITY},
    {ZeroType::kIdentityRemappedToId0Weight0, SAMEBITS_ZERO_EXPERTS_IDENTITY_REMAPPED_TO_ID0_WEIGHT0}};

template <class Enum, std::size_t N>
std::int32_t abi_value(const Pair<Enum> (&table)[N], Enum value, std::string_view field) {
  for (const Pair<Enum>& pair : table) {
    if (pair.ours == value) return pair.abi;
  }
  throw std::invalid_argument(fmt::format("{}: {} is no enumerator", field, static_cast<int>(value)));
}

template <class Enum, std::size_t N>
Enum our_value(const Pair<Enum> (&table)[N], std::int32_t value, std::string_view field) {
  for (const Pair<Enum>& pair : table) {
    if (pair.abi == value) return pair.ours;
  }
  throw std::invalid_argument(fmt::format("{}: {} is no enumerator of the C ABI", field, value));
}

std::int32_t size_value(std::int64_t value, std::string_view field) {
  if (value < 0 || value > std::numeric_limits<std::int32_t>::max()) {
    throw std::invalid_argument(fmt::format("{}: {} does not fit the C ABI; allowed are 0 to {}", field, value,
                                            std::numeric_limits<std::int32_t>::max()));
  }
  return static_cast<std::int32_t>(value);
}

float optional_value(const std::optional<double>& value) {
  return static_cast<float>(value.value_or(0.0));
}

}  // namespace

samebits_router_spec to_abi(const RouterSpec& spec) {
  samebits_router_spec abi{};
  abi.struct_size = sizeof(abi);
  abi.hidden_size = size_value(spec.shape.hidden_size.value_or(0), "shape.hidden_size");
  abi.num_experts = size_value(spec.shape.num_experts.value_or(0), "shape.num_experts");
  abi.top_k = size_value(spec.shape.top_k.value_or(0), "shape.top_k");
  abi.logits_dtype = abi_value(kFloatTypes, spec.gate.logits_dtype, "gate.logits_dtype");
  abi.linear_bias_dtype = abi_value(kBiasTypes, spec.gate.linear_bias, "gate.linear_bias");
  abi.input_norm = abi_value(kInputNorms, spec.gate.input_norm, "gate.input_norm");
  abi.input_scale_vector = spec.gate.input_scale_vector ? 1 : 0;
  abi.input_scale_rsqrt_hidden_size = abi_value(kInputScales, spec.gate.input_scale_kind, "gate.input_scale");
  abi.input_norm_eps = optional_value(spec.gate.input_norm_eps);
  abi.input_scale = static_cast<float>(spec.gate.input_scale);
  abi.temperature = static_cast<float>(spec.logits.temperature);
  abi.softcap = optional_value(spec.logits.softcap);
  abi.score_func = abi_value(kScoreFuncs, spec.score.func, "score.func");
  abi.score_stage = abi_value(kScoreStages, spec.score.stage, "score.stage");
  abi.score_dtype = abi_value(kFloatTypes, spec.score.dtype, "score.dtype");
  abi.selection_method = abi_value(kSelectionMethods, spec.selection.method, "selection.method");
  abi.rank_by = abi_value(kRankBys, spec.selection.rank_by, "selection.rank_by");
  abi.selection_bias_dtype = abi_value(kBiasTypes, spec.selection.bias, "selection.bias");
  abi.num_bias_variants =
      size_value(static_cast<std::int64_t>(spec.selection.bias_variants.size()), "selection.bias_variants");
  abi.n_group = size_value(spec.selection.n_group, "selection.n_group");
  abi.topk_group = size_value(spec.selection.topk_group, "selection.topk_group");
  abi.group_score = abi_value(kGroupScores, spec.selection.group_score, "selection.group_score");
  abi.group_mask = abi_value(kGroupMasks, spec.selection.group_mask, "selection.group_mask");
  abi.topk_scope = abi_value(kTopkScopes, spec.selection.topk_scope, "selection.topk_scope");
  abi.sort = abi_value(kSlotOrders, spec.selection.sort, "selection.sort");
  abi.weight_source = abi_value(kWeightSources, spec.weights.source, "weights.source");
  abi.renormalize = abi_value(kRenormalizes, spec.weights.renormalize, "weights.renormalize");
  abi.eps_mode = abi_value(kEpsModes, spec.weights.eps_mode, "weights.eps_mode");
  abi.eps = static_cast<float>(spec.weights.eps);
  abi.routed_scaling_factor = static_cast<float>(spec.weights.routed_scaling_factor);
  abi.scale_stage = abi_value(kScaleStages, spec.weights.scale_stage, "weights.scale_stage");
  abi.per_expert_scale = spec.weights.per_expert_scale ? 1 : 0;
  abi.global_scale = spec.weights.global_scale ? 1 : 0;
  abi.weights_dtype = abi_value(kFloatTypes, spec.weights.dtype, "weights.dtype");
  abi.shared_experts = size_value(spec.special.shared_experts, "special.shared_experts");
  abi.shared_mode = abi_value(kSharedModes, spec.special.shared_mode, "special.shared_mode");
  abi.zero_experts = size_value(spec.special.zero_experts, "special.zero_experts");
  abi.zero_type = abi_value(kZeroTypes, spec.special.zero_type, "special.zero_type");
  abi.hash_vocab_size = size_value(spec.hash.vocab_size.value_or(0), "hash.vocab_size");
  abi.sparsemixer_jitter_eps = optional_value(spec.sparsemixer_jitter_eps);
  return abi;
}

RouterSpec from_abi(const samebits_router_spec& abi) {
  const auto size = [](std::int32_t value) { return value == 0 ? std::nullopt : std::optional<std::int64_t>(value); };
  const auto real = [](float value) { return value == 0.0f ? std::nullopt : std::optional<double>(value); };

  RouterSpec spec;
  spec.shape.hidden_size = size(abi.hidden_size);
  spec.shape.num_experts = size(abi.num_experts);
  spec.shape.top_k = size(abi.top_k);
  spec.gate.logits_dtype = our_value(kFloatTypes, abi.logits_dtype, "logits_dtype");
  spec.gate.linear_bias = our_value(kBiasTypes, abi.linear_bias_dtype, "linear_bias_dtype");
  spec.gate.input_norm = our_value(kInputNorms, abi.input_norm, "input_norm");
  spec.gate.input_scale_vector = abi.input_scale_vector != 0;
  spec.gate.input_scale_kind =
      our_value(kInputScales, abi.input_scale_rsqrt_hidden_size, "input_scale_rsqrt_hidden_size");
  spec.gate.input_norm_eps = real(abi.input_norm_eps);
  spec.gate.input_scale = abi.input_scale;
  spec.logits.temperature = abi.temperature;
  spec.logits.softcap = real(abi.softcap);
  spec.score.func = our_value(kScoreFuncs, abi.score_func, "score_func");
  spec.score.stage = our_value(kScoreStages, abi.score_stage, "score_stage");
  spec.score.dtype = our_value(kFloatTypes, abi.score_dtype, "score_dtype");
  spec.selection.method = our_value(kSelectionMethods, abi.selection_method, "selection_method");
  spec.selection.rank_by = our_value(kRankBys, abi.rank_by, "rank_by");
  spec.selection.bias = our_value(kBiasTypes, abi.selection_bias_dtype, "selection_bias_dtype");
  if (abi.num_bias_variants != 1) {
    spec.selection.bias_variants.clear();
    for (std::int32_t i = 0; i < abi.num_bias_variants; ++i) spec.selection.bias_variants.push_back(std::to_string(i));
  }
  spec.selection.n_group = abi.n_group;
  spec.selection.topk_group = abi.topk_group;
  spec.selection.group_score = our_value(kGroupScores, abi.group_score, "group_score");
  spec.selection.group_mask = our_value(kGroupMasks, abi.group_mask, "group_mask");
  spec.selection.topk_scope = our_value(kTopkScopes, abi.topk_scope, "topk_scope");
  spec.selection.sort = our_value(kSlotOrders, abi.sort, "sort");
  spec.weights.source = our_value(kWeightSources, abi.weight_source, "weight_source");
  spec.weights.renormalize = our_value(kRenormalizes, abi.renormalize, "renormalize");
  spec.weights.eps_mode = our_value(kEpsModes, abi.eps_mode, "eps_mode");
  spec.weights.eps = abi.eps;
  spec.weights.routed_scaling_factor = abi.routed_scaling_factor;
  spec.weights.scale_stage = our_value(kScaleStages, abi.scale_stage, "scale_stage");
  spec.weights.per_expert_scale = abi.per_expert_scale != 0;
  spec.weights.global_scale = abi.global_scale != 0;
  spec.weights.dtype = our_value(kFloatTypes, abi.weights_dtype, "weights_dtype");
  spec.special.shared_experts = abi.shared_experts;
  spec.special.shared_mode = our_value(kSharedModes, abi.shared_mode, "shared_mode");
  spec.special.zero_experts = abi.zero_experts;
  spec.special.zero_type = our_value(kZeroTypes, abi.zero_type, "zero_type");
  spec.hash.vocab_size = size(abi.hash_vocab_size);
  spec.sparsemixer_jitter_eps = real(abi.sparsemixer_jitter_eps);
  return spec;
}

properties::Claims to_claims(const samebits_info& info) {
  using namespace properties;
  properties::Claims claims;
  claims.name = info.name;
  claims.version = info.version;
  claims.arithmetic = parse_arithmetic(info.arithmetic).value();
  claims.determinism = info.determinism == SAMEBITS_BATCH_INVARIANT ? Determinism::kBatchInvariant
                       : info.determinism == SAMEBITS_RUN_TO_RUN    ? Determinism::kRunToRun
                                                                    : Determinism::kNone;
  claims.tie_rule = info.tie_break == SAMEBITS_TIES_LOWEST_INDEX ? TieRule::kLowestIndex : TieRule::kAny;
  claims.output_order =
      info.output_order == SAMEBITS_ORDER_KEY_DESC_THEN_INDEX ? OutputOrder::kKeyDescThenIndex : OutputOrder::kAny;
  claims.returns_logits = info.returns_logits != 0;
  claims.returns_bookkeeping = info.returns_bookkeeping != 0;
  claims.max_tokens = info.max_tokens;
  claims.device_memory = (info.memory_kinds & SAMEBITS_MEMORY_HOST) == 0;
  return claims;
}

std::int32_t hash_table_dtype(const RouterSpec& spec) {
  if (spec.selection.method != SelectionMethod::kHashTable) return SAMEBITS_DTYPE_NONE;
  return spec.hash.table_dtype == TableType::kInt64 ? SAMEBITS_INT64 : SAMEBITS_INT32;
}

std::string status_text(samebits_status status) {
  switch (status) {
    case SAMEBITS_OK:
      return "ok (0)";
    case SAMEBITS_INVALID_ARGUMENT:
      return "invalid argument (1)";
    case SAMEBITS_UNSUPPORTED:
      return "unsupported (2)";
    case SAMEBITS_OUT_OF_MEMORY:
      return "out of memory (3)";
    case SAMEBITS_DEVICE_ERROR:
      return "device error (4)";
    case SAMEBITS_INTERNAL_ERROR:
      return "internal error (5)";
    default:
      return fmt::format("unknown status {}", status);
  }
}

}  // namespace samebits::harness
