// The workspace of a call, in device memory: a header, what lasts for the whole call, and what lies between the stages
// of a slice of rows. The host cannot read it, so it remembers which workspaces were initialised, and their sizes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/form.h"
#include "kernels/cuda/view.h"
#include "kernels/fused/handover.h"

namespace samebits::cuda {

// Rows go through the stages in slices of this many.
struct Slices {
  std::int64_t rows, count;
};
// What a slice keeps in the workspace. form: nullopt for given logits.
struct SliceContents {
  std::optional<Form> form;
  bool prepared_rows, sums;
};
Slices slices_of(const RouterView& router, const SliceContents& contents, std::int64_t num_tokens);

// Parts of a sum that the form leaves to the selection.
std::int64_t num_sums(const RouterView& router, Form form);

struct Workspace {
  HandoverState* handover_state;
  std::uint32_t* handover_words;
  std::int32_t* slice_valid_rows;  // [slices]
  std::int32_t* slot_ids;          // [T, K]
  unsigned char* tile_counts;      // kTileCountBytes (dispatch/bookkeep_rows.h)
  void* bookkeep_scratch;
  std::size_t bookkeep_scratch_bytes;
  float* sums;              // [slice rows][num_sums][Gp]
  std::uint16_t* prepared;  // [slice rows][Hp]
};

// The header: what launches leave for the next one, the same for all routers. First the state of the hand-over, which
// is 0; then its words.
inline constexpr std::size_t kHeaderZeroBytes = 256;
inline constexpr std::size_t kHandoverWordBytes = 2 * kWordsOfSide * sizeof(std::uint32_t);
inline constexpr std::size_t kWorkspaceHeaderBytes = kHeaderZeroBytes + kHandoverWordBytes;

// Bytes of calls with up to max_tokens rows, whatever their form and alignment; grows with max_tokens.
std::size_t layout_bytes(const RouterView& router, std::int64_t max_tokens);
// The regions of one call.
Workspace lay_out(const RouterView& router, const SliceContents& contents, std::int64_t num_tokens, void* workspace);

// The header, 256-byte aligned.
void* header_of(void* workspace);
void remember_workspace(const void* workspace, std::size_t bytes);
// Size that workspace_init was told last. Throws Error when it was never called.
std::size_t remembered_bytes(const void* workspace);

}  // namespace samebits::cuda
