#include "kernels/cuda/logits_stage.h"

#include "kernels/cuda/check.h"
#include "kernels/cuda/force_form.h"
#include "kernels/cuda/launch.h"

namespace samebits::cuda {
namespace {

constexpr std::uintptr_t kRowAlignment = 16;  // bytes

// The partial sums of the decode form are what it takes longer for with each row; the prefill form takes long for few
// rows, but no longer for 64. So a large weight leaves the former for fewer rows: on an H200 Kimi-K3's gate (896
// experts x 28 chunks) and selection take 11.8 us at 48 rows by the former, 12.7 at 64, and 11.6 at 53 by the latter.
// Its front projection takes as long to be read, 22 us, by either, and then 4 more to split what the former leaves.
std::int64_t decode_rows(const RouterView& router) {
  constexpr std::int64_t kLargeWeight = 512 * 28, kHugeWeight = 2048 * 28;
  const std::int64_t weight = std::int64_t{router.padded_gate_rows} * router.num_chunks;
  if (router.num_parts > 1 || weight <= kLargeWeight) return kDecodeRows;
  return weight <= kHugeWeight ? 48 : 0;
}

}  // namespace

Form choose_form(const RouterView& router, TensorCores tensor_cores, std::int64_t num_tokens) {
  if (tensor_cores != TensorCores::kUsed) return Form::kPlain;
  const std::optional<Form> forced = forced_form();
  if (forced && *forced != Form::kFused) return *forced;
  return num_tokens <= decode_rows(router) ? Form::kDecode : Form::kPrefill;
}

bool needs_copy(const RouterView& router, const samebits_tensor& hidden) {
  const bool strided = hidden.rows > 1 && hidden.row_stride * 2 % static_cast<std::int64_t>(kRowAlignment) != 0;
  return router.hidden_size != router.padded_hidden_size || strided ||
         reinterpret_cast<std::uintptr_t>(hidden.data) % kRowAlignment != 0;
}

void launch_input(const RouterView& router, const LogitsStage& stage, std::int64_t first, CallView& view,
                  cudaStream_t stream) {
  const samebits_tensor& hidden = stage.hidden_states;
  const std::uint16_t* given = static_cast<const std::uint16_t*>(hidden.data) + first * hidden.row_stride;
  if (stage.copies_rows) {
    std::uint16_t* prepared = stage.workspace.prepared;
    check(launch_prepare(router, view, given, hidden.row_stride, prepared, stream), "launch_prepare");
    view.input = prepared;
    view.input_stride = router.padded_hidden_size;
  } else {
    view.input = given;
    view.input_stride = hidden.rows > 1 ? hidden.row_stride : router.hidden_size;
  }
}

void launch_logits(const RouterView& router, const LogitsStage& stage, std::int64_t first, CallView& view,
                   cudaStream_t stream, const OutputPieces* outputs) {
  launch_input(router, stage, first, view, stream);
  view.sums = stage.workspace.sums;
  view.num_sums = static_cast<std::int32_t>(num_sums(router, stage.form));
  switch (stage.form) {
    case Form::kPlain:
      return check(launch_logits_plain(router, view, stream), "launch_logits_plain");
    case Form::kDecode:
      return check(launch_logits_decode(router, view, stream), "launch_logits_decode");
    case Form::kPrefill:
      if (outputs != nullptr)
        return check(launch_prefill_outputs(router, view, *outputs, stream), "launch_prefill_outputs");
      return check(launch_logits_prefill(router, view, stream), "launch_logits_prefill");
    case Form::kFused:
      return;  // has no logits of its own
  }
}

}  // namespace samebits::cuda
