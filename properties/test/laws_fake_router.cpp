#include "laws_fake_router.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

#include "oracle/emulate/tc256.h"
#include "oracle/reference/answer.h"
#include "oracle/tensors/bf16.h"

namespace samebits::properties {
namespace {

using oracle::RouterInputs;
using oracle::RouterOutputs;
using oracle::RouterSpec;

float weight_at(const RouterInputs& inputs, std::size_t index) {
  return inputs.gate_weight_bf16.empty() ? inputs.gate_weight_fp32[index]
                                         : oracle::bf16_to_fp32(inputs.gate_weight_bf16[index]);
}

template <class Real>
std::vector<float> plain_logits(const RouterInputs& inputs, std::int64_t row) {
  std::vector<float> logits;
  for (std::int64_t e = 0; e < inputs.gate_rows; ++e) {
    std::array<Real, 4> lanes{};
    for (std::int64_t h = 0; h < inputs.hidden_size; ++h) {
      lanes[at(h % 4)] +=
          static_cast<Real>(oracle::bf16_to_fp32(inputs.hidden_states[at(row * inputs.hidden_size + h)])) *
          static_cast<Real>(weight_at(inputs, at(e * inputs.hidden_size + h)));
    }
    Real sum = (lanes[3] + lanes[2]) + (lanes[1] + lanes[0]);
    if (!inputs.linear_bias.empty()) sum += static_cast<Real>(inputs.linear_bias[at(e)]);
    logits.push_back(static_cast<float>(sum));
  }
  return logits;
}

// Selection and weights in plain code: only what the specs of these tests need.
template <class Real>
void plain_route(const RouterSpec& spec, const std::vector<float>& logits, const RouterInputs& inputs,
                 std::vector<std::int64_t>& ids, std::vector<float>& weights) {
  std::vector<Real> scores;
  float max = -INFINITY;
  for (const float x : logits) max = x > max ? x : max;
  for (const float x : logits) {
    const Real v = static_cast<Real>(x);
    switch (spec.score.func) {
      case oracle::ScoreFunc::kSigmoid:
        scores.push_back(Real{1} / (Real{1} + std::exp(-v)));
        break;
      case oracle::ScoreFunc::kSqrtSoftplus:
        scores.push_back(std::sqrt(v > 20 ? v : std::log1p(std::exp(v))));
        break;
      default:  // softmax
        scores.push_back(x == max ? Real{1} : std::exp(v - static_cast<Real>(max)));
    }
  }
  if (spec.score.func == oracle::ScoreFunc::kSoftmax) {
    Real sum = 0;
    for (auto it = scores.rbegin(); it != scores.rend(); ++it) sum += std::isnan(*it) ? Real{0} : *it;
    for (Real& s : scores) s *= Real{1} / sum;
  }
  std::vector<float> keys;
  for (std::size_t e = 0; e < scores.size(); ++e) {
    keys.push_back(static_cast<float>(scores[e]) + (inputs.selection_bias.empty() ? 0.0f : inputs.selection_bias[e]));
  }

  const std::int64_t group_size = inputs.gate_rows / spec.selection.n_group;
  std::vector<std::int64_t> groups(at(spec.selection.n_group));
  std::iota(groups.begin(), groups.end(), std::int64_t{0});
  std::vector<float> group_scores;
  for (const std::int64_t g : groups) {
    std::vector<float> best(keys.begin() + g * group_size, keys.begin() + (g + 1) * group_size);
    std::sort(best.rbegin(), best.rend());
    group_scores.push_back(spec.selection.group_score == oracle::GroupScore::kTop2Sum ? best[0] + best[1] : best[0]);
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [&](std::int64_t a, std::int64_t b) { return group_scores[at(a)] > group_scores[at(b)]; });
  groups.resize(at(spec.selection.topk_group));

  std::vector<std::int64_t> order;
  for (std::int64_t e = 0; e < inputs.gate_rows; ++e) {
    if (std::find(groups.begin(), groups.end(), e / group_size) != groups.end()) order.push_back(e);
  }
  const auto rank = [&](std::int64_t e) { return std::isnan(keys[at(e)]) ? -INFINITY : keys[at(e)]; };
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return rank(a) > rank(b); });
  ids.assign(order.begin(), order.begin() + oracle::top_k(spec));

