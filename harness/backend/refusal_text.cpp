#include "harness/backend/refusal_text.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace samebits::harness {
namespace {

struct FieldNames {
  std::string_view abi, spec;
};
// Of samebits_router_spec and docs/spec.md, where they differ.
constexpr FieldNames kFields[] = {
    {"hidden_size", "shape.hidden_size"},
    {"num_experts", "shape.num_experts"},
    {"top_k", "shape.top_k"},
    {"logits_dtype", "gate.logits_dtype"},
    {"linear_bias_dtype", "gate.linear_bias"},
    {"input_norm", "gate.input_norm"},
    {"input_norm_eps", "gate.input_norm_eps"},
    {"input_scale_vector", "gate.input_scale_vector"},
    {"input_scale_rsqrt_hidden_size", "gate.input_scale"},
    {"input_scale", "gate.input_scale"},
    {"temperature", "logits.temperature"},
    {"softcap", "logits.softcap"},
    {"score_func", "score.func"},
    {"score_stage", "score.stage"},
    {"score_dtype", "score.dtype"},
    {"selection_method", "selection.method"},
    {"rank_by", "selection.rank_by"},
    {"selection_bias_dtype", "selection.bias"},
    {"num_bias_variants", "selection.bias_variants"},
    {"n_group", "selection.n_group"},
    {"topk_group", "selection.topk_group"},
    {"group_score", "selection.group_score"},
    {"group_mask", "selection.group_mask"},
    {"topk_scope", "selection.topk_scope"},
    {"sort", "selection.sort"},
    {"weight_source", "weights.source"},
    {"renormalize", "weights.renormalize"},
    {"eps_mode", "weights.eps_mode"},
    {"eps", "weights.eps"},
    {"routed_scaling_factor", "weights.routed_scaling_factor"},
    {"scale_stage", "weights.scale_stage"},
    {"per_expert_scale", "weights.per_expert_scale"},
    {"global_scale", "weights.global_scale"},
    {"weights_dtype", "weights.dtype"},
    {"shared_experts", "special.shared_experts"},
    {"shared_mode", "special.shared_mode"},
    {"zero_experts", "special.zero_experts"},
    {"zero_type", "special.zero_type"},
    {"hash_vocab_size", "hash.vocab_size"},
    {"sparsemixer_jitter_eps", "sparsemixer.jitter_eps"},
};

}  // namespace

std::string with_spec_field(const std::string& reason) {
  const std::string_view word = std::string_view(reason).substr(0, reason.find(':'));
  const auto field =
      std::find_if(std::begin(kFields), std::end(kFields), [&](const FieldNames& f) { return f.abi == word; });
  if (field == std::end(kFields)) return reason;
  return std::string(word) + " (" + std::string(field->spec) + " in a spec)" + reason.substr(word.size());
}

}  // namespace samebits::harness
