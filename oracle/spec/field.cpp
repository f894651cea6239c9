#include "oracle/spec/field.h"

#include <algorithm>
#include <utility>

#include "oracle/spec/codec.h"

namespace samebits::oracle::yaml {
namespace {

constexpr Enumeration<FloatType> kFloatTypes{{{"fp32", FloatType::kFp32}, {"bf16", FloatType::kBf16}}};
constexpr Enumeration<BiasType> kBiasTypes{
    {{"none", BiasType::kNone}, {"bf16", BiasType::kBf16}, {"fp32", BiasType::kFp32}}};
constexpr Enumeration<InputNorm> kInputNorms{
    {{"none", InputNorm::kNone}, {"rmsnorm_unweighted", InputNorm::kRmsnormUnweighted}}};
constexpr Enumeration<ScoreFunc> kScoreFuncs{{{"softmax", ScoreFunc::kSoftmax},
                                              {"sigmoid", ScoreFunc::kSigmoid},
                                              {"sqrt_softplus", ScoreFunc::kSqrtSoftplus},
                                              {"identity", ScoreFunc::kIdentity}}};
constexpr Enumeration<ScoreStage> kScoreStages{
    {{"before_topk", ScoreStage::kBeforeTopk}, {"after_topk", ScoreStage::kAfterTopk}}};
constexpr Enumeration<SelectionMethod> kMethods{{{"topk", SelectionMethod::kTopk},
                                                 {"hash_table", SelectionMethod::kHashTable},
                                                 {"sparsemixer", SelectionMethod::kSparsemixer}}};
constexpr Enumeration<RankBy> kRankBys{{{"score", RankBy::kScore}, {"logit", RankBy::kLogit}}};
constexpr Enumeration<GroupScore> kGroupScores{
    {{"none", GroupScore::kNone}, {"max", GroupScore::kMax}, {"top2_sum", GroupScore::kTop2Sum}}};
constexpr Enumeration<GroupMask> kGroupMasks{
    {{"none", GroupMask::kNone}, {"neg_inf", GroupMask::kNegInf}, {"zero", GroupMask::kZero}}};
constexpr Enumeration<TopkScope> kTopkScopes{{{"global", TopkScope::kGlobal}, {"per_group", TopkScope::kPerGroup}}};
constexpr Enumeration<TieBreak> kTieBreaks{{{"lowest_index", TieBreak::kLowestIndex}}};
constexpr Enumeration<SlotOrder> kSlotOrders{
    {{"by_key_desc", SlotOrder::kByKeyDesc}, {"by_index", SlotOrder::kByIndex}}};
constexpr Enumeration<WeightSource> kWeightSources{
    {{"unbiased_score", WeightSource::kUnbiasedScore}, {"biased_score", WeightSource::kBiasedScore}}};
constexpr Enumeration<Renormalize> kRenormalizes{
    {{"none", Renormalize::kNone}, {"l1", Renormalize::kL1}, {"log_space_l1", Renormalize::kLogSpaceL1}}};
constexpr Enumeration<EpsMode> kEpsModes{
    {{"none", EpsMode::kNone}, {"add", EpsMode::kAdd}, {"clamp_min", EpsMode::kClampMin}}};
constexpr Enumeration<ScaleStage> kScaleStages{{{"after_renorm", ScaleStage::kAfterRenorm},
                                                {"before_divide", ScaleStage::kBeforeDivide},
                                                {"on_expert_output", ScaleStage::kOnExpertOutput}}};
constexpr Enumeration<ApplyTo> kApplyTos{
    {{"expert_output", ApplyTo::kExpertOutput}, {"expert_input", ApplyTo::kExpertInput}}};
constexpr Enumeration<SharedMode> kSharedModes{{{"outside_router", SharedMode::kOutsideRouter},
                                                {"outside_router_sigmoid_gate", SharedMode::kOutsideRouterSigmoidGate},
                                                {"fused_ids", SharedMode::kFusedIds},
                                                {"in_gate", SharedMode::kInGate}}};
constexpr Enumeration<ZeroType> kZeroTypes{
    {{"none", ZeroType::kNone},
     {"identity", ZeroType::kIdentity},
     {"identity_remapped_to_id0_weight0", ZeroType::kIdentityRemappedToId0Weight0}}};
constexpr Enumeration<TableType> kTableTypes{
    {{"int32", TableType::kInt32}, {"int64", TableType::kInt64}, {"null", TableType::kNone}}};
constexpr Enumeration<Capacity> kCapacities{
    {{"none", Capacity::kNone}, {"batch_dependent", Capacity::kBatchDependent}}};
constexpr Enumeration<IdsType> kIdsTypes{{{"int32", IdsType::kInt32}, {"int64", IdsType::kInt64}}};
constexpr Enumeration<ReferenceSort> kReferenceSorts{
    {{"descending", ReferenceSort::kDescending}, {"unsorted", ReferenceSort::kUnsorted}}};

// A factor, or H^(-1/2) of whatever H the case has.
struct InputScaleCodec {
  static constexpr Enumeration<InputScale> kRsqrts{{{"rsqrt_hidden_size", InputScale::kRsqrtHiddenSize},
                                                    {"rsqrt_hidden_size_bf16", InputScale::kRsqrtHiddenSizeBf16}}};
  struct Value {
    InputScale kind = InputScale::kFactor;
    double factor = 1.0;
  };
  std::string allowed() const { return Real().allowed() + " | " + kRsqrts.allowed(); }
  std::optional<Value> decode(const YamlNode& node) const {
    if (const auto kind = kRsqrts.decode(node)) return Value{*kind, 1.0};
    const auto factor = Real().decode(node);
    return factor ? std::optional(Value{InputScale::kFactor, *factor}) : std::nullopt;
  }
  bool valid(const Value& value) const {
    return value.kind == InputScale::kFactor ? Real().valid(value.factor) : value.factor == 1.0;
  }
  std::string encode(const Value& value) const {
    return value.kind == InputScale::kFactor ? Real().encode(value.factor) : kRsqrts.encode(value.kind);
  }
};

template <class Codec, class Get, class Set>
Field make_field(std::string path, const Codec& codec, Get get, Set set) {
  Field field;
  field.path = std::move(path);
  field.allowed = codec.allowed();
  field.read = [codec, set](RouterSpec& spec, const YamlNode& node) {
    auto value = codec.decode(node);
    if (!value || !codec.valid(*value)) return false;
    set(spec, std::move(*value));
    return true;
  };
  field.valid = [codec, get](const RouterSpec& spec) { return codec.valid(get(spec)); };
  field.write = [codec, get](const RouterSpec& spec) { return codec.encode(get(spec)); };
  return field;
}

// `member` returns a reference into a const or mutable spec.
template <class Codec, class Member>
Field make_field(std::string path, const Codec& codec, Member member) {
  return make_field(
      std::move(path), codec, [member](const RouterSpec& spec) { return member(spec); },
      [member](RouterSpec& spec, auto value) { member(spec) = std::move(value); });
}

// The struct can hold "absent", but a file may not.
Field required(Field field) {
  constexpr std::string_view kOrNull = " | null";
  if (field.allowed.ends_with(kOrNull)) field.allowed.resize(field.allowed.size() - kOrNull.size());
  field.required = true;
  return field;
}

constexpr std::int64_t kLargestHiddenSize = std::int64_t{1} << 20;
constexpr std::int64_t kMostExperts = std::int64_t{1} << 16;
constexpr std::int64_t kMostChosen = 1024;  // far past any published router; k is squared in what the laws compare

std::vector<Field> make_fields() {
  using S = RouterSpec;
  const Integer count{1};
  const Optional<Integer> optional_count{count};
  const List<Text> texts{{}, "list of texts"};
  std::vector<Field> table;
  const auto add = [&table](Field field) { table.push_back(std::move(field)); };

  add(make_field(
      "spec_version", Integer{1, 1}, [](const S& s) { return std::int64_t{s.spec_version}; },
      [](S& s, std::int64_t value) { s.spec_version = static_cast<int>(value); }));
  add(required(make_field(
      "name", Name(), [](auto& s) -> auto& { return s.name; })));
  add(make_field(
      "family", Text(), [](auto& s) -> auto& { return s.family; }));
  add(make_field(
      "sources", texts, [](auto& s) -> auto& { return s.sources; }));
  add(make_field(
      "notes", Text(), [](auto& s) -> auto& { return s.notes; }));
  add(make_field(
      "unverified", Boolean(), [](auto& s) -> auto& { return s.unverified; }));
  add(make_field(
      "unverified_fields", TextMap(), [](auto& s) -> auto& { return s.unverified_fields; }));

  add(make_field(
      "shape.hidden_size", Optional<Integer>{{1, kLargestHiddenSize}},
      [](auto& s) -> auto& { return s.shape.hidden_size; }));
  add(required(make_field(
      "shape.num_experts", Optional<Integer>{{1, kMostExperts}},
      [](auto& s) -> auto& { return s.shape.num_experts; })));
  add(required(make_field(
      "shape.top_k", Optional<Integer>{{1, kMostChosen}}, [](auto& s) -> auto& { return s.shape.top_k; })));
  add(make_field(
      "shape.num_layers", optional_count, [](auto& s) -> auto& { return s.shape.num_layers; }));
  add(make_field(
      "shape.num_moe_layers", optional_count, [](auto& s) -> auto& { return s.shape.num_moe_layers; }));

  add(make_field(
      "gate.gemm_dtype", kFloatTypes, [](auto& s) -> auto& { return s.gate.gemm_dtype; }));
  add(make_field(
      "gate.logits_dtype", kFloatTypes, [](auto& s) -> auto& { return s.gate.logits_dtype; }));
  add(make_field(
      "gate.linear_bias", kBiasTypes, [](auto& s) -> auto& { return s.gate.linear_bias; }));
  add(make_field(
      "gate.input_norm", kInputNorms, [](auto& s) -> auto& { return s.gate.input_norm; }));
  add(make_field(
      "gate.input_norm_eps", Optional<Real>{{}}, [](auto& s) -> auto& { return s.gate.input_norm_eps; }));
  add(make_field(
      "gate.input_scale_vector", Boolean(), [](auto& s) -> auto& { return s.gate.input_scale_vector; }));
  add(make_field(
      "gate.input_scale", InputScaleCodec(),
      [](const S& s) {
        return InputScaleCodec::Value{s.gate.input_scale_kind, s.gate.input_scale};
      },
      [](S& s, const InputScaleCodec::Value& value) {
        s.gate.input_scale_kind = value.kind;
        s.gate.input_scale = value.factor;
      }));

  add(make_field(
      "logits.temperature", Real(), [](auto& s) -> auto& { return s.logits.temperature; }));
  add(make_field(
      "logits.softcap", Optional<Real>{{}}, [](auto& s) -> auto& { return s.logits.softcap; }));

  add(make_field(
      "score.func", kScoreFuncs, [](auto& s) -> auto& { return s.score.func; }));
  add(make_field(
      "score.stage", kScoreStages, [](auto& s) -> auto& { return s.score.stage; }));
  add(make_field(
      "score.dtype", kFloatTypes, [](auto& s) -> auto& { return s.score.dtype; }));

  add(make_field(
      "selection.method", kMethods, [](auto& s) -> auto& { return s.selection.method; }));
  add(make_field(
      "selection.rank_by", kRankBys, [](auto& s) -> auto& { return s.selection.rank_by; }));
  add(make_field(
      "selection.bias", kBiasTypes, [](auto& s) -> auto& { return s.selection.bias; }));
  add(make_field(
      "selection.bias_variants", List<Name>{{}, "list of names"},
      [](auto& s) -> auto& { return s.selection.bias_variants; }));
  add(make_field(
      "selection.n_group", count, [](auto& s) -> auto& { return s.selection.n_group; }));
  add(make_field(
      "selection.topk_group", count, [](auto& s) -> auto& { return s.selection.topk_group; }));
  add(make_field(
      "selection.group_score", kGroupScores, [](auto& s) -> auto& { return s.selection.group_score; }));
  add(make_field(
      "selection.group_mask", kGroupMasks, [](auto& s) -> auto& { return s.selection.group_mask; }));
  add(make_field(
      "selection.topk_scope", kTopkScopes, [](auto& s) -> auto& { return s.selection.topk_scope; }));
  add(make_field(
      "selection.tie_break", kTieBreaks, [](auto& s) -> auto& { return s.selection.tie_break; }));
  add(make_field(
      "selection.sort", kSlotOrders, [](auto& s) -> auto& { return s.selection.sort; }));

  add(make_field(
      "weights.source", kWeightSources, [](auto& s) -> auto& { return s.weights.source; }));
  add(make_field(
      "weights.renormalize", kRenormalizes, [](auto& s) -> auto& { return s.weights.renormalize; }));
  add(make_field(
      "weights.eps", Real{true}, [](auto& s) -> auto& { return s.weights.eps; }));
  add(make_field(
      "weights.eps_mode", kEpsModes, [](auto& s) -> auto& { return s.weights.eps_mode; }));
  add(make_field(
      "weights.routed_scaling_factor", Real{true}, [](auto& s) -> auto& { return s.weights.routed_scaling_factor; }));
  add(make_field(
      "weights.scale_stage", kScaleStages, [](auto& s) -> auto& { return s.weights.scale_stage; }));
  add(make_field(
      "weights.per_expert_scale", Boolean(), [](auto& s) -> auto& { return s.weights.per_expert_scale; }));
  add(make_field(
      "weights.global_scale", Boolean(), [](auto& s) -> auto& { return s.weights.global_scale; }));
  add(make_field(
      "weights.dtype", kFloatTypes, [](auto& s) -> auto& { return s.weights.dtype; }));
  add(make_field(
      "weights.apply_to", kApplyTos, [](auto& s) -> auto& { return s.weights.apply_to; }));

  add(make_field(
      "special.shared_experts", Integer{0, kMostExperts}, [](auto& s) -> auto& { return s.special.shared_experts; }));
  add(make_field(
      "special.shared_mode", kSharedModes, [](auto& s) -> auto& { return s.special.shared_mode; }));
  add(make_field(
      "special.zero_experts", Integer{0, kMostExperts}, [](auto& s) -> auto& { return s.special.zero_experts; }));
  add(make_field(
      "special.zero_type", kZeroTypes, [](auto& s) -> auto& { return s.special.zero_type; }));

  add(make_field(
      "hash.layers", List<Integer>{{}, "list of layer numbers"}, [](auto& s) -> auto& { return s.hash.layers; }));
  add(make_field(
      "hash.vocab_size", optional_count, [](auto& s) -> auto& { return s.hash.vocab_size; }));
  add(make_field(
      "hash.table_dtype", kTableTypes, [](auto& s) -> auto& { return s.hash.table_dtype; }));

  add(make_field(
      "sparsemixer.jitter_eps", Optional<Real>{{}}, [](auto& s) -> auto& { return s.sparsemixer_jitter_eps; }));
  add(make_field(
      "capacity", kCapacities, [](auto& s) -> auto& { return s.capacity; }));

  add(make_field(
      "outputs.ids_dtype", kIdsTypes, [](auto& s) -> auto& { return s.outputs.ids_dtype; }));
  add(make_field(
      "outputs.pad_id", Integer{-2147483648LL}, [](auto& s) -> auto& { return s.outputs.pad_id; }));
  add(make_field(
      "outputs.reference_sort", kReferenceSorts, [](auto& s) -> auto& { return s.outputs.reference_sort; }));
  return table;
}

}  // namespace

std::string Field::section() const {
  const std::size_t point = path.find('.');
  return point == std::string::npos ? "" : path.substr(0, point);
}

bool Field::can_be_overlaid() const {
  return !section().empty() || path == "capacity";
}

const std::vector<Field>& fields() {
  static const std::vector<Field> table = make_fields();
  return table;
}

const Field* find_field(std::string_view path) {
  for (const Field& field : fields()) {
    if (field.path == path) return &field;
  }
  return nullptr;
}

std::vector<std::string> section_names() {
  std::vector<std::string> names;
  for (const Field& field : fields()) {
    const std::string section = field.section();
    if (!section.empty() && std::find(names.begin(), names.end(), section) == names.end()) names.push_back(section);
  }
  return names;
}

std::vector<std::string> field_paths() {
  std::vector<std::string> paths;
  for (const Field& field : fields()) paths.push_back(field.path);
  return paths;
}

}  // namespace samebits::oracle::yaml
