// Guard bands and contents of a buffer, in memory that the process can read itself and in memory that it has to copy.
#include "harness/backend/guarded_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>

namespace samebits::harness {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// As device memory: nothing but copies.
class CopiedMemory final : public Memory {
 public:
  int kind() const override { return host_->kind(); }
  void* allocate(std::size_t bytes) override { return host_->allocate(bytes); }
  void release(void* address) noexcept override { host_->release(address); }
  void copy_in(void* to, const void* from_host, std::size_t bytes) override { host_->copy_in(to, from_host, bytes); }
  void copy_out(std::span<const CopyOut> copies) override { host_->copy_out(copies); }
  void synchronize() override {}

 private:
  std::unique_ptr<Memory> host_ = host_memory();
};

// Longer than the 4096 bytes that are compared at a time, and no multiple of a pattern.
constexpr std::size_t kBytes = 10003;
constexpr std::uint32_t kPattern = 0xa5b61234u;

class GuardedBuffers : public testing::TestWithParam<bool> {
 protected:
  GuardedBuffers() : memory_(GetParam() ? host_memory() : std::make_unique<CopiedMemory>()) {}
  // What a router does.
  static void flip(const GuardedBuffer& buffer, std::ptrdiff_t at) {
    static_cast<std::byte*>(buffer.data())[at] ^= std::byte{0x40};
  }
  std::unique_ptr<Memory> memory_;
};

void expect_two_changes(GuardedBuffer& buffer) {
  buffer.fetch();
  EXPECT_THAT(buffer.guard_damage(), IsEmpty());
  EXPECT_THAT(buffer.content_damage(), HasSubstr("2 bytes were changed, the first at offset 4101"));
  EXPECT_THAT(buffer.damage_within(4102, 9002), IsEmpty());
  EXPECT_THAT(buffer.damage_within(4102, 9003), HasSubstr("1 bytes were changed, the first at offset 9002"));
  EXPECT_THAT(buffer.damage_within(1, 4101), IsEmpty());
}

TEST_P(GuardedBuffers, APatternHasNoDamageUntilItIsChanged) {
  GuardedBuffer buffer(*memory_, "b", kBytes, kPattern);
  buffer.fetch();
  EXPECT_EQ(buffer.values<std::uint32_t>()[kBytes / 4 - 1], kPattern);
  for (std::size_t begin = 0; begin < 6; ++begin) EXPECT_THAT(buffer.damage_within(begin, kBytes), IsEmpty());
  flip(buffer, 4101);
  flip(buffer, 9002);
  expect_two_changes(buffer);
  buffer.fill(~kPattern);
  buffer.fetch();
  EXPECT_EQ(buffer.values<std::uint32_t>()[0], ~kPattern);
  EXPECT_THAT(buffer.content_damage(), IsEmpty());
}

TEST_P(GuardedBuffers, AContentHasNoDamageUntilItIsChanged) {
  std::vector<std::uint8_t> content(kBytes);
  std::iota(content.begin(), content.end(), std::uint8_t{7});
  GuardedBuffer buffer(*memory_, "b", std::as_bytes(std::span<const std::uint8_t>(content)));
  buffer.fetch();
  EXPECT_EQ(buffer.values<std::uint8_t>(), content);
  EXPECT_THAT(buffer.content_damage(), IsEmpty());
  flip(buffer, 4101);
  flip(buffer, 9002);
  expect_two_changes(buffer);
  buffer.disguise(std::byte{0xff});
  buffer.fetch();
  EXPECT_EQ(buffer.values<std::uint8_t>(), std::vector<std::uint8_t>(kBytes, 0xff));
  buffer.restore();
  buffer.fetch();
  EXPECT_EQ(buffer.values<std::uint8_t>(), content);
}

TEST_P(GuardedBuffers, ABandStaysDamagedWhateverIsWrittenBetween) {
  for (const std::ptrdiff_t at : {std::ptrdiff_t{-3}, static_cast<std::ptrdiff_t>(kBytes) + 5}) {
    GuardedBuffer buffer(*memory_, "b", kBytes, kPattern);
    flip(buffer, at);
    buffer.restore();
    buffer.fill(0);
    buffer.fetch();
    EXPECT_THAT(buffer.guard_damage(), HasSubstr(at < 0 ? "1 of 4096 guard bytes before it" : "guard bytes after it"));
    EXPECT_THAT(buffer.guard_damage(), HasSubstr(at < 0 ? "first 3 bytes before" : "first 5 bytes after"));
    EXPECT_THAT(buffer.content_damage(), IsEmpty());
  }
}

TEST_P(GuardedBuffers, NoBytesHaveBandsToo) {
  GuardedBuffer buffer(*memory_, "b", std::span<const std::byte>());
  buffer.fetch();
  EXPECT_THAT(buffer.guard_damage() + buffer.content_damage(), IsEmpty());
  flip(buffer, 0);
  buffer.fetch();
  EXPECT_THAT(buffer.guard_damage(), HasSubstr("after it"));
}

INSTANTIATE_TEST_SUITE_P(Memory, GuardedBuffers, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& memory) { return memory.param ? "Read" : "Copied"; });

}  // namespace
}  // namespace samebits::harness