  Real total = 0;
  for (auto id = ids.rbegin(); id != ids.rend(); ++id) total += scores[at(*id)];
  for (const std::int64_t id : ids) {
    Real w = scores[at(id)];
    if (spec.weights.renormalize == oracle::Renormalize::kL1) w /= total + static_cast<Real>(spec.weights.eps);
    w *= static_cast<Real>(spec.weights.routed_scaling_factor);
    weights.push_back(std::isfinite(w) ? static_cast<float>(w) : 0.0f);
  }
}

RouterOutputs answer(const Case& c, const RouterInputs& inputs, const RunRequest& request, FakeRouter::Kind kind) {
  const std::int64_t num_tokens = inputs.num_tokens;
  const std::int64_t k = oracle::topk_columns(c.spec);
  const std::int64_t num_experts = inputs.gate_rows;
  RouterOutputs out;
  out.num_tokens = num_tokens;
  out.top_k = k;
  out.topk_ids.assign(at(num_tokens * k), -1);
  out.topk_weights.assign(at(num_tokens * k), 0.0f);
  if (request.want_logits) {
    out.router_logits.assign(at(num_tokens * num_experts), std::bit_cast<float>(request.poison));
  }
  std::vector<std::int64_t> rows(at(inputs.valid_rows()));
  std::iota(rows.begin(), rows.end(), std::int64_t{0});
  const std::vector<float> contract_logits =
      inputs.from_logits() || rows.empty() ? inputs.router_logits : oracle::tc256_logits(c.spec, inputs, rows);

  for (const std::int64_t row : rows) {
    std::vector<float> logits(contract_logits.begin() + row * num_experts,
                              contract_logits.begin() + (row + 1) * num_experts);
    std::vector<std::int64_t> ids;
    std::vector<float> weights;
    if (kind == FakeRouter::Kind::kOracle) {
      const auto right =
          oracle::route_row(c.spec, std::span<const float>(logits), oracle::row_constants(c.spec, inputs, row));
      ids.assign(right.ids.begin(), right.ids.end());
      weights = right.weights;
    } else {
      const bool in_double = kind == FakeRouter::Kind::kDouble;
      if (!inputs.from_logits())
        logits = in_double ? plain_logits<double>(inputs, row) : plain_logits<float>(inputs, row);
      if (kind == FakeRouter::Kind::kBf16Logits && !inputs.from_logits()) {
        for (float& x : logits) x = oracle::round_to_bf16(x);
      }
      in_double ? plain_route<double>(c.spec, logits, inputs, ids, weights)
                : plain_route<float>(c.spec, logits, inputs, ids, weights);
    }
    std::copy(ids.begin(), ids.end(), out.topk_ids.begin() + row * k);
    std::copy(weights.begin(), weights.end(), out.topk_weights.begin() + row * k);
    if (!request.want_logits) continue;
    for (std::int64_t e = 0; e < num_experts; ++e) {
      const float x = logits[at(e)];
      out.router_logits[at(row * num_experts + e)] = std::isnan(x) ? std::bit_cast<float>(0x7fffffffu) : x;
    }
  }
  if (request.want_bookkeeping) {
    out.bookkeeping = oracle::bookkeeping(out.topk_ids, num_tokens, k, num_experts, request.block_size);
  }
  return out;
}

}  // namespace

RouterSpec small_spec() {
  RouterSpec spec;
  spec.name = "small";
  spec.shape.hidden_size = 64;
  spec.shape.num_experts = 16;
  spec.shape.top_k = 4;
  spec.score.func = oracle::ScoreFunc::kSigmoid;
  spec.selection.bias = oracle::BiasType::kFp32;
  spec.weights.renormalize = oracle::Renormalize::kL1;
  spec.weights.eps = 1e-20;
  spec.weights.eps_mode = oracle::EpsMode::kAdd;
  spec.weights.routed_scaling_factor = 2.5;
  return spec;
}

RouterSpec grouped_spec() {
  RouterSpec spec = small_spec();
  spec.selection.n_group = 4;
  spec.selection.topk_group = 2;
  spec.selection.group_score = oracle::GroupScore::kTop2Sum;
  spec.selection.group_mask = oracle::GroupMask::kNegInf;
  return spec;
}

