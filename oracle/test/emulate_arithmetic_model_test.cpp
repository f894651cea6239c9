#include "oracle/emulate/arithmetic_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "oracle/emulate/gate_weight.h"
#include "oracle/tensors/bf16.h"
#include "oracle/test/emulate_categories.h"
#include "oracle/test/emulate_inputs.h"

namespace samebits::oracle {
namespace {

using test::all_rows;
using test::bits_of;
using test::Category;
using test::random_inputs;
using testing::ElementsAre;
using testing::HasSubstr;

std::string problem(std::string_view text) {
  try {
    arithmetic_model(text);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return {};
}

std::vector<float> logits(std::string_view model, const RouterInputs& inputs, const RouterSpec& spec = {}) {
  return emulate_logits(arithmetic_model(model), spec, inputs, all_rows(inputs));
}

// One row and one expert; every weight is 1.
RouterInputs ones(std::vector<std::uint16_t> row) {
  RouterInputs inputs;
  inputs.num_tokens = 1;
  inputs.hidden_size = static_cast<std::int64_t>(row.size());
  inputs.gate_rows = 1;
  inputs.gate_weight_bf16.assign(row.size(), 0x3f80);
  inputs.hidden_states = std::move(row);
  return inputs;
}

TEST(ArithmeticModel, NamesAreRead) {
  const ArithmeticModel contract = arithmetic_model("tc256");
  EXPECT_EQ(contract.architecture, &sm90());
  EXPECT_EQ(product_ranges(contract, 600), (std::vector<ProductRange>{{0, 256, 1}, {256, 512, 1}, {512, 600, 1}}));
  const ArithmeticModel ada = arithmetic_model("tc-chunks-tree:32@sm_89+bf16-logits+bf16-bias+bf16-scores");
  EXPECT_STREQ(ada.architecture->architecture, "sm_89");
  EXPECT_EQ(ada.combine, ArithmeticModel::Combine::kTree);
  EXPECT_THAT(ada.sizes, ElementsAre(32));
  EXPECT_TRUE(ada.bf16_logits && ada.bf16_bias && ada.bf16_scores);
  const ArithmeticModel rounding = arithmetic_model("bf16-scores");
  EXPECT_EQ(product_ranges(rounding, 600), product_ranges(contract, 600));
  EXPECT_TRUE(rounding.bf16_scores);
  EXPECT_FALSE(rounding.bf16_logits || rounding.bf16_bias);
}

TEST(ArithmeticModel, MessagesNameWhatIsAllowed) {
  EXPECT_THAT(problem("tc265"), HasSubstr("found \"tc265\"; allowed: tc256, tc-chain[@ARCHITECTURE], tc-chunks:C"));
  EXPECT_THAT(problem(""), HasSubstr("found \"\"; allowed: tc256"));
  EXPECT_THAT(problem("tc256+"), HasSubstr("found \"\""));
  EXPECT_THAT(problem("tc256:128"), HasSubstr("allowed: tc256"));
  EXPECT_THAT(problem("tc256@sm_80"), HasSubstr("allowed: tc256"));
  EXPECT_THAT(problem("tc-chain@sm_75"), HasSubstr("allowed: sm_70, sm_80, sm_86, sm_89, sm_90, sm_100, sm_120"));
  EXPECT_THAT(problem("tc-chunks"), HasSubstr("allowed: tc-chunks:C[@ARCHITECTURE]"));
  EXPECT_THAT(problem("tc-chunks:24"), HasSubstr("found chunks of 24; allowed: multiples of 16"));
  EXPECT_THAT(problem("tc-chunks:256,256"), HasSubstr("found 2 numbers"));
  EXPECT_THAT(problem("split-k:22,,20"), HasSubstr("found the number \"\""));
  EXPECT_THAT(problem("split-k:22,x"), HasSubstr("found the number \"x\""));
  EXPECT_THAT(problem("fp32-fma-chains:0"), HasSubstr("found the number \"0\""));
  EXPECT_THAT(problem("fp32-fma-chains:99999999999999999999"), HasSubstr("allowed: 1 to 1000000"));
  EXPECT_THAT(problem("tc256+exact"), HasSubstr("found a second sum \"exact\""));
  for (const std::string& form : arithmetic_model_forms()) EXPECT_THAT(problem("?"), HasSubstr(form));
}

TEST(ArithmeticModel, RangesCoverEachProductOnce) {
  for (const char* text : {"tc256", "tc-chain", "tc-chunks:16", "cublas-split-k:3", "cublas-split-k:7",
                           "fp32-fma-chains:8", "fp32-fma-slices:256", "exact"}) {
    for (const std::int64_t hidden : {1, 5, 64, 1000, 4096}) {
      std::vector<int> seen(static_cast<std::size_t>(hidden));
      for (const ProductRange& range : product_ranges(arithmetic_model(text), hidden)) {
        EXPECT_LT(range.first, range.last);
        for (std::int64_t k = range.first; k < range.last; k += range.stride) ++seen[static_cast<std::size_t>(k)];
      }
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1)) << text << " H " << hidden;
    }
  }
  EXPECT_EQ(product_ranges(arithmetic_model("fp32-fma-chains:3"), 7),
            (std::vector<ProductRange>{{0, 7, 3}, {1, 7, 3}, {2, 7, 3}}));
  EXPECT_EQ(product_ranges(arithmetic_model("fp32-fma-slices:3"), 7),
            (std::vector<ProductRange>{{0, 3, 1}, {3, 6, 1}, {6, 7, 1}}));
}

TEST(ArithmeticModel, SplitsAreThoseOfCublasAndMustCoverTheHiddenSize) {
  const auto split = [](const char* text) { return product_ranges(arithmetic_model(text), 4096); };
  EXPECT_EQ(split("cublas-split-k:3"), split("split-k:22,22,20"));
  EXPECT_EQ(split("cublas-split-k:3"), (std::vector<ProductRange>{{0, 1408, 1}, {1408, 2816, 1}, {2816, 4096, 1}}));
  EXPECT_EQ(split("cublas-split-k:2"), split("split-k:32,32"));
  EXPECT_EQ(split("cublas-split-k:1"), split("tc-chain"));
  EXPECT_EQ(split("tc256"), split("split-k:4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4"));
  const RouterInputs inputs = random_inputs(Category::kNormal, 1, 4096, 1);
  for (const char* text : {"split-k:22,22", "split-k:22,22,21"}) {
    try {
      logits(text, inputs);
      ADD_FAILURE() << text;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr("allowed: parts that sum to 64, for hidden size 4096"));
    }
  }
}

