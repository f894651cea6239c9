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

  // Filled with `pattern`, as fill does it.
  GuardedBuffer(Memory& memory, std::string name, std::size_t bytes, std::uint32_t pattern);
  GuardedBuffer(Memory& memory, std::string name, std::span<const std::byte> content);
  ~GuardedBuffer();
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  void* data() const { return base_ + kGuardBytes; }  // valid address also for 0 bytes
  std::size_t size() const { return bytes_; }

  void fill(std::uint32_t pattern);  // repeated in memory order, cut at the end

  // Other content in the memory for a while, without being what was last put there; restore() puts that back.
  void disguise(std::byte value);
  void restore();

  // Brings the whole buffer as it is now; the functions below read it. Memory that this process can read is not
  // copied: nobody may write to it between this and them.
  void fetch() { fetch_all(memory_, {this}); }
  static void fetch_all(Memory& memory, const std::vector<GuardedBuffer*>& buffers);
  template <class T>
  std::vector<T> values() const {
    std::vector<T> result(bytes_ / sizeof(T));
    if (!result.empty()) std::memcpy(result.data(), content().data(), result.size() * sizeof(T));
    return result;
  }
  std::span<const std::byte> content() const { return found_.subspan(kGuardBytes, bytes_); }
  // Which bytes outside the content changed; empty: none.
  std::string guard_damage() const;
  // Which bytes differ from what was last put there; empty: none.
  std::string content_damage() const;
  // The same of the bytes [begin, end) of the content.
  std::string damage_within(std::size_t begin, std::size_t end) const;

 private:
  GuardedBuffer(Memory& memory, std::string name, std::size_t bytes);
  void write_to(std::byte* content) const;  // what was last put there
  void put_all();                           // and the guard bands

  Memory& memory_;
  std::string name_;
  std::size_t bytes_;
  std::byte* base_;
  // What was last put there: a pattern where nothing was given.
  std::vector<std::byte> given_;
  std::uint32_t pattern_ = 0;
  std::vector<std::byte> fetched_;
  std::span<const std::byte> found_;  // of the whole buffer, since fetch()
};

}  // namespace samebits::harness
