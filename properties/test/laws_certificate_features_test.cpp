// The certificate on every feature of a spec: whatever logits inside the intervals lead to is accepted, and an answer
// that none of them leads to is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "oracle/reference/answer.h"
#include "properties/certificate.h"

namespace samebits::properties {
namespace {

using oracle::RouterSpec;
using Ids = std::vector<std::int64_t>;

struct Feature {
  std::string name;
  RouterSpec spec;
};
void PrintTo(const Feature& feature, std::ostream* out) {
  *out << feature.name;
}

RouterSpec base(oracle::ScoreFunc func) {
  RouterSpec spec;
  spec.shape.num_experts = 16;
  spec.shape.top_k = 4;
  spec.score.func = func;
  spec.weights.renormalize = oracle::Renormalize::kL1;
  return spec;
}

RouterSpec with_zero_experts(oracle::ZeroType type, oracle::Renormalize renormalize) {
  RouterSpec spec = base(oracle::ScoreFunc::kSoftmax);
  spec.selection.bias = oracle::BiasType::kFp32;
  spec.weights.renormalize = renormalize;
  spec.special.zero_experts = 8;
  spec.special.zero_type = type;
  return spec;
}

std::vector<Feature> features() {
  std::vector<Feature> list;
  const auto add = [&](const std::string& name, RouterSpec spec, const std::function<void(RouterSpec&)>& change) {
    change(spec);
    list.push_back({name, std::move(spec)});
  };
  using oracle::Renormalize;
  using oracle::ScoreFunc;
  using oracle::ZeroType;
  add("identity_scores", base(ScoreFunc::kIdentity), [](RouterSpec& s) { s.weights.renormalize = Renormalize::kNone; });
  add("identity_scores_renormalised", base(ScoreFunc::kIdentity), [](RouterSpec&) {});
  add("row_classes", base(ScoreFunc::kSqrtSoftplus), [](RouterSpec& s) {
    s.selection.bias = oracle::BiasType::kBf16;
    s.selection.bias_variants = {"text", "image"};
  });
  add("biased_score", base(ScoreFunc::kSigmoid), [](RouterSpec& s) {
    s.selection.bias = oracle::BiasType::kFp32;
    s.weights.source = oracle::WeightSource::kBiasedScore;
    s.weights.dtype = oracle::FloatType::kBf16;
  });
  add("per_group", base(ScoreFunc::kSoftmax), [](RouterSpec& s) {
    s.selection.n_group = s.selection.topk_group = 2;
    s.selection.topk_scope = oracle::TopkScope::kPerGroup;
  });
  add("sparsemixer", base(ScoreFunc::kSoftmax), [](RouterSpec& s) {
    s.selection.method = oracle::SelectionMethod::kSparsemixer;
    s.selection.rank_by = oracle::RankBy::kLogit;
    s.weights.renormalize = Renormalize::kNone;
    s.sparsemixer_jitter_eps = 0.3;
  });
  add("hash_table", base(ScoreFunc::kSqrtSoftplus), [](RouterSpec& s) {
    s.selection.method = oracle::SelectionMethod::kHashTable;
    s.hash.vocab_size = 3;
    s.hash.table_dtype = oracle::TableType::kInt32;
  });
  add("zero_experts", with_zero_experts(ZeroType::kIdentity, Renormalize::kNone), [](RouterSpec&) {});
  add("renamed_zero_experts", with_zero_experts(ZeroType::kIdentityRemappedToId0Weight0, Renormalize::kNone),
      [](RouterSpec& s) { s.weights.routed_scaling_factor = 6.0; });
  add("renamed_zero_experts_renormalised", with_zero_experts(ZeroType::kIdentityRemappedToId0Weight0, Renormalize::kL1),
      [](RouterSpec&) {});
  add("renamed_zero_experts_by_index", with_zero_experts(ZeroType::kIdentityRemappedToId0Weight0, Renormalize::kL1),
      [](RouterSpec& s) { s.selection.sort = oracle::SlotOrder::kByIndex; });
  add("shared_in_gate_log_space", base(ScoreFunc::kSigmoid), [](RouterSpec& s) {
    s.special.shared_experts = 2;
    s.special.shared_mode = oracle::SharedMode::kInGate;
    s.weights.renormalize = Renormalize::kLogSpaceL1;
    s.weights.global_scale = true;
    s.weights.routed_scaling_factor = 8.0;
  });
  add("shared_in_gate_l1_scales", base(ScoreFunc::kSigmoid), [](RouterSpec& s) {
    s.special.shared_experts = 1;
    s.special.shared_mode = oracle::SharedMode::kInGate;
    s.weights.per_expert_scale = s.weights.global_scale = true;
    s.selection.sort = oracle::SlotOrder::kByIndex;
  });
  add("after_topk_per_expert_scale", base(ScoreFunc::kSoftmax), [](RouterSpec& s) {
    s.score.stage = oracle::ScoreStage::kAfterTopk;
    s.selection.rank_by = oracle::RankBy::kLogit;
    s.weights.renormalize = Renormalize::kNone;
    s.weights.per_expert_scale = true;
  });
  return list;
}

// A row of logits near each other, its constants, and intervals of the given radius around it.
struct Example {
  explicit Example(const RouterSpec& spec, std::mt19937& random, float radius) {
    std::normal_distribution<float> normal;
    for (std::int64_t e = 0; e < oracle::gate_rows(spec); ++e) {
      logits.push_back(normal(random));
      scales.push_back(1 + normal(random) / 2);
    }
    for (std::int64_t e = 0; e < oracle::ranked_experts(spec); ++e) bias.push_back(normal(random) / 8);
    if (random() % 4 == 0) logits[5] = logits[2], bias[5] = bias[2];
    table = {3, 0, 15, 7};
    if (spec.selection.bias != oracle::BiasType::kNone) constants.selection_bias = bias;
    if (spec.weights.per_expert_scale) constants.per_expert_scale = scales;
    if (spec.weights.global_scale) constants.global_scale = 0.625f;
    if (spec.selection.method == oracle::SelectionMethod::kHashTable) constants.table_ids = table;
    for (const float x : logits) {
      bounds.lower.push_back(static_cast<double>(x) - static_cast<double>(radius));
      bounds.upper.push_back(static_cast<double>(x) + static_cast<double>(radius));
    }
  }
  std::vector<float> logits, scales, bias;
  std::vector<std::int32_t> table;
  oracle::RowConstants constants;
  oracle::LogitBounds bounds;
};

class CertificateFeature : public testing::TestWithParam<Feature> {};

TEST_P(CertificateFeature, AcceptsWhateverLogitsInsideTheBoundsGive) {
  const RouterSpec& spec = GetParam().spec;
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const float radius = trial % 2 == 0 ? 0.0f : 0.05f;
    const Example example(spec, random, radius);
    const BoundedRow row = bound_row(spec, example.bounds, radius == 0.0f, example.constants, TieRule::kLowestIndex);
    ASSERT_TRUE(row.judged);
    for (int neighbour = 0; neighbour < 4; ++neighbour) {
      std::vector<float> near = example.logits;
      for (float& x : near) x += radius * 0.999f * (static_cast<float>(random() % 2001) / 1000 - 1);
      const auto answer = oracle::route_row(spec, std::span<const float>(near), example.constants);
      const Ids ids(answer.ids.begin(), answer.ids.end());
      const auto selection = selection_contradiction(spec, row, ids, TieRule::kLowestIndex);
      ASSERT_FALSE(selection) << selection->reason;
      const auto order = order_contradiction(spec, row, ids, TieRule::kLowestIndex);
      ASSERT_FALSE(order) << order->reason;
      const std::vector<Interval> weights = weight_bounds(spec, row, ids);
      double sum = 0.0;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto weight = static_cast<double>(answer.weights[i]);
        ASSERT_TRUE(weights[i].contains(weight))
            << "slot " << i << ": " << weight << " in " << weights[i].lower << " " << weights[i].upper;
        sum += weight;
      }
      // The same formulas in double, rounded to fp32 at the end.
      const std::vector<double> doubles(near.begin(), near.end());
      const auto other = oracle::route_row(spec, std::span<const double>(doubles), example.constants);
      for (std::size_t i = 0; i < ids.size() && other.expert_ids == answer.expert_ids; ++i) {
        ASSERT_TRUE(weights[i].contains(static_cast<double>(static_cast<float>(other.weights[i]))));
      }
      const Interval total = weight_sum_bounds(spec, row, ids);
      ASSERT_TRUE(total.contains(sum)) << sum << " in " << total.lower << " " << total.upper;
    }
  }
}

