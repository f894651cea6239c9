// The workspace of a call: a header, the ids of all rows, and the scratch of each thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/steps.h"

namespace samebits::cpu {

// Rows that a thread takes at a time. Not visible in any bit.
inline constexpr std::int64_t kBlockRows = 16;

struct ThreadScratch {
  RowScratch row;
  std::uint16_t* prepared;  // [kBlockRows, H], only where the input is prepared
  float* logits;            // [kBlockRows, G]
  float* weights;           // [K]
};

class Arena;  // of workspace.cpp

class WorkspaceLayout {
 public:
  explicit WorkspaceLayout(const samebits_router_spec& spec);

  // The most rows whose ids take at most 2^62 bytes: no size of a workspace wraps up to here.
  static std::int64_t most_tokens(const samebits_router_spec& spec);

  std::size_t bytes(std::int64_t num_tokens, std::int64_t num_threads) const;
  // Threads that a workspace of this size can serve; 0: too small.
  std::int64_t threads_that_fit(std::size_t bytes, std::int64_t num_tokens) const;

  std::int32_t* bookkeeping_scratch(void* workspace) const;  // [G]
  std::int32_t* ids(void* workspace) const;                  // [T, K]
  ThreadScratch thread_scratch(void* workspace, std::int64_t num_tokens, std::int64_t thread) const;

 private:
  std::size_t fixed_bytes(std::int64_t num_tokens) const;
  ThreadScratch take_scratch(Arena& arena) const;

  std::size_t gate_rows_, ranked_experts_, columns_, n_group_;
  std::size_t prepared_width_;  // H, or 0 where the input is not prepared
  std::size_t thread_bytes_;
};

// The header: what workspace_init wrote and a call checks.
void write_header(void* workspace, std::size_t bytes);
// Size that workspace_init was told. Throws Error when it was never called.
std::size_t read_header(const void* workspace);

}  // namespace samebits::cpu
