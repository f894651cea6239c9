#include "harness/io/float_text.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>

namespace samebits::harness {
namespace {

std::uint32_t bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

TEST(FloatText, Fp32ReadsBackToTheSameBits) {
  std::mt19937 random(1);
  std::vector<std::uint32_t> patterns = {0x00000000, 0x80000000, 0x00000001, 0x807fffff, 0x00800000,
                                         0x7f7fffff, 0x7f800000, 0xff800000, 0x7f800001, 0xffc00000,
                                         0x7fffffff, 0x3dcccccd, 0x41007ae1};
  for (int i = 0; i < 20000; ++i) patterns.push_back(static_cast<std::uint32_t>(random()));
  for (const std::uint32_t pattern : patterns) {
    const std::string text = fp32_text(std::bit_cast<float>(pattern));
    const auto value = parse_fp32(text);
    ASSERT_TRUE(value) << text;
    ASSERT_EQ(bits_of(*value), pattern) << text;
  }
}

TEST(FloatText, EveryBf16ReadsBackToTheSameBits) {
  for (std::uint32_t pattern = 0; pattern <= 0xffff; ++pattern) {
    const std::string text = bf16_text(static_cast<std::uint16_t>(pattern));
    const auto bits = parse_bf16(text);
    ASSERT_TRUE(bits) << text;
    ASSERT_EQ(*bits, pattern) << text;
  }
}

TEST(FloatText, SpecialValuesHaveReadableForms) {
  EXPECT_EQ(fp32_text(8.03f), "8.03");
  EXPECT_EQ(fp32_text(-0.0f), "-0.0");
  EXPECT_EQ(fp32_text(std::bit_cast<float>(0xff800000u)), "-.inf");
  EXPECT_EQ(fp32_text(std::bit_cast<float>(0x7fffffffu)), "0x7fffffff");
  EXPECT_EQ(bf16_text(0x7fff), "0x7fff");
  EXPECT_EQ(bits_of(*parse_fp32(".nan")), 0x7fc00000u);
}

TEST(FloatText, OtherTextIsNoNumber) {
  for (const char* text : {"", "x", "1x", "nan", "inf", "infinity", "1e400", "0x1", "0x7fffffff0", "0xzzzzzzzz", "1 ",
                           " 1", "--1", "1.5.", "true", "0x7fff"}) {
    EXPECT_FALSE(parse_fp32(text)) << text;
  }
  EXPECT_FALSE(parse_bf16("0.881")) << "not a bf16 value";
  EXPECT_FALSE(parse_bf16("0x7fffffff"));
  EXPECT_EQ(*parse_bf16("0.87890625"), 0x3f61);
}

}  // namespace
}  // namespace samebits::harness