// For exact logits: another expert in the last ranked slot, two slots swapped, a weight a thousandth off.
TEST_P(CertificateFeature, RefusesWhatNoLogitsGive) {
  const RouterSpec& spec = GetParam().spec;
  std::mt19937 random(2);
  int selections = 0, orders = 0, weights = 0, sums = 0;
  constexpr int kTrials = 60;
  for (int trial = 0; trial < kTrials; ++trial) {
    const Example example(spec, random, 0.0f);
    const BoundedRow row = bound_row(spec, example.bounds, true, example.constants, TieRule::kLowestIndex);
    const auto answer = oracle::route_row(spec, std::span<const float>(example.logits), example.constants);
    const Ids ids(answer.ids.begin(), answer.ids.end());

    Ids wrong = ids;
    for (std::int64_t e = 1; e < oracle::num_experts(spec); ++e) {  // the least logit that was not chosen
      const auto other = static_cast<std::size_t>(e);
      if (std::find(ids.begin(), ids.end(), e) != ids.end()) continue;
      const bool replaced = wrong[0] != ids[0];
      if (!replaced || example.logits[other] < example.logits[static_cast<std::size_t>(wrong[0])]) wrong[0] = e;
    }
    selections += selection_contradiction(spec, row, wrong, TieRule::kLowestIndex) ? 1 : 0;
    wrong = ids;
    std::swap(wrong[0], wrong[2]);
    orders += order_contradiction(spec, row, wrong, TieRule::kLowestIndex) ? 1 : 0;

    const std::vector<Interval> bounds = weight_bounds(spec, row, ids);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto weight = static_cast<double>(answer.weights[i]);
      const double off = spec.weights.dtype == oracle::FloatType::kBf16 ? 0.02 : 0.001;
      if (weight != 0.0 && !bounds[i].contains(weight * (1 + off))) {
        ++weights;
        break;
      }
    }
    double sum = 0.0;
    for (const float weight : answer.weights) sum += static_cast<double>(weight);
    sums += weight_sum_bounds(spec, row, ids).contains(sum * 1.05) ? 0 : 1;
  }
  EXPECT_GT(selections, kTrials * 3 / 4);
  // A renamed zero expert may be in either slot.
  const bool renamed = spec.special.zero_type == oracle::ZeroType::kIdentityRemappedToId0Weight0;
  EXPECT_GT(orders, renamed ? kTrials / 4 : kTrials * 3 / 4);
  // Renamed zero experts leave the sum of a renormalisation open; identity scores may cancel in it.
  const bool open = renamed && spec.weights.renormalize != oracle::Renormalize::kNone;
  if (!open) {
    EXPECT_GT(weights, kTrials * 3 / 4);
  }
  const bool cancels =
      spec.score.func == oracle::ScoreFunc::kIdentity || spec.weights.source == oracle::WeightSource::kBiasedScore;
  if (!open && !cancels) {
    EXPECT_GT(sums, kTrials * 3 / 4);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CertificateFeature, testing::ValuesIn(features()),
                         [](const auto& feature) { return feature.param.name; });

