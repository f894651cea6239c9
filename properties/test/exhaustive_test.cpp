// Each sweep holds what it says, all of it, and reaches a fault that lies in one of its inputs alone.
#include "properties/exhaustive/exhaustive.h"

#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <numeric>
#include <set>

#include "oracle/reference/answer.h"
#include "properties/test/laws_fake_router.h"
#include "properties/test/test_specs.h"

namespace samebits::properties {
namespace {

using oracle::RouterInputs;
using oracle::RouterSpec;

std::unique_ptr<SweepStream> open(const std::string& name, const RouterSpec& spec = {}) {
  const ExhaustiveSweep* sweep = find_exhaustive(name);
  if (sweep == nullptr) throw std::invalid_argument("no sweep " + name);
  return sweep->open(spec);
}

// f(batch) for every batch; returns the number of items that they hold.
template <class F>
std::int64_t for_each_batch(SweepStream& stream, F f) {
  std::int64_t items = 0;
  while (const auto batch = stream.next()) {
    items += batch->items;
    f(*batch);
  }
  return items;
}

// A spec of 24 experts, for pairs: enough to cross no warp, few enough to look at every row.
RouterSpec pair_spec(std::int64_t num_experts = 24, std::int64_t top_k = 3) {
  RouterSpec spec = small_spec();
  spec.shape.num_experts = num_experts;
  spec.shape.top_k = top_k;
  return spec;
}

// The first violation that the batches show, with every `stride`-th of them judged.
std::optional<Violation> first_violation(SweepStream& stream, const Fault& fault, std::int64_t stride = 1) {
  FakeRouter router(contract_claims(), fault);
  for (std::int64_t i = 0;; ++i) {
    const auto batch = stream.next();
    if (!batch) return std::nullopt;
    if (i % stride != 0) continue;
    const RouterInputs& inputs = *batch->c.description.data;
    const auto runs = router.run(batch->c, inputs, exhaustive_runs(*batch, router.claims()));
    for (const LawResult& result : judge(batch->c, router.claims(), inputs, runs)) {
      if (!result.outcome.violation) continue;
      Violation violation = *result.outcome.violation;
      violation.law = result.law->id;
      return violation;
    }
  }
}

TEST(Exhaustive, FlagsAreTheWholeProduct) {
  const auto stream = open("flags");
  std::set<std::string> seen;
  std::int64_t specs = 0;
  const std::int64_t items = for_each_batch(*stream, [&](const SweepBatch& batch) {
    EXPECT_TRUE(oracle::find_problems(batch.c.spec).empty());
    if (batch.c.description.stage != Stage::kFull) return;
    ++specs;
    if (specs % 64 != 0) return;
    EXPECT_TRUE(seen.insert(oracle::to_yaml(batch.c.spec)).second);
  });
  // 4 score functions, 2 stages, 2 score types, 2 ranks, 3 biases, 2 slot orders, 2 sources, 3 renormalisations, 3 eps
  // modes, 3 scale stages, 2 weight types, 2 logit types, 6 kinds of groups.
  EXPECT_EQ(stream->size(), 4 * 2 * 2 * 2 * 3 * 2 * 2 * 3 * 3 * 3 * 2 * 2 * 6);
  EXPECT_EQ(items + stream->refused(), stream->size());
  // By score function: none or l1 with 3 eps modes, by 1 source without a bias and 2 with each of the two; of sigmoid
  // log_space_l1 too, with no eps, one source and any bias. before_topk ranks by either; after_topk by the logit,
  // without a bias.
  const int before = 2 * (3 * 6 * 5 + (6 * 5 + 3)), after = 3 * 6 + (6 + 1);
  EXPECT_EQ(items, (before + after) * 2 * 2 * 3 * 2 * 2 * 6);
  EXPECT_EQ(specs, items);
}

TEST(Exhaustive, CountsHoldEveryAssignmentAndSoEveryVector) {
  const auto stream = open("counts");
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::set<std::vector<std::int64_t>>> vectors;
  std::set<std::vector<std::int64_t>> assignments;
  const std::int64_t items = for_each_batch(*stream, [&](const SweepBatch& batch) {
    const CaseDescription& d = batch.c.description;
    std::vector<std::int64_t> assignment{d.num_experts, d.top_k};
    std::vector<std::int64_t> counts(static_cast<std::size_t>(d.num_experts), 0);
    for (std::int64_t row = 0; row < d.num_tokens; ++row) {
      const auto logits =
          std::span(d.data->router_logits)
              .subspan(static_cast<std::size_t>(row * d.num_experts), static_cast<std::size_t>(d.num_experts));
      auto ids = oracle::route_row(batch.c.spec, logits, {}).ids;
      std::sort(ids.begin(), ids.end());
      for (const std::int32_t id : ids) ++counts[static_cast<std::size_t>(id)];
      assignment.insert(assignment.end(), ids.begin(), ids.end());
    }
    EXPECT_TRUE(assignments.insert(assignment).second);
    vectors[{d.num_experts, d.top_k, d.num_tokens}].insert(counts);
  });
  EXPECT_EQ(items, stream->size());
  EXPECT_EQ(std::ssize(assignments), items);
  // A vector of counts is possible exactly when no expert has more than T of the T k slots.
  for (const auto& [shape, met] : vectors) {
    const auto& [experts, k, tokens] = shape;
    std::int64_t possible = 0;
    std::vector<std::int64_t> counts(static_cast<std::size_t>(experts), 0);
    for (bool more = true; more;) {
      possible += std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) == tokens * k;
      more = false;
      for (std::int64_t& count : counts) {
        if (++count <= tokens) {
          more = true;
          break;
        }
        count = 0;
      }
    }
    EXPECT_EQ(std::ssize(met), possible) << experts << " experts, k " << k << ", " << tokens << " rows";
  }
  EXPECT_EQ(vectors.size(), 10u * 5u);
}

TEST(Exhaustive, EveryBf16ValueIsALogitAndABias) {
  const auto stream = open("bf16_values");
  std::map<bool, std::map<oracle::ScoreFunc, std::set<std::uint32_t>>> values;
  const std::int64_t items = for_each_batch(*stream, [&](const SweepBatch& batch) {
    const RouterInputs& data = *batch.c.description.data;
    const bool bias = !data.selection_bias.empty();
    const std::vector<float>& from = bias ? data.selection_bias : data.router_logits;
    for (std::size_t i = 1; i < from.size(); i += 4) {
      values[bias][batch.c.spec.score.func].insert(std::bit_cast<std::uint32_t>(from[i]) >> 16);
    }
  });
  EXPECT_EQ(items, stream->size());
  EXPECT_EQ(items, 65536 * (2 * 5 + 2 * 4));
  for (const bool bias : {false, true}) {
    ASSERT_EQ(values[bias].size(), 4u);
    for (const auto& [func, met] : values[bias]) EXPECT_EQ(met.size(), 65536u);
  }
}

TEST(Exhaustive, WeakOrdersAreTheFubiniNumbers) {
  const auto stream = open("weak_orders");
  constexpr std::int64_t kFubini[] = {1, 1, 3, 13, 75, 541, 4683, 47293};
  // The orders of each number of keys, ungrouped and for k = 1, as sets of ranks.
  std::map<std::int64_t, std::set<std::vector<float>>> orders;
  std::map<std::int64_t, std::int64_t> rules, rows;
  std::string last;
  const std::int64_t items = for_each_batch(*stream, [&](const SweepBatch& batch) {
    const RouterSpec& spec = batch.c.spec;
    const std::int64_t n = oracle::num_experts(spec);
    rows[n] += batch.items;
    if (oracle::top_k(spec) != 1 || spec.selection.n_group != 1) return;
    const std::vector<float>& logits = batch.c.description.data->router_logits;
    for (std::size_t row = 0; row * static_cast<std::size_t>(n) < logits.size(); ++row) {
      const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(row) * n;
      std::vector<float> keys(begin, begin + n);
      for (float& key : keys) key += 0.0f;  // -0 and +0 are one key
      EXPECT_TRUE(orders[n].insert(keys).second);
    }
  });
  EXPECT_EQ(items, stream->size());
  for (std::int64_t n = 1; n <= 7; ++n) {
    EXPECT_EQ(std::ssize(orders[n]), kFubini[n]) << n;
    EXPECT_EQ(rows[n] % kFubini[n], 0) << n;
    EXPECT_GE(rows[n] / kFubini[n], n) << n;
  }
  // Seven keys have no groups but those of one expert, which end at six keys.
  EXPECT_EQ(rows[7], 7 * kFubini[7]);
  // Of 4 keys: k = 1..4 without groups; two groups: one kept k = 1, 2, both kept k = 1..4, by 2 scores and 2 masks; per
  // group k = 2, 4; four groups: k up to the 1..4 kept, by 2 masks; per group k = 4.
  EXPECT_EQ(rows[4], kFubini[4] * (4 + (2 + 4) * 4 + 2 + (1 + 2 + 3 + 4) * 2 + 1));
}

TEST(Exhaustive, PairsAreTiedAcrossTheCut) {
  for (const bool grouped : {false, true}) {
    RouterSpec spec = pair_spec();
    if (grouped) {
      spec.selection.n_group = 4;
      spec.selection.topk_group = 2;
      spec.selection.group_score = oracle::GroupScore::kTop2Sum;
      spec.selection.group_mask = oracle::GroupMask::kNegInf;
    }
    const auto stream = open("tied_pairs", spec);
    std::map<std::pair<std::int32_t, std::int32_t>, std::set<std::vector<std::int32_t>>> pairs;
    const std::int64_t items = for_each_batch(*stream, [&](const SweepBatch& batch) {
      const RouterInputs& data = *batch.c.description.data;
      for (std::int64_t row = 0; row < data.num_tokens; ++row) {
        const auto logits = std::span(data.router_logits).subspan(static_cast<std::size_t>(row * 24), 24);
        const auto answer = oracle::route_row(batch.c.spec, logits, oracle::row_constants(batch.c.spec, data, row));
        const auto key = [&](std::int32_t e) { return answer.keys[static_cast<std::size_t>(e)]; };
        ASSERT_EQ(key(answer.last_chosen), key(answer.first_rejected));
        pairs[{answer.last_chosen, answer.first_rejected}].insert(answer.ids);
      }
    });
    EXPECT_EQ(items, stream->size());
    EXPECT_EQ(items, 24 * 23 / 2 * 4);
    EXPECT_EQ(std::ssize(pairs), 24 * 23 / 2);
    for (const auto& [pair, placements] : pairs) {
      EXPECT_LT(pair.first, pair.second);
      EXPECT_GE(placements.size(), grouped ? 1u : 2u) << pair.first << " " << pair.second;
    }
  }
  // At the sizes of real routers.
  EXPECT_EQ(open("tied_pairs", model("glm-5.3-flash"))->size(), 4 * 41328);
  EXPECT_EQ(open("tied_pairs", pair_spec(896, 16))->size(), 4 * 400960);
}

TEST(Exhaustive, TiedPairsRefuseATable) {
  RouterSpec spec = small_spec();
  spec.selection.method = oracle::SelectionMethod::kHashTable;
  EXPECT_THROW(open("tied_pairs", spec), std::invalid_argument);
}

TEST(Exhaustive, ARightRouterPasses) {
  for (const auto& [name, stride] : {std::pair{"counts", 7}, std::pair{"bf16_values", 16}, std::pair{"weak_orders", 64},
                                     std::pair{"tied_pairs", 1}, std::pair{"flags", 256}}) {
    const auto stream = open(name, pair_spec(40, 4));
    const auto violation = first_violation(*stream, {}, stride);
    EXPECT_FALSE(violation) << name << ": " << violation->law << ": " << violation->summary;
  }
}

// Weights of one combination of flags that no model has.
TEST(Exhaustive, AFaultOfOneCombinationOfFlagsIsFound) {
  const auto stream = open("flags");
  const auto wanted = [](const RouterSpec& spec) {
    return spec.score.func == oracle::ScoreFunc::kSqrtSoftplus && spec.weights.eps_mode == oracle::EpsMode::kClampMin &&
           spec.selection.bias == oracle::BiasType::kBf16 && spec.weights.dtype == oracle::FloatType::kBf16 &&
           spec.weights.scale_stage == oracle::ScaleStage::kBeforeDivide && spec.selection.n_group == 2;
  };
  for (const RouterSpec& spec : all_models()) EXPECT_FALSE(wanted(spec)) << spec.name;
  FakeRouter router(contract_claims(), [](const RunRequest&, const RouterInputs&, RunResult& result) {
    float& weight = result.outputs.topk_weights.front();
    weight = std::bit_cast<float>(std::bit_cast<std::uint32_t>(weight) ^ 0x10000u);
  });
  FakeRouter honest(contract_claims());
  int found = 0, met = 0;
  for_each_batch(*stream, [&](const SweepBatch& batch) {
    if (!wanted(batch.c.spec)) return;
    ++met;
    const RouterInputs& inputs = *batch.c.description.data;
    const auto requests = exhaustive_runs(batch, contract_claims());
    const auto broken = [&](FakeRouter& subject) {
      const auto results =
          judge(batch.c, subject.claims(), inputs, subject.run(batch.c, inputs, requests), {"weights"});
      return results.front().outcome.violation.has_value();
    };
    EXPECT_FALSE(broken(honest));
    found += broken(router);
  });
  EXPECT_GT(met, 0);
  EXPECT_EQ(found, met);
}

TEST(Exhaustive, AFaultOfOneVectorOfCountsIsFound) {
  const auto fault = [](const RunRequest&, const RouterInputs&, RunResult& result) {
    oracle::Bookkeeping& book = result.outputs.bookkeeping;
    if (book.tokens_per_expert == std::vector<std::int32_t>{2, 0, 3, 0}) book.expert_offsets[4] = 4;
  };
  const auto stream = open("counts");
  const auto violation = first_violation(*stream, fault);
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->law, "bookkeeping");
}

