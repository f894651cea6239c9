#include "harness/backend/guarded_buffer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
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

// A pattern, repeated: made once for a buffer and copied from then on.
class Pattern {
 public:
  static constexpr std::size_t kLength = 4096;

  explicit Pattern(std::uint32_t pattern) {
    for (std::size_t i = 0; i < bytes_.size(); i += sizeof(pattern)) {
      std::memcpy(bytes_.data() + i, &pattern, sizeof(pattern));
    }
  }
  // What a buffer holds from this position on, kLength bytes.
  const std::byte* from(std::size_t position) const { return bytes_.data() + position % sizeof(std::uint32_t); }

 private:
  std::array<std::byte, kLength + sizeof(std::uint32_t)> bytes_;
};

}  // namespace

GuardedBuffer::GuardedBuffer(Memory& memory, std::string name, std::size_t bytes)
    : memory_(memory),
      name_(std::move(name)),
      bytes_(bytes),
      base_(static_cast<std::byte*>(memory_.allocate(bytes + 2 * kGuardBytes))) {}

GuardedBuffer::GuardedBuffer(Memory& memory, std::string name, std::size_t bytes, std::uint32_t pattern)
    : GuardedBuffer(memory, std::move(name), bytes) {
  pattern_ = pattern;
  put_all();
}

GuardedBuffer::GuardedBuffer(Memory& memory, std::string name, std::span<const std::byte> content)
    : GuardedBuffer(memory, std::move(name), content.size()) {
  given_.assign(content.begin(), content.end());
  put_all();
}

GuardedBuffer::~GuardedBuffer() {
  memory_.release(base_);
}

void GuardedBuffer::write_to(std::byte* content) const {
  if (!given_.empty()) {
    std::memcpy(content, given_.data(), bytes_);
    return;
  }
  const Pattern pattern(pattern_);
  for (std::size_t i = 0; i < bytes_; i += Pattern::kLength) {
    std::memcpy(content + i, pattern.from(i), std::min(Pattern::kLength, bytes_ - i));
  }
}

void GuardedBuffer::put_all() {
  const auto write_all = [this](std::byte* whole) {
    std::memcpy(whole, guard_bytes().data(), kGuardBytes);
    write_to(whole + kGuardBytes);
    std::memcpy(whole + kGuardBytes + bytes_, guard_bytes().data() + kGuardBytes, kGuardBytes);
  };
  if (std::byte* whole = memory_.view(base_)) return write_all(whole);
  std::vector<std::byte> image(bytes_ + 2 * kGuardBytes);
  write_all(image.data());
  memory_.copy_in(base_, image.data(), image.size());
}

void GuardedBuffer::fill(std::uint32_t pattern) {
  given_.clear();
  pattern_ = pattern;
  restore();
}

void GuardedBuffer::disguise(std::byte value) {
  const std::vector<std::byte> content(bytes_, value);
  if (bytes_ > 0) memory_.copy_in(data(), content.data(), bytes_);
}

void GuardedBuffer::restore() {
  if (std::byte* content = memory_.view(data())) return write_to(content);
  std::vector<std::byte> content(bytes_);
  write_to(content.data());
  if (bytes_ > 0) memory_.copy_in(data(), content.data(), bytes_);
}

void GuardedBuffer::fetch_all(Memory& memory, const std::vector<GuardedBuffer*>& buffers) {
  std::vector<Memory::CopyOut> copies;
  for (GuardedBuffer* buffer : buffers) {
    const std::size_t size = buffer->bytes_ + 2 * kGuardBytes;
    if (const std::byte* whole = memory.view(buffer->base_)) {
      buffer->found_ = {whole, size};
      continue;
    }
    buffer->fetched_.resize(size);
    buffer->found_ = buffer->fetched_;
    copies.push_back({buffer->fetched_.data(), buffer->base_, size});
  }
  memory.copy_out(copies);
}

std::string GuardedBuffer::guard_damage() const {
  const std::span<const std::byte> expected(guard_bytes());
  const auto report = [this](const Difference& d, std::size_t distance, const char* where) {
    return fmt::format("{} ({} bytes): {} of {} guard bytes {} it were overwritten, the first {} bytes {}", name_,
                       bytes_, d.count, kGuardBytes, where, distance, where);
  };
  const Difference after = compare(expected.last(kGuardBytes), found_.last(kGuardBytes));
  if (after.count > 0) return report(after, after.first, "after");
  const Difference before = compare(expected.first(kGuardBytes), found_.first(kGuardBytes));
  if (before.count > 0) return report(before, kGuardBytes - before.first, "before");
  return {};
}

std::string GuardedBuffer::content_damage() const {
  return damage_within(0, bytes_);
}

std::string GuardedBuffer::damage_within(std::size_t begin, std::size_t end) const {
  const std::span<const std::byte> found = content().subspan(begin, end - begin);
  Difference damage;
  if (!given_.empty()) {
    damage = compare(std::span<const std::byte>(given_).subspan(begin, found.size()), found);
  } else if (!found.empty()) {
    const Pattern pattern(pattern_);
    for (std::size_t i = 0; i < found.size(); i += Pattern::kLength) {
      const std::size_t length = std::min(Pattern::kLength, found.size() - i);
      const Difference d = compare({pattern.from(begin + i), length}, found.subspan(i, length));
      if (damage.count == 0) damage.first = i + d.first;
      damage.count += d.count;
    }
  }
  if (damage.count == 0) return {};
  return fmt::format("{} ({} bytes): {} bytes were changed, the first at offset {}", name_, bytes_, damage.count,
                     begin + damage.first);
}

}  // namespace samebits::harness