TEST(Certificate, RowsWithoutAnAnswerAreNotJudged) {
  RouterSpec spec = base(oracle::ScoreFunc::kSigmoid);
  spec.selection.bias = oracle::BiasType::kFp32;
  std::mt19937 random(3);
  Example example(spec, random, 0.0f);
  example.constants.routable = false;
  EXPECT_FALSE(bound_row(spec, example.bounds, true, example.constants, TieRule::kLowestIndex).judged);
}

TEST(Certificate, AWeightThatMayOverflowLeavesTheSumOpen) {
  RouterSpec spec = base(oracle::ScoreFunc::kSigmoid);
  spec.weights.renormalize = oracle::Renormalize::kNone;
  spec.weights.per_expert_scale = true;
  std::mt19937 random(6);
  Example example(spec, random, 0.0f);
  example.scales[2] = 3e38f;
  example.logits[2] = 3.0f;
  example.bounds.lower[2] = example.bounds.upper[2] = 3.0;
  const BoundedRow row = bound_row(spec, example.bounds, true, example.constants, TieRule::kLowestIndex);
  const auto answer = oracle::route_row(spec, std::span<const float>(example.logits), example.constants);
  const Ids ids(answer.ids.begin(), answer.ids.end());
  ASSERT_EQ(ids[0], 2);
  for (const double sum : {0.0, 1e38, -1.0}) EXPECT_TRUE(weight_sum_bounds(spec, row, ids).contains(sum));
  EXPECT_FALSE(weight_bounds(spec, row, ids)[1].contains(1e38));
}

