#include "kernels/cuda/workspace.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "kernels/common/error.h"
#include "kernels/cuda/launch.h"
#include "kernels/dispatch/bookkeep_rows.h"

namespace samebits::cuda {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::int64_t kMaxSliceRows = 65536;
constexpr std::int64_t kSliceBytes = std::int64_t{128} << 20;  // of sums and prepared rows

std::int64_t sum_bytes(const RouterView& router, const SliceContents& contents) {  // of a row
  if (!contents.sums) return 0;
  return num_sums(router, *contents.form) * router.padded_gate_rows * static_cast<std::int64_t>(sizeof(float));
}
std::int64_t prepared_bytes(const RouterView& router, const SliceContents& contents) {
  return contents.prepared_rows ? router.padded_hidden_size * static_cast<std::int64_t>(sizeof(std::uint16_t)) : 0;
}

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Rows that bookkeeping can have: slots are int32, and calls with more are refused.
std::int64_t bookkeep_rows(const RouterView& router, std::int64_t num_tokens) {
  return std::min<std::int64_t>(num_tokens, INT32_MAX / router.columns);
}

// Hands out consecutive aligned arrays. Without a base it only counts.
class Arena {
 public:
  explicit Arena(void* base) : base_(static_cast<unsigned char*>(base)) {}
  void* take(std::size_t bytes) {
    void* here = base_ == nullptr ? nullptr : base_ + used_;
    used_ += aligned(bytes);
    return here;
  }
  std::size_t used() const { return used_; }

 private:
  unsigned char* base_;
  std::size_t used_ = 0;
};

// What lasts for the whole call, for any form that needs up to num_slices slices. Without columns there are no slots
// and no header.
void take_call_regions(const RouterView& router, std::int64_t num_tokens, std::int64_t num_slices, Arena& arena,
                       Workspace& workspace) {
  if (router.columns > 0) {
    workspace.handover_state = static_cast<HandoverState*>(arena.take(kHeaderZeroBytes));
    workspace.handover_words = static_cast<std::uint32_t*>(arena.take(kHandoverWordBytes));
  }
  workspace.slice_valid_rows =
      static_cast<std::int32_t*>(arena.take(static_cast<std::size_t>(num_slices) * sizeof(std::int32_t)));
  if (router.columns == 0) return;
  const std::int64_t rows = bookkeep_rows(router, num_tokens);
  workspace.slot_ids = static_cast<std::int32_t*>(
      arena.take(static_cast<std::size_t>(rows) * static_cast<std::size_t>(router.columns) * sizeof(std::int32_t)));
  workspace.tile_counts = static_cast<unsigned char*>(arena.take(kTileCountBytes));
  workspace.bookkeep_scratch_bytes = bookkeep_scratch_bytes(rows, router.columns, router.gate_rows);
  workspace.bookkeep_scratch = arena.take(workspace.bookkeep_scratch_bytes);
}

void take_slice_regions(const RouterView& router, const SliceContents& contents, std::int64_t slice_rows, Arena& arena,
                        Workspace& workspace) {
  workspace.sums = static_cast<float*>(arena.take(static_cast<std::size_t>(slice_rows * sum_bytes(router, contents))));
  workspace.prepared =
      static_cast<std::uint16_t*>(arena.take(static_cast<std::size_t>(slice_rows * prepared_bytes(router, contents))));
}

std::mutex g_mutex;
std::map<const void*, std::size_t> g_bytes;

}  // namespace

std::int64_t num_sums(const RouterView& router, Form form) {
  return form == Form::kDecode ? router.num_chunks : form == Form::kFused ? 0 : 1;
}

Slices slices_of(const RouterView& router, const SliceContents& contents, std::int64_t num_tokens) {
  std::int64_t most = kMaxSliceRows;
  const std::int64_t row_bytes = contents.form ? sum_bytes(router, contents) + prepared_bytes(router, contents) : 0;
  if (row_bytes > 0) most = std::clamp<std::int64_t>(kSliceBytes / row_bytes, 1, most);
  if (contents.form == Form::kDecode) most = std::min(most, kDecodeRows);
  return num_tokens <= most ? Slices{num_tokens, 1} : Slices{most, ceil_div(num_tokens, most)};
}

std::size_t layout_bytes(const RouterView& router, std::int64_t max_tokens) {
  Workspace workspace{};
  std::int64_t num_slices = slices_of(router, {}, max_tokens).count;
  std::size_t slice_bytes = 0;
  if (router.num_parts > 0) {
    for (const Form form : {Form::kPlain, Form::kDecode, Form::kPrefill}) {
      for (const auto& [prepared_rows, sums] : {std::pair{true, true}, {false, true}, {true, false}}) {
        const SliceContents contents{form, prepared_rows, sums};
        const Slices slices = slices_of(router, contents, max_tokens);
        Arena arena(nullptr);
        take_slice_regions(router, contents, slices.rows, arena, workspace);
        num_slices = std::max(num_slices, slices.count);
        slice_bytes = std::max(slice_bytes, arena.used());
      }
    }
  }
  Arena arena(nullptr);
  take_call_regions(router, max_tokens, num_slices, arena, workspace);
  return kAlignment + arena.used() + slice_bytes;  // the first: an unaligned workspace
}

Workspace lay_out(const RouterView& router, const SliceContents& contents, std::int64_t num_tokens, void* memory) {
  Workspace workspace{};
  const Slices slices = slices_of(router, contents, num_tokens);
  Arena arena(header_of(memory));
  take_call_regions(router, num_tokens, slices.count, arena, workspace);
  if (contents.form) take_slice_regions(router, contents, slices.rows, arena, workspace);
  return workspace;
}

void* header_of(void* workspace) {
  const auto address = reinterpret_cast<std::uintptr_t>(workspace);
  return static_cast<unsigned char*>(workspace) + (aligned(address) - address);
}

void remember_workspace(const void* workspace, std::size_t bytes) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_bytes[workspace] = bytes;
}

std::size_t remembered_bytes(const void* workspace) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  const auto found = g_bytes.find(workspace);
  if (found == g_bytes.end()) {
    fail_invalid("workspace: not initialised; call samebits_workspace_init once before its first use");
  }
  return found->second;
}

}  // namespace samebits::cuda
