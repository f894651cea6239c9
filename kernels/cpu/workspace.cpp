#include "kernels/cpu/workspace.h"

#include <cstring>

#include "kernels/common/error.h"
#include "kernels/common/gate_input.h"
#include "kernels/common/sizes.h"

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

unsigned char* aligned(void* workspace) {
  const auto address = reinterpret_cast<std::uintptr_t>(workspace);
  return static_cast<unsigned char*>(workspace) + (padded(address) - address);
}

}  // namespace

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

WorkspaceLayout::WorkspaceLayout(const samebits_router_spec& spec)
    : gate_rows_(static_cast<std::size_t>(gate_rows(spec))),
      ranked_experts_(static_cast<std::size_t>(ranked_experts(spec))),
      columns_(static_cast<std::size_t>(topk_columns(spec))),
      n_group_(static_cast<std::size_t>(spec.n_group)),
      prepared_width_(has_prepared_input(spec) ? static_cast<std::size_t>(spec.hidden_size) : 0) {
  Arena arena(nullptr);
  take_scratch(arena);
  thread_bytes_ = arena.used();
}

std::int64_t WorkspaceLayout::most_tokens(const samebits_router_spec& spec) {
  return (std::int64_t{1} << 62) / (topk_columns(spec) * static_cast<std::int64_t>(sizeof(std::int32_t)));
}

ThreadScratch WorkspaceLayout::take_scratch(Arena& arena) const {
  ThreadScratch scratch{};
  scratch.prepared = arena.take<std::uint16_t>(static_cast<std::size_t>(kBlockRows) * prepared_width_);
  scratch.logits = arena.take<float>(static_cast<std::size_t>(kBlockRows) * gate_rows_);
  scratch.weights = arena.take<float>(columns_);
  scratch.row.input = arena.take<float>(prepared_width_);
  scratch.row.scores = arena.take<float>(gate_rows_);
  scratch.row.keys = arena.take<float>(ranked_experts_);
  scratch.row.group_scores = arena.take<float>(n_group_);
  scratch.row.groups = arena.take<std::int32_t>(n_group_);
  scratch.row.excluded = arena.take<std::uint8_t>(ranked_experts_);
  scratch.row.ids = arena.take<std::int32_t>(columns_);
  scratch.row.chosen_logits = arena.take<float>(columns_);
  scratch.row.chosen_values = arena.take<float>(columns_);
  return scratch;
}

std::size_t WorkspaceLayout::fixed_bytes(std::int64_t num_tokens) const {
  const auto ids = static_cast<std::size_t>(num_tokens) * columns_;
  return kAlignment + padded(sizeof(Header)) + padded(gate_rows_ * sizeof(std::int32_t)) +
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
  return bookkeeping_scratch(workspace) + padded(gate_rows_ * sizeof(std::int32_t)) / sizeof(std::int32_t);
}

ThreadScratch WorkspaceLayout::thread_scratch(void* workspace, std::int64_t num_tokens, std::int64_t thread) const {
  const std::size_t start = fixed_bytes(num_tokens) - kAlignment + static_cast<std::size_t>(thread) * thread_bytes_;
  Arena arena(aligned(workspace) + start);
  return take_scratch(arena);
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