TEST(Certificate, SharedExpertsAreChosenAlwaysAndComeLast) {
  RouterSpec spec = base(oracle::ScoreFunc::kSigmoid);
  spec.special.shared_experts = 2;
  spec.special.shared_mode = oracle::SharedMode::kInGate;
  std::mt19937 random(4);
  const Example example(spec, random, 0.0f);
  const BoundedRow row = bound_row(spec, example.bounds, true, example.constants, TieRule::kLowestIndex);
  const auto answer = oracle::route_row(spec, std::span<const float>(example.logits), example.constants);
  Ids ids(answer.ids.begin(), answer.ids.end());
  ASSERT_EQ(ids.back(), 17);
  std::swap(ids[4], ids[5]);
  EXPECT_TRUE(order_contradiction(spec, row, ids, TieRule::kLowestIndex));
  std::swap(ids[3], ids[4]);
  EXPECT_TRUE(order_contradiction(spec, row, ids, TieRule::kLowestIndex));
  EXPECT_FALSE(selection_contradiction(spec, row, ids, TieRule::kLowestIndex)) << "the set is right";
  for (std::int64_t e = 0; e < 16; ++e) {
    if (std::find(ids.begin(), ids.end(), e) == ids.end()) ids[5] = e;
  }
  EXPECT_TRUE(selection_contradiction(spec, row, ids, TieRule::kLowestIndex)) << "a shared expert is missing";
}

TEST(Certificate, SharedExpertsFollowTheTable) {
  RouterSpec spec = base(oracle::ScoreFunc::kSigmoid);
  spec.selection.method = oracle::SelectionMethod::kHashTable;
  spec.special.shared_experts = 2;
  spec.special.shared_mode = oracle::SharedMode::kInGate;
  std::mt19937 random(7);
  const Example example(spec, random, 0.0f);
  const BoundedRow row = bound_row(spec, example.bounds, true, example.constants, TieRule::kLowestIndex);
  EXPECT_FALSE(order_contradiction(spec, row, Ids{3, 0, 15, 7, 16, 17}, TieRule::kLowestIndex));
  EXPECT_TRUE(order_contradiction(spec, row, Ids{3, 0, 15, 7, 17, 16}, TieRule::kLowestIndex));
}

TEST(Certificate, RenamedZeroExpertsAreCounted) {
  RouterSpec spec = with_zero_experts(oracle::ZeroType::kIdentityRemappedToId0Weight0, oracle::Renormalize::kNone);
  spec.selection.bias = oracle::BiasType::kNone;
  std::mt19937 random(5);
  Example example(spec, random, 0.0f);
  const auto judge = [&](const Ids& ids) {
    oracle::LogitBounds bounds;
    bounds.lower.assign(example.logits.begin(), example.logits.end());
    bounds.upper = bounds.lower;
    const BoundedRow row = bound_row(spec, bounds, true, example.constants, TieRule::kLowestIndex);
    return selection_contradiction(spec, row, ids, TieRule::kLowestIndex).has_value();
  };
  std::fill(example.logits.begin(), example.logits.end(), -1.0f);
  example.logits[3] = example.logits[4] = 1.0f;
  example.logits[20] = 2.0f;  // one zero expert is best, a second one third
  example.logits[21] = 0.9f;
  EXPECT_FALSE(judge({0, 3, 4, 0}));
  EXPECT_TRUE(judge({3, 4, 0, 5})) << "the second zero expert ranks before 5";
  EXPECT_TRUE(judge({0, 3, 0, 0})) << "4 ranks before the third";
  example.logits[0] = 0.95f;
  EXPECT_FALSE(judge({0, 3, 4, 0})) << "one of them is expert 0";
}

// The one slot may be that of expert 0 or of a zero expert, and neither reading has a slot of another id.
TEST(Certificate, OneSlotOfId0MayWeighNothing) {
  RouterSpec spec = with_zero_experts(oracle::ZeroType::kIdentityRemappedToId0Weight0, oracle::Renormalize::kL1);
  spec.shape.num_experts = 1;
  spec.shape.top_k = 1;
  spec.special.zero_experts = 1;
  spec.selection.bias = oracle::BiasType::kNone;
  const auto judge = [&](Interval expert_0, Interval zero_expert) {
    const oracle::LogitBounds bounds{{expert_0.lower, zero_expert.lower}, {expert_0.upper, zero_expert.upper}};
    return weight_bounds(spec, bound_row(spec, bounds, false, {}, TieRule::kLowestIndex), Ids{0})[0];
  };
  const Interval open = judge({-1.0, 1.0}, {0.5, 0.5});
  EXPECT_TRUE(open.contains(0.0));
  EXPECT_TRUE(open.contains(1.0));
  EXPECT_FALSE(judge({1.0, 1.0}, {0.5, 0.5}).contains(0.0));
  EXPECT_FALSE(judge({0.25, 0.25}, {0.5, 0.5}).contains(1.0));
}

}  // namespace
}  // namespace samebits::properties
