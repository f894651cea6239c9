#include "oracle/reference/score.h"

#include <gmock/gmock.h>

#include <bit>

namespace samebits::oracle {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr float kInf = INFINITY;
const float kNaN = std::bit_cast<float>(0xffc12345u);

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float v : values) bits.push_back(std::bit_cast<std::uint32_t>(v));
  return bits;
}

TEST(Softmax, NanHasNoPartInMaximumOrSum) {
  const std::vector<float> with_nan = {kNaN, 2.0f, 1.0f, 0.0f};
  const std::vector<float> scores = softmax<float>(with_nan);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(scores[0]), 0x7fffffffu);
  // Lane 0 of the sum holds +0, so the sum has the same terms as that of the three others.
  const float sum = fadd_rn(fadd_rn(1.0f, tc256::exp(-2.0f)), tc256::exp(-1.0f));
  EXPECT_EQ(scores[1], fdiv_rn(1.0f, sum));
  EXPECT_EQ(scores[2], fdiv_rn(tc256::exp(-1.0f), sum));
}

TEST(Softmax, PlusInfTakesEverything) {
  const std::vector<float> logits = {0.0f, kInf, -kInf, kInf, kNaN};
  EXPECT_EQ(bits_of(softmax<float>(logits)), (std::vector<std::uint32_t>{0, 0x3f000000u, 0, 0x3f000000u, 0x7fffffffu}));
}

TEST(Softmax, RowsWithoutAnythingAboveMinusInf) {
  EXPECT_THAT(softmax<float>(std::vector<float>(5, -kInf)), Each(0.0f));
  EXPECT_EQ(bits_of(softmax<float>(std::vector<float>{-kInf, kNaN})), (std::vector<std::uint32_t>{0, 0x7fffffffu}));
  EXPECT_EQ(bits_of(softmax<float>(std::vector<float>(3, kNaN))), std::vector<std::uint32_t>(3, 0x7fffffffu));
}

TEST(Softmax, UsesTheContractsFunctionsInItsOrder) {
  std::vector<float> logits, terms;
  for (int i = 0; i < 100; ++i) logits.push_back(static_cast<float>((i * 37) % 100) * 0.13f - 4.0f);
  const float max = *std::max_element(logits.begin(), logits.end());
  for (const float x : logits) terms.push_back(tc256::exp(x - max));
  const float sum = tc256::sum32(terms);
  const std::vector<float> scores = softmax<float>(logits);
  for (std::size_t i = 0; i < logits.size(); ++i) ASSERT_EQ(scores[i], terms[i] / sum);
}

TEST(Softmax, WideRangesDoNotOverflow) {
  EXPECT_THAT(softmax<float>(std::vector<float>{3e38f, -3e38f}), ElementsAre(1.0f, 0.0f));
}

TEST(Score, EachFunctionAndItsRounding) {
  RouterSpec::Score spec;
  const std::vector<float> logits = {-1.25f, 0.0f, 6.03125f};
  spec.func = ScoreFunc::kSigmoid;
  EXPECT_THAT(score<float>(spec, logits), ElementsAre(tc256::sigmoid(-1.25f), 0.5f, tc256::sigmoid(6.03125f)));
  spec.dtype = FloatType::kBf16;  // the score is rounded, not the logit
  EXPECT_EQ(score<float>(spec, logits)[2], round_to_bf16(tc256::sigmoid(6.03125f)));
  EXPECT_EQ(score<float>(spec, logits)[2], 0.99609375f);
  spec = {};
  spec.func = ScoreFunc::kSqrtSoftplus;
  EXPECT_EQ(score<float>(spec, logits)[0], tc256::sqrt_softplus(-1.25f));
  spec.func = ScoreFunc::kIdentity;
  EXPECT_THAT(score<float>(spec, logits), ElementsAre(-1.25f, 0.0f, 6.03125f));
  EXPECT_EQ(bits_of(score<float>(spec, std::vector<float>{kNaN})), std::vector<std::uint32_t>{0x7fffffffu});
}

TEST(Fp64, RoundsToBf16Once) {
  const auto round = ArithmeticOf<double>::round_to_bf16;
  EXPECT_EQ(round(1.00390625), 1.0);                  // tie to even
  EXPECT_EQ(round(1.00390625 + 0x1p-50), 1.0078125);  // fp32 first would make it a tie
  EXPECT_EQ(round(0x1p-134), 0.0);                    // half of the least subnormal, to even
  EXPECT_EQ(round(-0x1.8p-133), -0x1p-132);
  EXPECT_EQ(round(0x1.ffp127), static_cast<double>(kInf));
  EXPECT_EQ(round(0x1.fefp127), 0x1.fep127);
  for (std::uint32_t bits = 0; bits < 0x7f800000u; bits += 99991) {
    const float x = std::bit_cast<float>(bits);
    ASSERT_EQ(round(x), static_cast<double>(round_to_bf16(x)));
  }
}

}  // namespace
}  // namespace samebits::oracle