TEST(Exhaustive, AFaultOfOneValueIsFound) {
  const auto fault = [](const RunRequest&, const RouterInputs& inputs, RunResult& result) {
    for (std::size_t row = 0; row < result.outputs.topk_weights.size() / static_cast<std::size_t>(result.outputs.top_k);
         ++row) {
      if (std::bit_cast<std::uint32_t>(inputs.router_logits[row * 4 + 1]) != 0xc2cf0000u) continue;  // -103.5
      result.outputs.topk_weights[row * static_cast<std::size_t>(result.outputs.top_k)] *= 1.5f;
    }
  };
  const auto stream = open("bf16_values");
  const auto violation = first_violation(*stream, fault);
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->law, "weights");
}

TEST(Exhaustive, AFaultOfOneWeakOrderIsFound) {
  // Three keys tied at the cut: one of the chosen gives way to the higher id, in this order of six keys alone.
  const auto fault = [](const RunRequest&, const RouterInputs& inputs, RunResult& result) {
    const std::vector<float> wanted{0.0f, -1.0f, 0.0f, -0.5f, 0.0f, 0.5f};
    if (inputs.gate_rows != 6 || result.outputs.top_k != 3) return;
    for (std::size_t row = 0; row < static_cast<std::size_t>(inputs.num_tokens); ++row) {
      const auto begin = inputs.router_logits.begin() + static_cast<std::ptrdiff_t>(row) * 6;
      if (std::equal(wanted.begin(), wanted.end(), begin) && result.outputs.topk_ids[row * 3 + 2] == 2) {
        result.outputs.topk_ids[row * 3 + 2] = 4;
      }
    }
  };
  const auto stream = open("weak_orders");
  const auto violation = first_violation(*stream, fault);
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->law, "selection");
}

