#include "kernels/cpu/workspace.h"

#include <cstring>

#include "kernels/cpu/error.h"

namespace samebits::cpu {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::uint64_t kMagic = 0x73616d6562697473u;

struct Header {
  std::uint64_t magic;
  std::uint64_t bytes;
};

constexpr std::size_t padded(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Hands out consecutive arrays, each aligned. Without a base it only counts.
class Arena {
 public:
  explicit Arena(unsigned char* base) : base_(base) {}
  template <class T>
  T* take(std::size_t count) {
    unsigned char* here = base_ == nullptr ? nullptr : base_ + used_;
    used_ += padded(count * sizeof(T));
    return reinterpret_cast<T*>(here);
  }
  std::size_t used() const { return used_; }

 private:
  unsigned char* base_;
  std::size_t used_ = 0;
};

ThreadScratch take_scratch(Arena& arena, std::size_t num_experts, std::size_t top_k, std::size_t n_group) {
  ThreadScratch scratch{};
  scratch.logits = arena.take<float>(static_cast<std::size_t>(kBlockRows) * num_experts);
  scratch.weights = arena.take<float>(top_k);
  scratch.row.scores = arena.take<float>(num_experts);
  scratch.row.keys = arena.take<float>(num_experts);
  scratch.row.group_scores = arena.take<float>(n_group);
  scratch.row.groups = arena.take<std::int32_t>(n_group);
  scratch.row.excluded = arena.take<std::uint8_t>(num_experts);
  scratch.row.ids = arena.take<std::int32_t>(top_k);
  scratch.row.chosen_logits = arena.take<float>(top_k);
  scratch.row.chosen_scores = arena.take<float>(top_k);
  return scratch;
}

unsigned char* aligned(void* workspace) {
  const auto address = reinterpret_cast<std::uintptr_t>(workspace);
  return static_cast<unsigned char*>(workspace) + (padded(address) - address);
}

}  // namespace

WorkspaceLayout::WorkspaceLayout(const samebits_router_spec& spec)
    : num_experts_(static_cast<std::size_t>(spec.num_experts)),
      top_k_(static_cast<std::size_t>(spec.top_k)),
      n_group_(static_cast<std::size_t>(spec.n_group)) {
  Arena arena(nullptr);
  take_scratch(arena, num_experts_, top_k_, n_group_);
  thread_bytes_ = arena.used();
}

std::size_t WorkspaceLayout::fixed_bytes(std::int64_t num_tokens) const {
  const auto ids = static_cast<std::size_t>(num_tokens) * top_k_;
  return kAlignment + padded(sizeof(Header)) + padded(num_experts_ * sizeof(std::int32_t)) +
         padded(ids * sizeof(std::int32_t));
}

std::size_t WorkspaceLayout::bytes(std::int64_t num_tokens, std::int64_t num_threads) const {
  return fixed_bytes(num_tokens) + static_cast<std::size_t>(num_threads) * thread_bytes_;
}

std::int64_t WorkspaceLayout::threads_that_fit(std::size_t bytes, std::int64_t num_tokens) const {
  const std::size_t fixed = fixed_bytes(num_tokens);
  return bytes < fixed ? 0 : static_cast<std::int64_t>((bytes - fixed) / thread_bytes_);
}

std::int32_t* WorkspaceLayout::bookkeeping_scratch(void* workspace) const {
  return reinterpret_cast<std::int32_t*>(aligned(workspace) + padded(sizeof(Header)));
}

std::int32_t* WorkspaceLayout::ids(void* workspace) const {
  return bookkeeping_scratch(workspace) + padded(num_experts_ * sizeof(std::int32_t)) / sizeof(std::int32_t);
}

ThreadScratch WorkspaceLayout::thread_scratch(void* workspace, std::int64_t num_tokens, std::int64_t thread) const {
  const std::size_t start = fixed_bytes(num_tokens) - kAlignment + static_cast<std::size_t>(thread) * thread_bytes_;
  Arena arena(aligned(workspace) + start);
  return take_scratch(arena, num_experts_, top_k_, n_group_);
}

void write_header(void* workspace, std::size_t bytes) {
  const Header header{kMagic, bytes};
  std::memcpy(aligned(workspace), &header, sizeof(header));
}

std::size_t read_header(const void* workspace) {
  Header header;
  std::memcpy(&header, aligned(const_cast<void*>(workspace)), sizeof(header));
  if (header.magic != kMagic)
    fail_invalid("workspace: not initialised; call samebits_workspace_init once before its first use");
  return static_cast<std::size_t>(header.bytes);
}

}  // namespace samebits::cpu
