#include "harness/backend/guarded_buffer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace samebits::harness {
namespace {

// Both bands. A byte depends on its position, so that no constant that a router writes leaves a whole band unchanged.
// Made once: a small case has more guard bytes than others.
const std::array<std::byte, 2 * GuardedBuffer::kGuardBytes>& guard_bytes() {
  static const auto bytes = [] {
    std::array<std::byte, 2 * GuardedBuffer::kGuardBytes> made{};
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = static_cast<std::byte>(0xc3u ^ (i * 37u));
    return made;
  }();
  return bytes;
}

struct Difference {
  std::size_t count = 0;
  std::size_t first = 0;
};

Difference compare(std::span<const std::byte> expected, std::span<const std::byte> found) {
  Difference difference;
  if (expected.size() == found.size() &&
      (expected.empty() || std::memcmp(expected.data(), found.data(), expected.size()) == 0)) {
    return difference;
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == found[i]) continue;
    if (difference.count == 0) difference.first = i;
    ++difference.count;
  }
  return difference;
}

}  // namespace

GuardedBuffer::GuardedBuffer(Memory& memory, std::string name, std::size_t bytes)
    : memory_(memory), name_(std::move(name)), bytes_(bytes), written_(bytes + 2 * kGuardBytes) {
  std::memcpy(written_.data(), guard_bytes().data(), kGuardBytes);
  std::memcpy(written_.data() + kGuardBytes + bytes_, guard_bytes().data() + kGuardBytes, kGuardBytes);
  base_ = static_cast<std::byte*>(memory_.allocate(written_.size()));
  try {
    memory_.copy_in(base_, written_.data(), written_.size());
  } catch (...) {
    memory_.release(base_);
    throw;
  }
}

GuardedBuffer::~GuardedBuffer() {
  memory_.release(base_);
}

void GuardedBuffer::fill(std::uint32_t pattern) {
  std::byte bytes[sizeof(pattern)];
  std::memcpy(bytes, &pattern, sizeof(pattern));
  for (std::size_t i = 0; i < bytes_; ++i) written_[kGuardBytes + i] = bytes[i % sizeof(pattern)];
  if (bytes_ > 0) memory_.copy_in(data(), written_.data() + kGuardBytes, bytes_);
}

void GuardedBuffer::write(std::span<const std::byte> content) {
  if (content.size() != bytes_) {
    throw std::logic_error(fmt::format("{}: {} bytes for a buffer of {}", name_, content.size(), bytes_));
  }
  if (bytes_ == 0) return;
  std::memcpy(written_.data() + kGuardBytes, content.data(), bytes_);
  memory_.copy_in(data(), content.data(), bytes_);
}

void GuardedBuffer::disguise(std::byte value) {
  const std::vector<std::byte> content(bytes_, value);
  if (bytes_ > 0) memory_.copy_in(data(), content.data(), bytes_);
}

void GuardedBuffer::restore() {
  if (bytes_ > 0) memory_.copy_in(data(), written_.data() + kGuardBytes, bytes_);
}

void GuardedBuffer::fetch() {
  fetched_.resize(written_.size());
  memory_.copy_out(fetched_.data(), base_, fetched_.size());
}

std::string GuardedBuffer::guard_damage() const {
  const std::span<const std::byte> expected(written_), found(fetched_);
  const auto report = [this](const Difference& d, std::size_t distance, const char* where) {
    return fmt::format("{} ({} bytes): {} of {} guard bytes {} it were overwritten, the first {} bytes {}", name_,
                       bytes_, d.count, kGuardBytes, where, distance, where);
  };
  const Difference after = compare(expected.last(kGuardBytes), found.last(kGuardBytes));
  if (after.count > 0) return report(after, after.first, "after");
  const Difference before = compare(expected.first(kGuardBytes), found.first(kGuardBytes));
  if (before.count > 0) return report(before, kGuardBytes - before.first, "before");
  return {};
}

std::string GuardedBuffer::content_damage() const {
  return damage_within(0, bytes_);
}

std::string GuardedBuffer::damage_within(std::size_t begin, std::size_t end) const {
  const auto content = [&](const std::vector<std::byte>& all) {
    return std::span<const std::byte>(all).subspan(kGuardBytes + begin, end - begin);
  };
  const Difference d = compare(content(written_), content(fetched_));
  if (d.count == 0) return {};
  return fmt::format("{} ({} bytes): {} bytes were changed, the first at offset {}", name_, bytes_, d.count,
                     begin + d.first);
}

}  // namespace samebits::harness