TEST(EmulateLogits, ContractEqualsItsFastPath) {
  for (const Category category :
       {Category::kNormal, Category::kFullRange, Category::kNonFinite, Category::kSubnormal, Category::kOverflowEdge}) {
    for (const bool fp32 : {false, true}) {
      RouterInputs inputs = random_inputs(category, 3, 600, 70);
      if (fp32) test::use_fp32_weights(inputs);
      inputs.linear_bias.assign(70, 0.3f);
      RouterSpec spec;
      spec.gate.linear_bias = BiasType::kFp32;
      spec.gate.logits_dtype = FloatType::kBf16;
      spec.logits.temperature = 3.0;
      spec.logits.softcap = 30.0;
      spec.gate.input_scale = 0.3;
      EXPECT_EQ(bits_of(logits("tc256", inputs)), bits_of(tc256_logits({}, inputs, all_rows(inputs))));
      EXPECT_EQ(bits_of(logits("tc256", inputs, spec)), bits_of(tc256_logits(spec, inputs, all_rows(inputs))));
    }
  }
}

TEST(EmulateLogits, ChainsAreThoseOfTheirArchitecture) {
  const RouterInputs inputs = random_inputs(Category::kNormal, 2, 200, 35);
  for (const StepParameters& p : step_parameter_table()) {
    std::vector<float> expected;
    for (std::size_t t = 0; t < 2; ++t) {
      for (std::size_t e = 0; e < 35; ++e) {
        const std::span<const std::uint16_t> x(&inputs.hidden_states[t * 200], 200);
        const std::span<const std::uint16_t> w(&inputs.gate_weight_bf16[e * 200], 200);
        expected.push_back(std::bit_cast<float>(chain(p, 0, x, w)));
      }
    }
    EXPECT_EQ(bits_of(logits(std::string("tc-chain@") + p.architecture, inputs)), bits_of(expected)) << p.architecture;
  }
  EXPECT_NE(bits_of(logits("tc-chain@sm_80", inputs)), bits_of(logits("tc-chain@sm_90", inputs)));
  EXPECT_EQ(bits_of(logits("tc-chunks:64@sm_120", inputs)), bits_of(logits("tc-chunks:64", inputs)));
}