Case small_case(const RouterSpec& spec, std::int64_t num_tokens, std::uint64_t data_key) {
  Case c;
  c.spec_name = "small";
  c.description.num_tokens = num_tokens;
  c.description.hidden_size = oracle::hidden_size(spec);
  c.description.num_experts = oracle::num_experts(spec);
  c.description.top_k = oracle::top_k(spec);
  c.description.n_group = spec.selection.n_group;
  c.description.topk_group = spec.selection.topk_group;
  c.description.data_key = data_key;
  c.description.selection_bias = BiasFamily::kUniform;
  c.description.bias_offset = 11.54f;
  c.description.bias_spread = 0.42f;
  c.spec = apply_shape(spec, c.description);
  return c;
}

Case logits_case(const RouterSpec& spec, const std::vector<std::vector<float>>& rows, const std::vector<float>& bias) {
  Case c = small_case(spec, static_cast<std::int64_t>(rows.size()));
  c.description.stage = Stage::kFromLogits;
  c.description.hidden_size = 0;
  RouterInputs data;
  data.num_tokens = c.description.num_tokens;
  data.gate_rows = c.description.num_experts;
  for (const auto& row : rows) data.router_logits.insert(data.router_logits.end(), row.begin(), row.end());
  data.selection_bias = bias;
  c.description.data = data;
  c.spec = apply_shape(spec, c.description);
  return c;
}

Claims contract_claims() {
  Claims claims;
  claims.name = "fake";
  claims.arithmetic = oracle::Arithmetic::kTc256;
  claims.determinism = Determinism::kBatchInvariant;
  claims.tie_rule = TieRule::kLowestIndex;
  claims.output_order = OutputOrder::kKeyDescThenIndex;
  claims.returns_logits = true;
  claims.returns_bookkeeping = true;
  return claims;
}

Claims bounded_claims() {
  Claims claims = contract_claims();
  claims.arithmetic = oracle::Arithmetic::kFp32AnyOrder;
  claims.returns_bookkeeping = false;
  return claims;
}

std::vector<Run> FakeRouter::run(const Case& c, const RouterInputs& inputs, const std::vector<RunRequest>& requests) {
  std::vector<Run> runs;
  for (const RunRequest& request : requests) {
    Run run{request, {}};
    if (request.misuse != Misuse::kNone) {
      run.result.status = RunResult::Status::kError;
      run.result.refused = true;
      run.result.message = "wrong";
      if (special_fault_) special_fault_(request, inputs, run.result);
      runs.push_back(std::move(run));
      continue;
    }
    const DerivedRouter derived = derive(c.spec, inputs, request.variation);
    Case of_run = c;
    of_run.spec = derived.spec;
    const RouterInputs selected = select_rows(derived.inputs, request);
    run.result.outputs = answer(of_run, selected, request, kind_);
    if (request.layout.weights_bf16) {
      for (float& weight : run.result.outputs.topk_weights) {
        weight = oracle::round_to_bf16(weight);
        if (!std::isfinite(weight)) weight = 0.0f;
      }
    }
    const bool derived_router = request.variation != Variation::kNone;
    const Fault& fault = derived_router ? special_fault_ : fault_;
    if (fault && !request.rows.empty()) fault(request, selected, run.result);
    runs.push_back(std::move(run));
  }
  return runs;
}

LawOutcome judge_case(const Case& c, Subject& router, const std::string& law) {
  const RouterInputs inputs = materialize(c);
  const auto results = judge(c, router.claims(), inputs, router.run(c, inputs, plan_runs(c, router.claims())), {law});
  return results.empty() ? LawOutcome{} : results.front().outcome;
}

std::vector<std::string> broken_laws(const Case& c, Subject& router) {
  const RouterInputs inputs = materialize(c);
  std::vector<std::string> broken;
  for (const LawResult& result :
       judge(c, router.claims(), inputs, router.run(c, inputs, plan_runs(c, router.claims())))) {
    if (result.outcome.violation) broken.emplace_back(result.law->id);
  }
  return broken;
}

}  // namespace samebits::properties
