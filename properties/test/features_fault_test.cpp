// Every feature: an honest router keeps all laws, and each known mistake is found in the directed cases and named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "feature_specs.h"
#include "oracle/emulate/tc256.h"
#include "properties/test/test_specs.h"

namespace samebits::properties {
namespace {

using oracle::RouterSpec;
using testing::Contains;
using testing::HasSubstr;

// Judges the directed cases, after which every applicable law must be conclusive, and `more` random ones.
void expect_conclusive(const RouterSpec& spec, const Claims& claims, std::uint64_t more) {
  FakeRouter router(claims);
  Tally tally(spec, claims);
  std::vector<Case> cases = directed(spec);
  const std::size_t num_directed = cases.size();
  for (std::uint64_t i = 0; i < more; ++i)
    cases.push_back(generate_case(spec.name, "", spec, 1, 20 + i, {true, true, 40}));
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    const oracle::RouterInputs inputs = materialize(c);
    const auto results = judge(c, claims, inputs, router.run(c, inputs, plan_runs(c, claims)));
    for (const LawResult& result : results) {
      if (!result.outcome.violation) continue;
      ADD_FAILURE() << spec.name << ", " << c.description.hazard << ": " << result.law->id << ": "
                    << result.outcome.violation->summary;
    }
    if (i < num_directed) tally.add(results);
  }
  tally.finish();
  for (const auto& [law, result] : tally.laws()) {
    if (!result.applicable) continue;
    EXPECT_EQ(result.verdict, Verdict::kPass) << spec.name << ", " << law->id << ": " << result.relevant << " relevant";
  }
}

TEST(Features, AnHonestRouterKeepsEveryLaw) {
  for (const RouterSpec& spec : feature_specs()) {
    EXPECT_LE(directed(spec).size(), 20u) << spec.name;
    expect_conclusive(spec, contract_claims(), 60);
  }
}

TEST(Features, TheContractKeepsTheLawsOfAnErrorBoundToo) {
  for (const RouterSpec& spec : feature_specs()) expect_conclusive(spec, bounded_claims(), 60);
}

struct KnownMistake {
  RouterSpec (*spec)();
  const char* text;
};

void PrintTo(const KnownMistake& mistake, std::ostream* out) {
  *out << mistake.text;
}

class KnownMistakeTest : public testing::TestWithParam<KnownMistake> {};

TEST_P(KnownMistakeTest, IsFoundAndNamed) {
  const RouterSpec spec = GetParam().spec();
  FakeRouter router(contract_claims(), mistaken(spec, GetParam().text));
  bool found = false, named = false;
  for (const Case& c : directed(spec)) {
    const oracle::RouterInputs inputs = materialize(c);
    for (const LawResult& result :
         judge(c, router.claims(), inputs, router.run(c, inputs, plan_runs(c, router.claims())))) {
      if (!result.outcome.violation) continue;
      found = true;
      const auto& notes = result.outcome.violation->notes;
      named = named || std::any_of(notes.begin(), notes.end(), [](const std::string& note) {
                return note.starts_with("reproduced by: ") && note.find(GetParam().text) != std::string::npos;
              });
    }
    if (named) break;
  }
  EXPECT_TRUE(found);
  EXPECT_TRUE(named);
}

INSTANTIATE_TEST_SUITE_P(
    Features, KnownMistakeTest,
    testing::Values(KnownMistake{softcap_spec, "the softcap left out"},
                    KnownMistake{softcap_spec, "the softcap as a ratio of exponentials, which overflow"},
                    KnownMistake{classes_spec, "the selection bias of the first row class for every row"},
                    KnownMistake{classes_spec, "an unknown row class read as the first"},
                    KnownMistake{classes_spec, "the temperature left out"},
                    KnownMistake{table_spec, "a token id outside the table clamped to it"},
                    KnownMistake{table_spec, "a token id outside the table cut to 32 bits"},
                    KnownMistake{table_spec, "the table's ids sorted"},
                    KnownMistake{table_spec, "the table's ids sorted by score"},
                    KnownMistake{table_spec, "experts ranked although a table chooses them"},
                    KnownMistake{table_spec, "uniform weights for a table's experts"},
                    KnownMistake{zero_spec, "the zero experts left out of softmax and choice"},
                    KnownMistake{zero_spec, "the zero experts left out of the sum of the softmax"},
                    KnownMistake{zero_spec, "zero experts renamed to id 0 with weight 0"},
                    KnownMistake{renamed_zero_spec, "zero experts not renamed to id 0 with weight 0"},
                    KnownMistake{renamed_zero_spec, "the zero experts left out of softmax and choice"},
                    KnownMistake{shared_spec, "the shared experts left out of the sum"},
                    KnownMistake{shared_spec, "sigmoids divided by their sum instead of in log space"},
                    KnownMistake{shared_spec, "the learned global scale left out"},
                    KnownMistake{prepared_spec, "the learned scale of the slot instead of the expert's"},
                    KnownMistake{prepared_spec, "the learned scale of the expert left out"},
                    KnownMistake{prepared_spec, "the norm of the input left out"},
                    KnownMistake{prepared_spec, "eps of the input's norm left out"},
                    KnownMistake{prepared_spec, "the scale vector of the input left out"},
                    KnownMistake{prepared_spec, "the scale of the input left out"},
                    KnownMistake{per_group_spec, "the best of all experts instead of the best of each group"},
                    KnownMistake{sparsemixer_spec, "the threshold of sparsemixer left out"},
                    KnownMistake{sparsemixer_spec, "every pass of sparsemixer thresholded from the largest logit"},
                    KnownMistake{sparsemixer_spec, "one softmax over all experts instead of sparsemixer"},
                    KnownMistake{biased_spec, "weights taken from the unbiased score"},
                    KnownMistake{zero_spec, "weights taken from the biased score"},
                    KnownMistake{zero_spec, "the scale left out"}),
    [](const auto& test) {
      std::string name = test.param.spec().name + "_" + test.param.text;
      std::replace_if(
          name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
      return name;
    });

TEST(PrecisionLaw, NamesTheMistakeThatGivesTheLogits) {
  RouterSpec spec = prepared_spec();
  spec.shape.hidden_size = 60;  // H^-1/2 is no bf16 value
  spec.gate.input_norm_eps = 0.5;
  struct Edit {
    const char* text;
    void (*edit)(RouterSpec& wrong);
  };
  const std::vector<Edit> edits = {
      {"the norm of the input left out", [](RouterSpec& s) { s.gate.input_norm = oracle::InputNorm::kNone; }},
      {"eps of the input's norm left out", [](RouterSpec& s) { s.gate.input_norm_eps = 0.0; }},
      {"the scale of the input rounded to bf16",
       [](RouterSpec& s) { s.gate.input_scale_kind = oracle::InputScale::kRsqrtHiddenSizeBf16; }},
      {"the logits rounded to bf16", [](RouterSpec& s) { s.gate.logits_dtype = oracle::FloatType::kBf16; }}};
  for (const Edit& edit : edits) {
    RouterSpec wrong = spec;
    edit.edit(wrong);
    FakeRouter router(contract_claims(), [&](const RunRequest& q, const oracle::RouterInputs& inputs, RunResult& r) {
      if (!q.want_logits) return;
      std::vector<std::int64_t> rows(q.rows.size());
      std::iota(rows.begin(), rows.end(), std::int64_t{0});
      r.outputs.router_logits = oracle::tc256_logits(wrong, inputs, rows);
    });
    const LawOutcome outcome = judge_case(small_case(spec, 8), router, "precision");
    ASSERT_TRUE(outcome.violation) << edit.text;
    EXPECT_THAT(outcome.violation->notes, Contains(HasSubstr(edit.text)));
  }
}

// One planted fault for each law that a feature touches.
struct FeatureFault {
  const char* name;
  RouterSpec (*spec)();
  const char* hazard;
  const char* law;
  Fault fault;
};

std::vector<FeatureFault> feature_faults() {
  const auto set_row = [](RunResult& r, const RunRequest& q, std::int64_t row, std::int64_t id, float weight) {
    const std::size_t k = r.outputs.topk_ids.size() / q.rows.size();
    for (std::size_t i = 0; i < q.rows.size(); ++i) {
      if (q.rows[i] != row) continue;
      for (std::size_t slot = i * k; slot < (i + 1) * k; ++slot) {
        r.outputs.topk_ids[slot] = id < 0 ? id : static_cast<std::int64_t>(slot - i * k);
        r.outputs.topk_weights[slot] = weight;
      }
    }
  };
  return {
      {"a_row_of_an_unknown_class_is_routed", classes_spec, "row_classes", "unique_in_range",
       [=](const RunRequest& q, const oracle::RouterInputs&, RunResult& r) { set_row(r, q, 2, 0, 0.25f); }},
      {"a_row_of_an_unknown_class_has_a_weight", classes_spec, "row_classes", "unique_in_range",
       [=](const RunRequest& q, const oracle::RouterInputs&, RunResult& r) { set_row(r, q, 3, -1, 0.25f); }},
      {"a_row_of_a_known_class_has_no_answer", classes_spec, "row_classes", "unique_in_range",
       [=](const RunRequest& q, const oracle::RouterInputs&, RunResult& r) { set_row(r, q, 1, -1, 0.0f); }},
      {"a_token_past_the_table_is_routed", table_spec, "token_edges", "hash_routing",
       [=](const RunRequest& q, const oracle::RouterInputs&, RunResult& r) { set_row(r, q, 2, 0, 0.25f); }},
      {"another_token_of_the_table", table_spec, "token_edges", "hash_routing",
       [=](const RunRequest& q, const oracle::RouterInputs&, RunResult& r) { set_row(r, q, 1, 0, 0.25f); }},
      {"slots_of_the_table_swapped", table_spec, "token_edges", "order",
       [](const RunRequest&, const oracle::RouterInputs&, RunResult& r) {
         std::swap(r.outputs.topk_ids[0], r.outputs.topk_ids[1]);
         std::swap(r.outputs.topk_weights[0], r.outputs.topk_weights[1]);
       }},
      {"shared_expert_first", shared_spec, "shared_in_gate", "order",
       [](const RunRequest&, const oracle::RouterInputs&, RunResult& r) {
         std::swap(r.outputs.topk_ids[0], r.outputs.topk_ids[4]);
         std::swap(r.outputs.topk_weights[0], r.outputs.topk_weights[4]);
       }},
      {"shared_expert_twice", shared_spec, "shared_in_gate", "unique_in_range",
       [](const RunRequest&, const oracle::RouterInputs&, RunResult& r) { r.outputs.topk_ids[4] = 17; }},
      {"weights_sum_without_the_global_scale", shared_spec, "shared_in_gate", "sum",
       mistaken(shared_spec(), "the learned global scale left out")},
      {"weights_sum_without_the_scale_of_the_expert", prepared_spec, "dispatch_boundary", "sum",
       mistaken(prepared_spec(), "the learned scale of the expert left out")},
      {"id_of_a_renamed_zero_expert", renamed_zero_spec, "zero_experts", "unique_in_range",
       mistaken(renamed_zero_spec(), "zero experts not renamed to id 0 with weight 0")},
      {"weight_of_a_renamed_zero_expert", renamed_zero_spec, "zero_experts", "unique_in_range",
       [](const RunRequest&, const oracle::RouterInputs&, RunResult& r) {
         for (std::size_t i = 0; i < r.outputs.topk_ids.size(); ++i) {
           if (r.outputs.topk_ids[i] == 0) r.outputs.topk_weights[i] = 0.5f;
         }
       }},
      {"a_shared_expert_is_not_counted", shared_spec, "padding", "bookkeeping",
       [](const RunRequest& q, const oracle::RouterInputs&, RunResult& r) {
         if (q.want_bookkeeping) r.outputs.bookkeeping.tokens_per_expert[17] = 0;
       }},
      {"logits_of_another_input_scale", prepared_spec, "prepared_input", "precision",
       [](const RunRequest& q, const oracle::RouterInputs&, RunResult& r) {
         if (q.want_logits) r.outputs.router_logits.back() *= 1.0009765625f;
       }},
      {"a_weight_is_nan_where_the_scale_is", prepared_spec, "learned_scales", "non_finite",
       [](const RunRequest&, const oracle::RouterInputs& in, RunResult& r) {
         for (std::size_t i = 0; i < r.outputs.topk_ids.size(); ++i) {
           const std::int64_t id = r.outputs.topk_ids[i];
           if (id >= 0) r.outputs.topk_weights[i] *= in.per_expert_scale[static_cast<std::size_t>(id)];
         }
       }},
  };
}

class FeatureFaultTest : public testing::TestWithParam<FeatureFault> {};

TEST_P(FeatureFaultTest, IsFoundByItsLaw) {
  const Case c = directed_case(GetParam().spec(), GetParam().hazard);
  FakeRouter honest(contract_claims()), faulty(contract_claims(), GetParam().fault);
  const LawOutcome good = judge_case(c, honest, GetParam().law);
  EXPECT_FALSE(good.violation);
  EXPECT_GT(good.relevant, 0);
  const LawOutcome bad = judge_case(c, faulty, GetParam().law);
  ASSERT_TRUE(bad.violation);
  EXPECT_EQ(bad.violation->law, GetParam().law);
  EXPECT_EQ(bad.violation->summary.find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Laws, FeatureFaultTest, testing::ValuesIn(feature_faults()),
                         [](const auto& fault) { return fault.param.name; });

}  // namespace
}  // namespace samebits::properties