TEST(Exhaustive, AFaultOfOnePairIsFound) {
  // Ties go to the lower id except between the last lane of a warp and the first of the one after the next.
  const auto fault = [](const RunRequest&, const RouterInputs&, RunResult& result) {
    for (std::size_t i = 3; i < result.outputs.topk_ids.size(); i += 4) {
      if (result.outputs.topk_ids[i] == 31) result.outputs.topk_ids[i] = 64;
    }
  };
  const auto stream = open("tied_pairs", pair_spec(80, 4));
  const auto violation = first_violation(*stream, fault);
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->law, "selection");
}

TEST(Exhaustive, OneRowOfABatchKeepsItsBias) {
  const auto stream = open("bf16_values");
  while (const auto batch = stream->next()) {
    const RouterInputs& data = *batch->c.description.data;
    if (data.selection_bias.empty()) continue;
    const Case one = only_row(batch->c, 100);
    const RouterInputs inputs = materialize(one);
    EXPECT_EQ(inputs.selection_bias.size(), 4u);
    EXPECT_EQ(inputs.selection_bias[1], data.selection_bias[401]);
    EXPECT_TRUE(inputs.row_class.empty());
    FakeRouter honest(contract_claims());
    EXPECT_TRUE(broken_laws(one, honest).empty());
    return;
  }
  FAIL();
}

}  // namespace
}  // namespace samebits::properties
