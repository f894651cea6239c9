// A buffer between two guard bands, in the memory of the router under test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "harness/backend/memory.h"

namespace samebits::harness {

class GuardedBuffer {
 public:
  // On either side: more than a few rows of ids, so that a stray row lands in it. The content stays aligned to 64
  // bytes.
  static constexpr std::size_t kGuardBytes = 4096;

  GuardedBuffer(Memory& memory, std::string name, std::size_t bytes);
  ~GuardedBuffer();
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  void* data() const { return base_ + kGuardBytes; }  // valid address also for 0 bytes
  std::size_t size() const { return bytes_; }

  void fill(std::uint32_t pattern);                // repeated in memory order, cut at the end
  void write(std::span<const std::byte> content);  // exactly size() bytes

  // Other content in the memory for a while, without being what was last written; restore() puts that back.
  void disguise(std::byte value);
  void restore();

  // The whole buffer as it is now; the functions below read this copy.
  void fetch();
  template <class T>
  std::vector<T> values() const {
    std::vector<T> result(bytes_ / sizeof(T));
    if (!result.empty()) std::memcpy(result.data(), fetched_.data() + kGuardBytes, result.size() * sizeof(T));
    return result;
  }
  // Which bytes outside the content changed; empty: none.
  std::string guard_damage() const;
  // Which bytes differ from what was last written; empty: none.
  std::string content_damage() const;
  // The same of the bytes [begin, end) of the content.
  std::string damage_within(std::size_t begin, std::size_t end) const;

 private:
  Memory& memory_;
  std::string name_;
  std::size_t bytes_;
  std::byte* base_;
  std::vector<std::byte> written_;  // guards and content as they were put
  std::vector<std::byte> fetched_;
};

}  // namespace samebits::harness