// 2^24, then ones: an addition of 1 is a tie to even and is lost, an addition of 2 is kept.
TEST(EmulateLogits, PartialSumsAreCombinedAsTheNameSays) {
  constexpr std::uint16_t kLarge = 0x4b80, kOne = 0x3f80;
  RouterInputs inputs = ones(std::vector<std::uint16_t>(64, 0));
  auto& x = inputs.hidden_states;
  x[0] = kLarge;
  x[16] = x[32] = x[48] = kOne;
  EXPECT_EQ(logits("tc-chunks:16", inputs)[0], 0x1p24f);           // ((L + 1) + 1) + 1
  EXPECT_EQ(logits("tc-chunks-tree:16", inputs)[0], 0x1p24f + 2);  // (L + 1) + (1 + 1)
  EXPECT_EQ(logits("tc-chain", inputs)[0], 0x1p24f);               // each step is cut to 24 bits
  EXPECT_EQ(logits("fp32-fma-sequential", inputs)[0], 0x1p24f);
  EXPECT_EQ(logits("fp32-fma-slices:4", inputs)[0], 0x1p24f + 2);
  EXPECT_EQ(logits("fp32-fma-slices:2", inputs)[0], 0x1p24f + 2);  // (L + 1) + (1 + 1)
  EXPECT_EQ(logits("fp32-fma-chains:8", inputs)[0], 0x1p24f);      // all in chain 0
  EXPECT_EQ(logits("exact", inputs)[0], 0x1p24f + 4);              // 2^24 + 3 is a tie to even
  inputs = ones(std::vector<std::uint16_t>(48, 0));
  x[0] = kLarge;
  x[16] = x[17] = x[32] = x[33] = kOne;
  EXPECT_EQ(logits("tc-chunks-tree:16", inputs)[0], 0x1p24f + 4);  // (L + 2) + 2: the third part is not lost
  inputs = ones(std::vector<std::uint16_t>(64, 0));
  x[0] = kLarge;
  x[9] = x[10] = kOne;                                         // chains 1 and 2 of 8
  EXPECT_EQ(logits("fp32-fma-chains:8", inputs)[0], 0x1p24f);  // (L + 1) + (1 + 0)
  x[10] = 0;
  x[11] = x[3] = kOne;  // chain 3 holds 2
  EXPECT_EQ(logits("fp32-fma-chains:8", inputs)[0], 0x1p24f + 2);
}

TEST(EmulateLogits, FusedAndSeparateProductsDiffer) {
  RouterInputs inputs = ones({0x3f80, 0x3f80});
  inputs.gate_weight_bf16.clear();
  inputs.gate_weight_fp32 = {-0x1.01p+0f * 0x1.01p+0f, 0x1.000002p+0f};
  inputs.hidden_states = {0x3f80, 0x3f81};  // 1.0078125
  const float x = 0x1.02p+0f, w = 0x1.000002p+0f, first = -0x1.01p+0f * 0x1.01p+0f;
  volatile float product = x * w;
  EXPECT_EQ(logits("fp32-mul-add-sequential", inputs)[0], first + product);
  EXPECT_EQ(logits("fp32-fma-sequential", inputs)[0], std::fma(x, w, first));
  EXPECT_NE(first + product, std::fma(x, w, first));
  EXPECT_EQ(logits("fp32-mul-add-chains:2", inputs)[0], first + product);
}

TEST(EmulateLogits, RoundingsToBf16AreThoseOfTheSpec) {
  const RouterInputs inputs = random_inputs(Category::kNormal, 2, 100, 9);
  RouterSpec spec;
  spec.gate.logits_dtype = FloatType::kBf16;
  EXPECT_EQ(bits_of(logits("bf16-logits", inputs)), bits_of(tc256_logits(spec, inputs, all_rows(inputs))));
  EXPECT_NE(bits_of(logits("bf16-logits", inputs)), bits_of(logits("tc256", inputs)));
  std::vector<float> rounded = logits("exact", inputs);
  for (float& logit : rounded) logit = round_to_bf16(logit);
  EXPECT_EQ(bits_of(logits("exact+bf16-logits", inputs)), bits_of(rounded));

  RouterSpec biased;
  biased.selection.bias = BiasType::kFp32;
  const RouterSpec changed = with_roundings(arithmetic_model("bf16-bias+bf16-scores"), biased);
  EXPECT_EQ(changed.selection.bias, BiasType::kBf16);
  EXPECT_EQ(changed.score.dtype, FloatType::kBf16);
  EXPECT_EQ(changed.gate.logits_dtype, FloatType::kFp32);
  EXPECT_EQ(with_roundings(arithmetic_model("bf16-bias"), {}).selection.bias, BiasType::kNone);
}

TEST(EmulateLogits, GivenLogitsAndNansPassAsInTheContract) {
  RouterInputs given;
  given.num_tokens = 1;
  given.gate_rows = 2;
  given.router_logits = {1.0009765625f, std::bit_cast<float>(0xffc00001u)};
  EXPECT_EQ(bits_of(logits("bf16-logits", given)), bits_of({1.0009765625f, std::bit_cast<float>(0x7fffffffu)}));
  const RouterInputs nan = ones({0x7fc0, 0x3f80}), infinities = ones({0x7f80, 0xff80, 0x3f80}), inf = ones({0x7f80});
  for (const char* model : {"tc-chain@sm_80", "fp32-fma-sequential", "fp32-mul-add-chains:2", "exact"}) {
    EXPECT_EQ(bits_of(logits(model, nan)), (std::vector{0x7fffffffu})) << model;
    EXPECT_EQ(bits_of(logits(model, infinities)), (std::vector{0x7fffffffu})) << model;
    EXPECT_EQ(logits(model, inf)[0], INFINITY) << model;
  }
}

}  // namespace
}  // namespace samebits::oracle
