#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "oracle/emulate/fast_chain.h"
#include "oracle/emulate/fp32.h"
#include "oracle/emulate/gate_weight.h"
#include "oracle/tensors/bf16.h"
#include "oracle/test/emulate_inputs.h"

namespace samebits::oracle {
namespace {

using test::all_rows;
using test::Bits16;
using test::bits_of;
using test::Category;
using test::random_inputs;
using test::use_fp32_weights;

// One logit as the contract reads, without the vector form.
float logit_by_definition(const RouterInputs& inputs, std::int64_t row, std::int64_t expert) {
  const std::size_t hidden = static_cast<std::size_t>(inputs.hidden_size);
  const std::size_t first = static_cast<std::size_t>(expert) * hidden;
  const bool fp32 = !inputs.gate_weight_fp32.empty();
  float sum = 0;
  for (std::size_t k = 0; k < hidden; k += kChunk) {
    const std::size_t length = std::min<std::size_t>(kChunk, hidden - k);
    const std::span<const std::uint16_t> x(&inputs.hidden_states[static_cast<std::size_t>(row) * hidden + k], length);
    float partial = 0;
    for (std::size_t part = 0; part < (fp32 ? 3u : 1u); ++part) {
      Bits16 w;
      for (std::size_t i = first + k; i < first + k + length; ++i) {
        w.push_back(fp32 ? split_fp32(inputs.gate_weight_fp32[i])[part] : inputs.gate_weight_bf16[i]);
      }
      const float c = std::bit_cast<float>(chain(sm90(), 0, x, w));
      partial = part == 0 ? c : fadd_rn(partial, c);
    }
    sum = k == 0 ? partial : fadd_rn(sum, partial);
  }
  return sum;
}

struct Shape {
  Category category;
  std::int64_t hidden, experts;
};

TEST(Tc256Logits, EqualTheDefinitionOnEveryInstructionSet) {
  for (const bool fp32 : {false, true}) {
    for (const Shape& s : {Shape{Category::kNormal, 1, 1},
                           {Category::kNormal, 256, 33},
                           {Category::kNormal, 273, 31},
                           {Category::kWideExponents, 600, 40},
                           {Category::kNonFinite, 520, 34},
                           {Category::kFullRange, 257, 32},
                           {Category::kSubnormal, 100, 7},
                           {Category::kOverflowEdge, 290, 65}}) {
      RouterInputs inputs = random_inputs(s.category, 3, s.hidden, s.experts);
      if (fp32) use_fp32_weights(inputs);
      std::vector<float> expected;
      for (std::int64_t t = 0; t < inputs.num_tokens; ++t) {
        for (std::int64_t e = 0; e < s.experts; ++e) expected.push_back(logit_by_definition(inputs, t, e));
      }
      for (const fast_chain::Isa& isa : fast_chain::available_isas()) {
        fast_chain::select_for_test(isa.name);
        EXPECT_EQ(bits_of(tc256_logits(RouterSpec{}, inputs, all_rows(inputs))), bits_of(expected))
            << isa.name << " H " << s.hidden << " E " << s.experts;
      }
      fast_chain::select_for_test(nullptr);
    }
  }
}

TEST(Tc256Logits, RowsDoNotDependOnTheirNeighboursOrOnThreads) {
  const RouterInputs inputs = random_inputs(Category::kNormal, 37, 1024, 96);
  const PackedGateWeight packed(inputs);
  const std::vector<float> together = tc256_logits(RouterSpec{}, inputs, packed, all_rows(inputs));
  for (const std::int64_t row : {0, 5, 16, 36}) {
    const std::vector<std::int64_t> one = {row};
    const auto first = together.begin() + row * 96;
    EXPECT_EQ(bits_of(tc256_logits(RouterSpec{}, inputs, packed, one)), bits_of({first, first + 96}));
  }
}

TEST(Tc256Logits, ChunksAreFoldedInOrderWithFp32Additions) {
  // 2^24 in the first chunk, 1 in each of the next two: every addition to 2^24 is a tie to even and changes nothing,
  // while one chain, or adding the ones first, would give 2^24 + 2.
  RouterInputs inputs;
  inputs.num_tokens = 1;
  inputs.hidden_size = 768;
  inputs.gate_rows = 1;
  inputs.hidden_states.assign(768, 0);
  inputs.gate_weight_bf16.assign(768, 0x3f80);
  inputs.hidden_states[0] = 0x4b80;  // 2^24
  inputs.hidden_states[256] = inputs.hidden_states[512] = 0x3f80;
  EXPECT_EQ(tc256_logits(RouterSpec{}, inputs, all_rows(inputs))[0], 0x1p24f);
  inputs.hidden_states[512] = 0;
  inputs.hidden_states[257] = 0x3f80;  // both ones in one chunk: 2 is kept
  EXPECT_EQ(tc256_logits(RouterSpec{}, inputs, all_rows(inputs))[0], 0x1p24f + 2);
}

TEST(Tc256Logits, InfUnderFp32WeightsIsNanAndUnderBf16WeightsIsInf) {
  RouterInputs inputs;
  inputs.num_tokens = 1;
  inputs.hidden_size = 2;
  inputs.gate_rows = 1;
  inputs.hidden_states = {0x7f80, 0x3f80};
  inputs.gate_weight_bf16 = {0x3f80, 0x3f80};
  EXPECT_EQ(std::bit_cast<std::uint32_t>(tc256_logits(RouterSpec{}, inputs, all_rows(inputs))[0]), 0x7f800000u);
  inputs.gate_weight_bf16.clear();
  inputs.gate_weight_fp32 = {1.0f, 1.0f};
  EXPECT_EQ(std::bit_cast<std::uint32_t>(tc256_logits(RouterSpec{}, inputs, all_rows(inputs))[0]), 0x7fffffffu);
}

TEST(Tc256Logits, BiasThenRoundingThenTemperatureThenSoftcap) {
  RouterInputs inputs;
  inputs.num_tokens = 1;
  inputs.hidden_size = 1;
  inputs.gate_rows = 1;
  inputs.hidden_states = {0x3f80};
  inputs.gate_weight_bf16 = {0x3f80};
  inputs.linear_bias = {0x1.01p-7f};  // bf16: 2^-7
  RouterSpec spec;
  spec.gate.linear_bias = BiasType::kFp32;
  const auto logit = [&] { return tc256_logits(spec, inputs, all_rows(inputs))[0]; };
  EXPECT_EQ(logit(), 1.0f + 0x1.01p-7f);
  spec.gate.linear_bias = BiasType::kBf16;
  EXPECT_EQ(logit(), 1.0f + 0x1p-7f);
  inputs.linear_bias = {0x1.8p-7f};  // 1 + 1.5 * 2^-7 is a tie of bf16; even is 1 + 2 * 2^-7
  spec.gate.logits_dtype = FloatType::kBf16;
  EXPECT_EQ(logit(), 1.0f + 0x1p-6f);
  spec.logits.temperature = 3.0;
  EXPECT_EQ(logit(), (1.0f + 0x1p-6f) / 3.0f);
  spec.logits.softcap = 30.0;
  EXPECT_EQ(logit(), 30.0f * tc256::tanh((1.0f + 0x1p-6f) / 3.0f / 30.0f));
}

TEST(Tc256Logits, GivenLogitsAreFinishedButNanBecomesTheOneNan) {
  RouterInputs inputs;
  inputs.num_tokens = 2;
  inputs.gate_rows = 2;
  inputs.router_logits = {1, 2, std::bit_cast<float>(0xffc00001u), -0.0f};
  RouterSpec spec;
  spec.gate.logits_dtype = FloatType::kBf16;
  spec.logits.temperature = 3.0;
  const std::vector<std::int64_t> second = {1};
  EXPECT_EQ(bits_of(tc256_logits(spec, inputs, second)), (std::vector<std::uint32_t>{0x7fffffffu, 0x80000000u}));
  EXPECT_EQ(tc256_logits(spec, inputs, all_rows(inputs))[1], 2.0f);
}

TEST(SplitFp32, ThreePartsAreExactAndTinyBitsAreDropped) {
  std::mt19937 random(4);
  for (int i = 0; i < 20000; ++i) {
    const float w = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    const auto parts = split_fp32(w);
    if (!std::isfinite(w)) continue;
    const double sum = static_cast<double>(bf16_to_fp32(parts[0])) + static_cast<double>(bf16_to_fp32(parts[1])) +
                       static_cast<double>(bf16_to_fp32(parts[2]));
    if (std::fabs(w) >= 0x1p-110f) {
      ASSERT_EQ(sum, static_cast<double>(w));
    } else {
      ASSERT_LT(std::fabs(sum - static_cast<double>(w)), 0x1p-133);
    }
  }
  EXPECT_EQ(split_fp32(std::bit_cast<float>(0x7f800001u)), (std::array<std::uint16_t, 3>{0x7fff, 0, 0}));
  EXPECT_EQ(split_fp32(-INFINITY), (std::array<std::uint16_t, 3>{0xff80, 0, 0}));
}

TEST(PackedGateWeight, RefusesAWeightOfAnotherSize) {
  RouterInputs inputs = random_inputs(Category::kNormal, 1, 16, 2);
  inputs.gate_weight_bf16.pop_back();
  EXPECT_THROW(PackedGateWeight{inputs}, std::invalid_argument);
}

}  // namespace
}  // namespace samebits::oracle
