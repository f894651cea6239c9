#include "feature_specs.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <stdexcept>

#include "oracle/emulate/tc256.h"
#include "properties/explain_mistakes.h"
#include "properties/generate.h"

namespace samebits::properties {
namespace {

using oracle::RouterSpec;

RouterSpec softmax_base(const char* name) {
  RouterSpec spec;
  spec.name = name;
  spec.shape.hidden_size = 64;
  spec.shape.num_experts = 16;
  spec.shape.top_k = 4;
  return spec;
}

RouterSpec sigmoid_base(const char* name) {
  RouterSpec spec = small_spec();
  spec.name = name;
  return spec;
}

const Mistake& find_mistake(const std::string& text) {
  for (const auto& mistakes : {general_mistakes(), feature_mistakes()}) {
    for (const Mistake& mistake : mistakes) {
      if (text == mistake.text) return mistake;
    }
  }
  throw std::invalid_argument("no mistake '" + text + "'");
}

}  // namespace

RouterSpec softcap_spec() {
  RouterSpec spec = softmax_base("softcap");
  spec.logits.softcap = 30.0;
  return spec;
}

RouterSpec classes_spec() {
  RouterSpec spec = sigmoid_base("classes");
  spec.selection.bias_variants = {"text", "image"};
  spec.logits.temperature = 2.0;
  return spec;
}

RouterSpec table_spec() {
  RouterSpec spec = sigmoid_base("table");
  spec.score.func = oracle::ScoreFunc::kSqrtSoftplus;
  spec.selection.method = oracle::SelectionMethod::kHashTable;
  spec.selection.bias = oracle::BiasType::kNone;
  spec.hash.vocab_size = 300;
  spec.hash.table_dtype = oracle::TableType::kInt32;
  return spec;
}

RouterSpec zero_spec() {
  RouterSpec spec = softmax_base("zero");
  spec.selection.bias = oracle::BiasType::kFp32;
  spec.weights.routed_scaling_factor = 6.0;
  spec.special.zero_experts = 8;
  spec.special.zero_type = oracle::ZeroType::kIdentity;
  return spec;
}

RouterSpec renamed_zero_spec() {
  RouterSpec spec = zero_spec();
  spec.name = "renamed_zero";
  spec.special.zero_type = oracle::ZeroType::kIdentityRemappedToId0Weight0;
  return spec;
}

RouterSpec shared_spec() {
  RouterSpec spec = sigmoid_base("shared");
  spec.special.shared_experts = 2;
  spec.special.shared_mode = oracle::SharedMode::kInGate;
  spec.weights.renormalize = oracle::Renormalize::kLogSpaceL1;
  spec.weights.eps = 0.0;
  spec.weights.eps_mode = oracle::EpsMode::kNone;
  spec.weights.routed_scaling_factor = 8.0;
  spec.weights.global_scale = true;
  return spec;
}

RouterSpec prepared_spec() {
  RouterSpec spec = softmax_base("prepared");
  spec.gate.input_norm = oracle::InputNorm::kRmsnormUnweighted;
  spec.gate.input_norm_eps = 1e-6;
  spec.gate.input_scale_vector = true;
  spec.gate.input_scale_kind = oracle::InputScale::kRsqrtHiddenSize;
  spec.weights.renormalize = oracle::Renormalize::kL1;
  spec.weights.per_expert_scale = true;
  return spec;
}

RouterSpec per_group_spec() {
  RouterSpec spec = softmax_base("per_group");
  spec.selection.topk_scope = oracle::TopkScope::kPerGroup;
  spec.selection.n_group = spec.selection.topk_group = 4;
  spec.weights.renormalize = oracle::Renormalize::kL1;
  return spec;
}

RouterSpec sparsemixer_spec() {
  RouterSpec spec = softmax_base("sparsemixer");
  spec.shape.top_k = 2;
  spec.selection.method = oracle::SelectionMethod::kSparsemixer;
  spec.selection.rank_by = oracle::RankBy::kLogit;
  spec.sparsemixer_jitter_eps = 0.01;
  return spec;
}

RouterSpec biased_spec() {
  RouterSpec spec = sigmoid_base("biased");
  spec.weights.source = oracle::WeightSource::kBiasedScore;
  return spec;
}

RouterSpec identity_spec() {
  RouterSpec spec = softmax_base("identity");
  spec.score.func = oracle::ScoreFunc::kIdentity;
  spec.selection.sort = oracle::SlotOrder::kByIndex;
  return spec;
}

std::vector<RouterSpec> feature_specs() {
  return {softcap_spec(),  classes_spec(),   table_spec(),       zero_spec(),   renamed_zero_spec(), shared_spec(),
          prepared_spec(), per_group_spec(), sparsemixer_spec(), biased_spec(), identity_spec()};
}

std::vector<Case> directed(const RouterSpec& spec) {
  GenerateOptions options;
  options.max_tokens = 130;
  std::vector<Case> cases;
  for (std::int64_t i = 0; i < directed_cases(spec, options); ++i) {
    cases.push_back(generate_case(spec.name, "", spec, 1, static_cast<std::uint64_t>(i), options));
  }
  return cases;
}

Fault mistaken(const RouterSpec& spec, const std::string& text) {
  const Mistake& mistake = find_mistake(text);
  return [spec, &mistake](const RunRequest&, const oracle::RouterInputs& inputs, RunResult& result) {
    RouterSpec shaped = spec;
    if (!inputs.from_logits()) shaped.shape.hidden_size = inputs.hidden_size;
    std::vector<std::int64_t> rows(static_cast<std::size_t>(inputs.valid_rows()));
    std::iota(rows.begin(), rows.end(), std::int64_t{0});
    const std::vector<float> logits = oracle::tc256_logits(shaped, inputs, rows);
    const auto width = static_cast<std::size_t>(inputs.gate_rows);
    const auto columns = static_cast<std::ptrdiff_t>(oracle::topk_columns(shaped));
    for (const std::int64_t row : rows) {
      Setup setup =
          setup_of(shaped, inputs, row, std::span(logits).subspan(static_cast<std::size_t>(row) * width, width));
      if (!mistake.make(setup)) continue;
      oracle::RowAnswer<float> answer = setup.route();
      if (mistake.then != nullptr) mistake.then(setup, answer);
      std::copy(answer.ids.begin(), answer.ids.end(), result.outputs.topk_ids.begin() + row * columns);
      std::copy(answer.weights.begin(), answer.weights.end(), result.outputs.topk_weights.begin() + row * columns);
    }
  };
}

}  // namespace samebits::properties
