// A router with sigmoid scores, a selection bias and no groups (GLM-5.3-Flash, Kimi-K3), in plain fp32.
#include <samebits/host_plugin.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

struct SigmoidRouter : samebits::HostRouter {
  static void describe(samebits_info& info) {
    std::strcpy(info.name, "sigmoid example");
    std::strcpy(info.arithmetic, "fp32-any-order");
    info.determinism = SAMEBITS_BATCH_INVARIANT;
    info.tie_break = SAMEBITS_TIES_LOWEST_INDEX;
    info.output_order = SAMEBITS_ORDER_KEY_DESC_THEN_INDEX;
  }
  static std::vector<samebits::Rule> rules(const samebits_router_spec& spec) {
    std::vector<samebits::Rule> rules = samebits::ordinary(spec);
    rules.push_back({"score_func", double(spec.score_func), SAMEBITS_SCORE_SIGMOID});
    rules.push_back({"renormalize", double(spec.renormalize), SAMEBITS_RENORM_L1});
    rules.push_back({"scale_stage", double(spec.scale_stage), SAMEBITS_SCALE_AFTER_RENORM});
    return rules;
  }
  // The order of the additions depends on H alone, so a row has the same bits in every batch.
  void logits(const float* x, float* logits) const {
    const float* w = gate_weight.data();
    for (int e = 0; e < spec.num_experts; ++e, w += spec.hidden_size) {
      logits[e] = std::transform_reduce(x, x + spec.hidden_size, w, 0.0f);
    }
  }
  // k times the best of the rest: larger key, then lower id; NaN only when nothing else is left.
  void route(float* score, int32_t* ids, float* weights) const {
    for (int e = 0; e < spec.num_experts; ++e) score[e] = float(1 / (1 + std::exp(-double(score[e]))));
    const auto key = [&](int e) { return selection_bias.empty() ? score[e] : score[e] + selection_bias[e]; };
    float sum = 0;
    for (int c = 0; c < spec.top_k; ++c) {
      int best = -1;
      for (int e = 0; e < spec.num_experts; ++e) {
        if (std::find(ids, ids + c, e) != ids + c) continue;
        if (best < 0 || key(e) > key(best) || (std::isnan(key(best)) && !std::isnan(key(e)))) best = e;
      }
      ids[c] = best;
      weights[c] = std::isnan(score[best]) ? 0 : score[best];
      sum += weights[c];
    }
    sum = spec.eps_mode == SAMEBITS_EPS_CLAMP_MIN ? std::max(sum, spec.eps) : sum + spec.eps;
    for (int c = 0; c < spec.top_k; ++c) weights[c] = sum > 0 ? weights[c] / sum * spec.routed_scaling_factor : 0;
  }
};
SAMEBITS_HOST_PLUGIN(SigmoidRouter)
