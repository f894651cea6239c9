#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "harness/backend/abi_adapter.h"
#include "harness/backend/abi_table.h"
#include "oracle/spec/router_spec.h"
#include "oracle/spec/spec_yaml.h"

namespace samebits::harness {
namespace {

using namespace oracle;

// A spec in which every field that the C struct carries differs from its default, and nothing else does.
RouterSpec unusual_spec() {
  RouterSpec spec;
  spec.shape.hidden_size = 48;
  spec.shape.num_experts = 24;
  spec.shape.top_k = 3;
  spec.gate.logits_dtype = FloatType::kBf16;
  spec.gate.linear_bias = BiasType::kBf16;
  spec.gate.input_norm = InputNorm::kRmsnormUnweighted;
  spec.gate.input_norm_eps = 0.25;
  spec.gate.input_scale_vector = true;
  spec.gate.input_scale = 0.5;
  spec.gate.input_scale_kind = oracle::InputScale::kRsqrtHiddenSize;
  spec.logits.temperature = 2.0;
  spec.logits.softcap = 30.0;
  spec.score.func = ScoreFunc::kSigmoid;
  spec.score.stage = ScoreStage::kAfterTopk;
  spec.score.dtype = FloatType::kBf16;
  spec.selection.method = SelectionMethod::kSparsemixer;
  spec.selection.rank_by = RankBy::kLogit;
  spec.selection.bias = BiasType::kFp32;
  spec.selection.bias_variants = {"0", "1"};
  spec.selection.n_group = 8;
  spec.selection.topk_group = 4;
  spec.selection.group_score = GroupScore::kTop2Sum;
  spec.selection.group_mask = GroupMask::kNegInf;
  spec.selection.topk_scope = TopkScope::kPerGroup;
  spec.selection.sort = SlotOrder::kByIndex;
  spec.weights.source = WeightSource::kBiasedScore;
  spec.weights.renormalize = Renormalize::kL1;
  spec.weights.eps = 0.125;
  spec.weights.eps_mode = EpsMode::kAdd;
  spec.weights.routed_scaling_factor = 2.5;
  spec.weights.scale_stage = ScaleStage::kBeforeDivide;
  spec.weights.per_expert_scale = true;
  spec.weights.global_scale = true;
  spec.weights.dtype = FloatType::kBf16;
  spec.special.shared_experts = 2;
  spec.special.shared_mode = SharedMode::kInGate;
  spec.special.zero_experts = 4;
  spec.special.zero_type = ZeroType::kIdentity;
  spec.hash.vocab_size = 1000;
  spec.sparsemixer_jitter_eps = 0.5;
  return spec;
}

TEST(AbiAdapter, AnUnusualSpecComesBack) {
  const RouterSpec spec = unusual_spec();
  EXPECT_TRUE(from_abi(to_abi(spec)) == spec) << to_yaml(from_abi(to_abi(spec)));
  EXPECT_TRUE(from_abi(to_abi(RouterSpec())) == RouterSpec());
}

// Every 4-byte field of the C struct is different between the two specs, so each one is written from some field.
TEST(AbiAdapter, EveryFieldOfTheStructIsWritten) {
  const samebits_router_spec usual = to_abi(RouterSpec());
  const samebits_router_spec unusual = to_abi(unusual_spec());
  std::vector<std::uint32_t> a(sizeof(usual) / 4), b(a.size());
  std::memcpy(a.data(), &usual, sizeof(usual));
  std::memcpy(b.data(), &unusual, sizeof(unusual));
  EXPECT_EQ(a[0], sizeof(samebits_router_spec));
  for (std::size_t i = 1; i < a.size(); ++i) EXPECT_NE(a[i], b[i]) << "word " << i << " of samebits_router_spec";
}

// One enumerator: what the C struct must hold for it, stated here a second time, and the way back.
template <class SetField, class Enum>
void expect_enumerator(SetField field, Enum value, std::int32_t samebits_router_spec::*abi_field,
                       std::int32_t expected) {
  RouterSpec spec;
  field(spec) = value;
  const samebits_router_spec abi = to_abi(spec);
  EXPECT_EQ(abi.*abi_field, expected);
  RouterSpec back = from_abi(abi);
  EXPECT_EQ(field(back), value);
  EXPECT_TRUE(back == spec) << to_yaml(back);
}

TEST(AbiAdapter, EveryEnumeratorKeepsItsName) {
  using S = samebits_router_spec;
  const auto check = [](auto field, std::int32_t S::*abi_field, auto... pairs) {
    (expect_enumerator(field, pairs.first, abi_field, pairs.second), ...);
  };
  const auto is = [](auto value, std::int32_t expected) { return std::pair(value, expected); };
  check(
      [](RouterSpec & s) -> auto& { return s.gate.logits_dtype; }, &S::logits_dtype,
      is(FloatType::kFp32, SAMEBITS_FP32), is(FloatType::kBf16, SAMEBITS_BF16));
  check(
      [](RouterSpec & s) -> auto& { return s.score.dtype; }, &S::score_dtype, is(FloatType::kFp32, SAMEBITS_FP32),
      is(FloatType::kBf16, SAMEBITS_BF16));
  check(
      [](RouterSpec & s) -> auto& { return s.weights.dtype; }, &S::weights_dtype, is(FloatType::kFp32, SAMEBITS_FP32),
      is(FloatType::kBf16, SAMEBITS_BF16));
  check(
      [](RouterSpec & s) -> auto& { return s.gate.linear_bias; }, &S::linear_bias_dtype,
      is(BiasType::kNone, SAMEBITS_DTYPE_NONE), is(BiasType::kBf16, SAMEBITS_BF16), is(BiasType::kFp32, SAMEBITS_FP32));
  check(
      [](RouterSpec & s) -> auto& { return s.selection.bias; }, &S::selection_bias_dtype,
      is(BiasType::kNone, SAMEBITS_DTYPE_NONE), is(BiasType::kBf16, SAMEBITS_BF16), is(BiasType::kFp32, SAMEBITS_FP32));
  check(
      [](RouterSpec & s) -> auto& { return s.gate.input_norm; }, &S::input_norm,
      is(InputNorm::kNone, SAMEBITS_INPUT_NORM_NONE),
      is(InputNorm::kRmsnormUnweighted, SAMEBITS_INPUT_NORM_RMSNORM_UNWEIGHTED));
  check(
      [](RouterSpec & s) -> auto& { return s.gate.input_scale_kind; }, &S::input_scale_rsqrt_hidden_size,
      is(InputScale::kFactor, 0), is(InputScale::kRsqrtHiddenSize, 1), is(InputScale::kRsqrtHiddenSizeBf16, 2));
  check(
      [](RouterSpec & s) -> auto& { return s.score.func; }, &S::score_func,
      is(ScoreFunc::kSoftmax, SAMEBITS_SCORE_SOFTMAX), is(ScoreFunc::kSigmoid, SAMEBITS_SCORE_SIGMOID),
      is(ScoreFunc::kSqrtSoftplus, SAMEBITS_SCORE_SQRT_SOFTPLUS), is(ScoreFunc::kIdentity, SAMEBITS_SCORE_IDENTITY));
  check(
      [](RouterSpec & s) -> auto& { return s.score.stage; }, &S::score_stage,
      is(ScoreStage::kBeforeTopk, SAMEBITS_SCORE_BEFORE_TOPK), is(ScoreStage::kAfterTopk, SAMEBITS_SCORE_AFTER_TOPK));
  check(
      [](RouterSpec & s) -> auto& { return s.selection.method; }, &S::selection_method,
      is(SelectionMethod::kTopk, SAMEBITS_SELECT_TOPK), is(SelectionMethod::kHashTable, SAMEBITS_SELECT_HASH_TABLE),
      is(SelectionMethod::kSparsemixer, SAMEBITS_SELECT_SPARSEMIXER));
  check(
      [](RouterSpec & s) -> auto& { return s.selection.rank_by; }, &S::rank_by,
      is(RankBy::kScore, SAMEBITS_RANK_BY_SCORE), is(RankBy::kLogit, SAMEBITS_RANK_BY_LOGIT));
  check(
      [](RouterSpec & s) -> auto& { return s.selection.group_score; }, &S::group_score,
      is(GroupScore::kNone, SAMEBITS_GROUP_SCORE_NONE), is(GroupScore::kMax, SAMEBITS_GROUP_SCORE_MAX),
      is(GroupScore::kTop2Sum, SAMEBITS_GROUP_SCORE_TOP2_SUM));
  check(
      [](RouterSpec & s) -> auto& { return s.selection.group_mask; }, &S::group_mask,
      is(GroupMask::kNone, SAMEBITS_GROUP_MASK_NONE), is(GroupMask::kNegInf, SAMEBITS_GROUP_MASK_NEG_INF),
      is(GroupMask::kZero, SAMEBITS_GROUP_MASK_ZERO));
  check(
      [](RouterSpec & s) -> auto& { return s.selection.topk_scope; }, &S::topk_scope,
      is(TopkScope::kGlobal, SAMEBITS_TOPK_GLOBAL), is(TopkScope::kPerGroup, SAMEBITS_TOPK_PER_GROUP));
  check(
      [](RouterSpec & s) -> auto& { return s.selection.sort; }, &S::sort,
      is(SlotOrder::kByKeyDesc, SAMEBITS_SORT_BY_KEY_DESC), is(SlotOrder::kByIndex, SAMEBITS_SORT_BY_INDEX));
  check(
      [](RouterSpec & s) -> auto& { return s.weights.source; }, &S::weight_source,
      is(WeightSource::kUnbiasedScore, SAMEBITS_WEIGHT_UNBIASED_SCORE),
      is(WeightSource::kBiasedScore, SAMEBITS_WEIGHT_BIASED_SCORE));
  check(
      [](RouterSpec & s) -> auto& { return s.weights.renormalize; }, &S::renormalize,
      is(Renormalize::kNone, SAMEBITS_RENORM_NONE), is(Renormalize::kL1, SAMEBITS_RENORM_L1),
      is(Renormalize::kLogSpaceL1, SAMEBITS_RENORM_LOG_SPACE_L1));
  check(
      [](RouterSpec & s) -> auto& { return s.weights.eps_mode; }, &S::eps_mode, is(EpsMode::kNone, SAMEBITS_EPS_NONE),
      is(EpsMode::kAdd, SAMEBITS_EPS_ADD), is(EpsMode::kClampMin, SAMEBITS_EPS_CLAMP_MIN));
  check(
      [](RouterSpec & s) -> auto& { return s.weights.scale_stage; }, &S::scale_stage,
      is(ScaleStage::kAfterRenorm, SAMEBITS_SCALE_AFTER_RENORM),
      is(ScaleStage::kBeforeDivide, SAMEBITS_SCALE_BEFORE_DIVIDE),
      is(ScaleStage::kOnExpertOutput, SAMEBITS_SCALE_ON_EXPERT_OUTPUT));
  check(
      [](RouterSpec & s) -> auto& { return s.special.shared_mode; }, &S::shared_mode,
      is(SharedMode::kOutsideRouter, SAMEBITS_SHARED_OUTSIDE_ROUTER),
      is(SharedMode::kOutsideRouterSigmoidGate, SAMEBITS_SHARED_OUTSIDE_ROUTER_SIGMOID_GATE),
      is(SharedMode::kFusedIds, SAMEBITS_SHARED_FUSED_IDS), is(SharedMode::kInGate, SAMEBITS_SHARED_IN_GATE));
  check(
      [](RouterSpec & s) -> auto& { return s.special.zero_type; }, &S::zero_type,
      is(ZeroType::kNone, SAMEBITS_ZERO_EXPERTS_NONE), is(ZeroType::kIdentity, SAMEBITS_ZERO_EXPERTS_IDENTITY),
      is(ZeroType::kIdentityRemappedToId0Weight0, SAMEBITS_ZERO_EXPERTS_IDENTITY_REMAPPED_TO_ID0_WEIGHT0));
}

TEST(AbiAdapter, RealNumbersAreRoundedToFp32Once) {
  RouterSpec spec;
  spec.weights.eps = 1e-20;
  spec.weights.routed_scaling_factor = 2.826;
  EXPECT_EQ(to_abi(spec).eps, 1e-20f);
  EXPECT_EQ(to_abi(spec).routed_scaling_factor, 2.826f);
}

TEST(AbiAdapter, ASizeBeyondInt32IsRefusedWithItsName) {
  RouterSpec spec;
  spec.shape.hidden_size = std::int64_t{1} << 31;
  try {
    to_abi(spec);
    FAIL() << "no error";
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(std::string(error.what()),
              "shape.hidden_size: 2147483648 does not fit the C ABI; allowed are 0 to 2147483647");
  }
}

TEST(AbiAdapter, AnUnknownEnumeratorIsRefusedWithItsName) {
  samebits_router_spec abi = to_abi(RouterSpec());
  abi.score_func = 9;
  try {
    from_abi(abi);
    FAIL() << "no error";
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(std::string(error.what()), "score_func: 9 is no enumerator of the C ABI");
  }
  abi = to_abi(RouterSpec());
  abi.input_scale_rsqrt_hidden_size = 3;
  EXPECT_THROW(from_abi(abi), std::invalid_argument);
}

TEST(AbiAdapter, TheTableHasTheTypeThatTheSpecSays) {
  RouterSpec spec;
  spec.hash.table_dtype = TableType::kInt64;
  EXPECT_EQ(hash_table_dtype(spec), SAMEBITS_DTYPE_NONE) << "another layer has the table";
  spec.selection.method = SelectionMethod::kHashTable;
  EXPECT_EQ(hash_table_dtype(spec), SAMEBITS_INT64);
  spec.hash.table_dtype = TableType::kInt32;
  EXPECT_EQ(hash_table_dtype(spec), SAMEBITS_INT32);
}

samebits_info good_info() {
  samebits_info info{};
  info.struct_size = sizeof(info);
  info.abi_version = SAMEBITS_ABI_VERSION;
  std::strcpy(info.name, "n");
  std::strcpy(info.version, "v");
  std::strcpy(info.arithmetic, "tc256");
  info.memory_kinds = SAMEBITS_MEMORY_HOST;
  return info;
}

TEST(AbiAdapter, ClaimsSayWhatTheInfoSays) {
  using namespace properties;
  samebits_info info = good_info();
  EXPECT_EQ(problem_of(info), "");
  EXPECT_EQ(to_claims(info).arithmetic, Arithmetic::kTc256);
  EXPECT_EQ(to_claims(info).determinism, Determinism::kNone);
  EXPECT_EQ(to_claims(info).tie_rule, TieRule::kAny);
  EXPECT_EQ(to_claims(info).output_order, OutputOrder::kAny);
  EXPECT_FALSE(to_claims(info).returns_logits);
  EXPECT_FALSE(to_claims(info).returns_bookkeeping);
  std::strcpy(info.arithmetic, "fp32-any-order");
  info.determinism = SAMEBITS_RUN_TO_RUN;
  info.tie_break = SAMEBITS_TIES_LOWEST_INDEX;
  info.output_order = SAMEBITS_ORDER_KEY_DESC_THEN_INDEX;
  info.returns_logits = 1;
  info.max_tokens = 9;
  EXPECT_EQ(to_claims(info).name, "n");
  EXPECT_EQ(to_claims(info).version, "v");
  EXPECT_EQ(to_claims(info).arithmetic, Arithmetic::kFp32AnyOrder);
  EXPECT_EQ(to_claims(info).determinism, Determinism::kRunToRun);
  EXPECT_EQ(to_claims(info).tie_rule, TieRule::kLowestIndex);
  EXPECT_EQ(to_claims(info).output_order, OutputOrder::kKeyDescThenIndex);
  EXPECT_TRUE(to_claims(info).returns_logits);
  EXPECT_EQ(to_claims(info).max_tokens, 9);
  std::strcpy(info.arithmetic, "fp32-depth:40");
  EXPECT_EQ(to_claims(info).arithmetic, Arithmetic(Arithmetic::kFp32Depth, 40));
  std::strcpy(info.arithmetic, "bf16-logits");
  info.determinism = SAMEBITS_BATCH_INVARIANT;
  info.returns_bookkeeping = 1;
  EXPECT_EQ(to_claims(info).arithmetic, Arithmetic::kBf16Logits);
  EXPECT_EQ(to_claims(info).determinism, Determinism::kBatchInvariant);
  EXPECT_TRUE(to_claims(info).returns_bookkeeping);
}

TEST(AbiTable, ADescriptionThatMakesNoSenseIsNamed) {
  const auto problem = [](auto change) {
    samebits_info info = good_info();
    change(info);
    return problem_of(info);
  };
  EXPECT_EQ(problem([](samebits_info& i) { i.abi_version = 3; }), "abi_version is 3; expected is 1");
  EXPECT_EQ(problem([](samebits_info& i) { i.name[0] = '\0'; }), "name is empty");
  EXPECT_EQ(problem([](samebits_info& i) { std::memset(i.version, 'v', sizeof(i.version)); }),
            "version has no terminating zero in its 32 bytes");
  EXPECT_EQ(problem([](samebits_info& i) { i.memory_kinds = 5; }),
            "memory_kinds is 0x5; allowed are 1 (host), 2 (device) and 3 (both)");
  EXPECT_EQ(problem([](samebits_info& i) { std::memset(i.arithmetic, 'a', sizeof(i.arithmetic)); }),
            "arithmetic has no terminating zero in its 32 bytes");
  EXPECT_EQ(
      problem([](samebits_info& i) { std::strcpy(i.arithmetic, "fp32-depth:0"); }),
      "arithmetic is \"fp32-depth:0\"; allowed are tc256, fp32-any-order, bf16-logits, fp32-depth:D with D from 1 "
      "to 1048576");
  EXPECT_EQ(problem([](samebits_info& i) { i.determinism = 3; }), "determinism is 3; allowed are 0 to 2");
  EXPECT_EQ(problem([](samebits_info& i) { i.tie_break = -1; }), "tie_break is -1; allowed are 0 to 1");
  EXPECT_EQ(problem([](samebits_info& i) { i.output_order = 2; }), "output_order is 2; allowed are 0 to 1");
  EXPECT_EQ(problem([](samebits_info& i) { i.returns_logits = 2; }), "returns_logits is 2; allowed are 0 to 1");
  EXPECT_EQ(problem([](samebits_info& i) { i.returns_bookkeeping = 2; }),
            "returns_bookkeeping is 2; allowed are 0 to 1");
  EXPECT_EQ(problem([](samebits_info& i) { std::memset(i.name, 'n', sizeof(i.name)); }),
            "name has no terminating zero in its 64 bytes");
  for (const auto limit : {&samebits_info::max_experts, &samebits_info::max_top_k, &samebits_info::max_hidden_size}) {
    EXPECT_THAT(problem([=](samebits_info& i) { i.*limit = -7; }), testing::HasSubstr(" -7"));
  }
  EXPECT_THAT(problem([](samebits_info& i) { i.max_tokens = INT64_MIN; }),
              testing::HasSubstr("a limit is negative (max_experts 0, "));
}

}  // namespace
}  // namespace samebits::harness
