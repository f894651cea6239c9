// What a router is asked to compute: one resolved specification, every field with its meaning.
//
// Field names and defaults follow the YAML schema (docs/spec.md). A RouterSpec is always resolved: variants and
// layer overrides have been applied, nothing in it refers to a file. It says nothing about data or hardware.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace samebits::oracle {

enum class FloatType { kFp32, kBf16 };
enum class BiasType { kNone, kBf16, kFp32 };
enum class InputNorm { kNone, kRmsnormUnweighted };
enum class InputScale { kFactor, kRsqrtHiddenSize, kRsqrtHiddenSizeBf16 };
enum class ScoreFunc { kSoftmax, kSigmoid, kSqrtSoftplus, kIdentity };
enum class ScoreStage { kBeforeTopk, kAfterTopk };
enum class SelectionMethod { kTopk, kHashTable, kSparsemixer };
enum class RankBy { kScore, kLogit };
enum class GroupScore { kNone, kMax, kTop2Sum };
enum class GroupMask { kNone, kNegInf, kZero };
enum class TopkScope { kGlobal, kPerGroup };
enum class TieBreak { kLowestIndex };
enum class SlotOrder { kByKeyDesc, kByIndex };
enum class WeightSource { kUnbiasedScore, kBiasedScore };
enum class Renormalize { kNone, kL1, kLogSpaceL1 };
enum class EpsMode { kNone, kAdd, kClampMin };
enum class ScaleStage { kAfterRenorm, kBeforeDivide, kOnExpertOutput };
enum class ApplyTo { kExpertOutput, kExpertInput };
enum class SharedMode { kOutsideRouter, kOutsideRouterSigmoidGate, kFusedIds, kInGate };
enum class ZeroType { kNone, kIdentity, kIdentityRemappedToId0Weight0 };
enum class TableType { kNone, kInt32, kInt64 };
enum class Capacity { kNone, kBatchDependent };
enum class IdsType { kInt32, kInt64 };
enum class ReferenceSort { kDescending, kUnsorted };

struct RouterSpec {
  int spec_version = 1;
  std::string name;
  std::string family;
  std::vector<std::string> sources;  // where the published router was read
  std::string notes;
  bool unverified = false;
  std::map<std::string, std::string> unverified_fields;  // dotted path -> reason

  // hidden_size, num_experts and top_k are needed to run; the rest is description. 0 in none of them: absent is
  // nullopt.
  struct Shape {
    std::optional<std::int64_t> hidden_size, num_experts, top_k, num_layers, num_moe_layers;
  } shape;

  struct Gate {
    FloatType gemm_dtype = FloatType::kFp32;    // operands of the published reference; data of a case say their own
    FloatType logits_dtype = FloatType::kFp32;  // bf16: one RNE rounding after the linear bias
    BiasType linear_bias = BiasType::kNone;     // added to the logits; bf16: the bias itself is a bf16 value
    InputNorm input_norm = InputNorm::kNone;
    std::optional<double> input_norm_eps;
    bool input_scale_vector = false;
    // YAML: input_scale: 0.5 | rsqrt_hidden_size (H^-1/2) | rsqrt_hidden_size_bf16 (the same, rounded to bf16)
    InputScale input_scale_kind = InputScale::kFactor;
    double input_scale = 1.0;  // of kFactor
  } gate;

  struct Logits {
    double temperature = 1.0;
    std::optional<double> softcap;
  } logits;

  struct Score {
    ScoreFunc func = ScoreFunc::kSoftmax;
    ScoreStage stage = ScoreStage::kBeforeTopk;
    FloatType dtype = FloatType::kFp32;  // bf16: one RNE rounding of the finished score
  } score;

  struct Selection {
    SelectionMethod method = SelectionMethod::kTopk;
    RankBy rank_by = RankBy::kScore;
    BiasType bias = BiasType::kNone;  // bf16: the bias is rounded to bf16 before it is added (only ever a variant)
    std::vector<std::string> bias_variants = {"text"};
    std::int64_t n_group = 1;
    std::int64_t topk_group = 1;
    GroupScore group_score = GroupScore::kNone;
    GroupMask group_mask = GroupMask::kNone;
    TopkScope topk_scope = TopkScope::kGlobal;
    TieBreak tie_break = TieBreak::kLowestIndex;
    SlotOrder sort = SlotOrder::kByKeyDesc;
  } selection;

  struct Weights {
    WeightSource source = WeightSource::kUnbiasedScore;
    Renormalize renormalize = Renormalize::kNone;
    double eps = 0.0;
    EpsMode eps_mode = EpsMode::kNone;
    double routed_scaling_factor = 1.0;
    ScaleStage scale_stage = ScaleStage::kAfterRenorm;  // on_expert_output: not applied by the router at all
    bool per_expert_scale = false;
    bool global_scale = false;
    FloatType dtype = FloatType::kFp32;  // bf16: one RNE rounding of the finished weight
    ApplyTo apply_to = ApplyTo::kExpertOutput;
  } weights;

  struct Special {
    std::int64_t shared_experts = 0;
    SharedMode shared_mode = SharedMode::kOutsideRouter;
    std::int64_t zero_experts = 0;
    ZeroType zero_type = ZeroType::kNone;
  } special;

  struct Hash {
    std::vector<std::int64_t> layers;
    std::optional<std::int64_t> vocab_size;
    TableType table_dtype = TableType::kNone;
  } hash;

  std::optional<double> sparsemixer_jitter_eps;
  Capacity capacity = Capacity::kNone;

  struct Outputs {
    IdsType ids_dtype = IdsType::kInt64;
    std::int64_t pad_id = -1;
    ReferenceSort reference_sort = ReferenceSort::kDescending;
  } outputs;
};

// Sizes with the short names of the field; valid only for a spec that passed validation with all three present.
// Ids: routed experts 0 .. E-1, then zero experts, then shared experts in the gate.
inline std::int64_t num_experts(const RouterSpec& spec) {
  return spec.shape.num_experts.value();
}
inline std::int64_t top_k(const RouterSpec& spec) {
  return spec.shape.top_k.value();
}
inline std::int64_t hidden_size(const RouterSpec& spec) {
  return spec.shape.hidden_size.value();
}
// Shared experts that have rows in the gate, and columns in the answer; others are not the router's business.
inline std::int64_t shared_in_gate(const RouterSpec& spec) {
  return spec.special.shared_mode == SharedMode::kInGate ? spec.special.shared_experts : 0;
}
// R: experts that compete, zero experts included. Softmax runs over them; the selection bias has one value for each.
inline std::int64_t ranked_experts(const RouterSpec& spec) {
  return num_experts(spec) + spec.special.zero_experts;
}
// G: rows of the gate weight, width of the logits, and number of ids.
inline std::int64_t gate_rows(const RouterSpec& spec) {
  return ranked_experts(spec) + shared_in_gate(spec);
}
// K: columns of ids and weights.
inline std::int64_t topk_columns(const RouterSpec& spec) {
  return top_k(spec) + shared_in_gate(spec);
}
// Whether the gate reads something else than the hidden states as they are.
inline bool prepares_input(const RouterSpec& spec) {
  return spec.gate.input_norm != InputNorm::kNone || spec.gate.input_scale_vector ||
         spec.gate.input_scale_kind != InputScale::kFactor || spec.gate.input_scale != 1.0;
}

}  // namespace samebits::oracle
