// One call of a router: argument checks, then the stages, slice by slice.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>

#include "kernels/common/abi_struct.h"
#include "kernels/common/error.h"
#include "kernels/common/gate_input.h"
#include "kernels/cuda/force_form.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/limits.h"
#include "kernels/cuda/logits_stage.h"
#include "kernels/cuda/router.h"
#include "kernels/cuda/slices.h"
#include "kernels/cuda/workspace.h"
#include "kernels/dispatch/bookkeep_rows.h"
#include "kernels/fused/fused.h"

namespace samebits::cuda {
namespace {

// What does the bookkeeping where the fused form does not: nothing, as none is wanted; launch_bookkeep_rows;
// launch_bookkeep.
enum class Bookkeeper { kNone, kRows, kOther };

// A call whose arguments are checked.
struct Call {
  const Router& router;
  samebits_inputs inputs;
  samebits_outputs outputs;
  std::optional<Form> form;  // nullopt: given logits
  bool copies_rows;          // the gate reads prepared rows of the workspace
  Bookkeeper bookkeeper;
  Slices slices;
  Workspace workspace;
};

void check_workspace(const RouterView& router, std::int64_t num_tokens, const void* workspace) {
  if (workspace == nullptr) fail_invalid("workspace: null, allowed samebits_workspace_bytes bytes");
  const std::size_t found = remembered_bytes(workspace), needed = layout_bytes(router, num_tokens);
  if (found >= needed) return;
  fail_invalid("workspace: found " + std::to_string(found) + " bytes, but " + std::to_string(num_tokens) +
               " rows need " + std::to_string(needed) + "; ask samebits_workspace_bytes");
}

// The fused form where it serves the call, and bookkeeping is wanted or the form is forced: without bookkeeping two
// launches take 0.2 to 0.5 us less on an H200 (docs/kernels.md).
Form form_of_call(const Router& router, const samebits_inputs& in, const samebits_outputs& out) {
  const std::int64_t num_tokens = in.num_tokens;
  const Form form = choose_form(router.view, router.tensor_cores, num_tokens);
  const auto fits = [&](const samebits_tensor& rows) {
    return num_tokens <= 1 || rows.data == nullptr || rows.row_stride <= kFusedStride;
  };
  const bool has_short_strides =
      fits(in.hidden_states) && fits(out.topk_ids) && fits(out.topk_weights) && fits(out.router_logits);
  if (form != Form::kDecode || !can_fuse(router.view, num_tokens) || !has_short_strides) return form;
  const bool fuses = forced_form() ? *forced_form() == Form::kFused : wants_bookkeeping(out);
  return fuses ? Form::kFused : form;
}

Bookkeeper bookkeeper_of(const Call& call) {
  const RouterView& router = call.router.view;
  const std::int64_t num_tokens = call.inputs.num_tokens;
  if (!wants_bookkeeping(call.outputs)) return Bookkeeper::kNone;
  return can_bookkeep_rows(router, num_tokens, call.outputs.block_size) ? Bookkeeper::kRows : Bookkeeper::kOther;
}

Call checked_call(const Router& router, Source source, const samebits_inputs* inputs_from,
                  const samebits_outputs* outputs_from, void* workspace) {
  const RouterView& view = router.view;
  Call call{router,
            read_struct(inputs_from, "inputs"),
            read_struct(outputs_from, "outputs"),
            std::nullopt,
            false,
            Bookkeeper::kNone,
            {},
            {}};
  check_call(view.spec, source, view.num_parts > 0, call.inputs, call.outputs);
  const std::int64_t num_tokens = call.inputs.num_tokens;
  if (num_tokens > kMaxTokens) {
    fail_unsupported("inputs.num_tokens: found " + std::to_string(num_tokens) + ", this router has at most " +
                     std::to_string(kMaxTokens) + " rows a call");
  }
  check_workspace(view, num_tokens, workspace);
  check_device(router.device);
  if (source == Source::kHiddenStates) {
    call.form = form_of_call(router, call.inputs, call.outputs);
    call.copies_rows = has_prepared_input(view.spec) || needs_copy(view, call.inputs.hidden_states);
  }
  const SliceContents contents{call.form, call.copies_rows, call.form.has_value()};
  call.slices = slices_of(view, contents, num_tokens);
  call.workspace = lay_out(view, contents, num_tokens, workspace);
  call.bookkeeper = bookkeeper_of(call);
  return call;
}

template <class T>
T* advance(T* data, std::int64_t elements) {
  return data == nullptr ? nullptr : data + elements;
}
void* advance_bytes(void* data, std::int64_t bytes) {
  return advance(static_cast<unsigned char*>(data), bytes);
}

// Where the bookkeeping finds the ids: the caller's, if they are int32 without gaps and it only reads them.
bool reads_topk_ids(const Call& call) {
  const samebits_tensor& ids = call.outputs.topk_ids;
  return call.bookkeeper == Bookkeeper::kRows && ids.dtype == SAMEBITS_INT32 &&
         (ids.row_stride == call.router.view.columns || call.inputs.num_tokens == 1);
}

// What the kernels read and write for the rows [first, first + rows). The input of the gate is left out.
CallView view_of_slice(const Call& call, std::int64_t first, std::int64_t rows) {
  const samebits_inputs& in = call.inputs;
  const samebits_outputs& out = call.outputs;
  CallView view{};
  view.num_tokens = rows;
  view.num_valid_rows = in.num_valid_rows;
  if (in.num_valid_rows != nullptr && call.slices.count > 1) {
    view.num_valid_rows = call.workspace.slice_valid_rows + first / call.slices.rows;
  }
  view.token_ids_int64 = in.token_ids.dtype == SAMEBITS_INT64;
  view.token_ids = advance_bytes(in.token_ids.data, first * (view.token_ids_int64 ? 8 : 4));
  view.row_class = advance(static_cast<const std::int32_t*>(in.row_class.data), first);
  view.given_logits_stride = in.router_logits.row_stride;
  if (!call.form) {
    view.given_logits = advance(static_cast<const float*>(in.router_logits.data), first * view.given_logits_stride);
  }

  view.ids_int64 = out.topk_ids.dtype == SAMEBITS_INT64;
  view.ids_stride = out.topk_ids.row_stride;
  view.topk_ids = advance_bytes(out.topk_ids.data, first * view.ids_stride * (view.ids_int64 ? 8 : 4));
  view.weights_bf16 = out.topk_weights.dtype == SAMEBITS_BF16;
  view.weights_stride = out.topk_weights.row_stride;
  view.topk_weights = advance_bytes(out.topk_weights.data, first * view.weights_stride * (view.weights_bf16 ? 2 : 4));
  view.router_logits_stride = out.router_logits.row_stride;
  view.router_logits = advance(static_cast<float*>(out.router_logits.data), first * view.router_logits_stride);
  if (wants_bookkeeping(out) && !reads_topk_ids(call))
    view.slot_ids = call.workspace.slot_ids + first * call.router.view.columns;
  return view;
}

BookkeepOutputs bookkeep_outputs(const samebits_outputs& out) {
  return {out.block_size,       out.tokens_per_expert, out.expert_offsets, out.slot_of_position,
          out.position_of_slot, out.sorted_token_ids,  out.expert_ids,     out.num_tokens_post_padded};
}

void launch_bookkeeping(const Call& call, cudaStream_t stream) {
  const RouterView& router = call.router.view;
  const BookkeepOutputs outputs = bookkeep_outputs(call.outputs);
  CallView view{};
  view.num_tokens = call.inputs.num_tokens;
  view.slot_ids =
      reads_topk_ids(call) ? static_cast<std::int32_t*>(call.outputs.topk_ids.data) : call.workspace.slot_ids;
  if (call.bookkeeper == Bookkeeper::kRows) {
    return check(launch_bookkeep_rows(router, view, outputs, call.workspace.tile_counts, stream),
                 "launch_bookkeep_rows");
  }
  check(launch_bookkeep(router, view, outputs, call.workspace.bookkeep_scratch, call.workspace.bookkeep_scratch_bytes,
                        stream),
        "launch_bookkeep");
}

// The whole call in one launch, but for a copy or a preparation of the rows.
void launch_all_at_once(const Call& call, cudaStream_t stream) {
  const RouterView& router = call.router.view;
  CallView view = view_of_slice(call, 0, call.inputs.num_tokens);
  launch_input(router, {Form::kFused, call.inputs.hidden_states, call.copies_rows, call.workspace}, 0, view, stream);
  const Handover handover{call.workspace.handover_state, call.workspace.handover_words, handover_patience()};
  const BookkeepOutputs outputs = bookkeep_outputs(call.outputs);
  const bool bookkeeps = call.bookkeeper != Bookkeeper::kNone;
  check(launch_fused(router, view, handover, bookkeeps ? &outputs : nullptr, stream), "launch_fused");
}

void write_kernel_name(const Call& call, samebits_outputs* outputs) {
  if (outputs->struct_size < offsetof(samebits_outputs, kernel_name) + sizeof(outputs->kernel_name)) return;
  std::string name = std::string("cuda/tc256/") + (call.form ? form_name(*call.form) : "select");
  if (call.copies_rows) name += has_prepared_input(call.router.view.spec) ? "+prepare" : "+copy";
  if (call.form && call.router.tensor_cores == TensorCores::kOtherArch) name += " (not sm_90)";
  if (call.form && call.router.tensor_cores == TensorCores::kOtherBits) name += " (tensor cores have other bits)";
  std::snprintf(outputs->kernel_name, sizeof(outputs->kernel_name), "%s", name.c_str());
}

}  // namespace

std::size_t workspace_bytes(const Router& router, std::int64_t max_tokens) {
  return max_tokens < 0 || max_tokens > kMaxTokens ? 0 : layout_bytes(router.view, max_tokens);
}

void init_workspace(const Router& router, void* workspace, std::size_t bytes, cudaStream_t stream) {
  if (workspace == nullptr) fail_invalid("workspace: null, allowed samebits_workspace_bytes bytes");
  const std::size_t needed = layout_bytes(router.view, 0);
  if (bytes < needed) {
    fail_invalid("workspace_bytes: found " + std::to_string(bytes) + ", allowed " + std::to_string(needed) +
                 " or more; ask samebits_workspace_bytes");
  }
  auto* header = static_cast<unsigned char*>(header_of(workspace));
  check(cudaMemsetAsync(header, 0, kHeaderZeroBytes, stream), "cudaMemsetAsync of the workspace");
  check(cudaMemsetAsync(header + kHeaderZeroBytes, 0xff, kHandoverWordBytes, stream),
        "cudaMemsetAsync of the workspace");
  remember_workspace(workspace, bytes);
}

void route(const Router& router, Source source, const samebits_inputs* inputs, samebits_outputs* outputs,
           void* workspace, cudaStream_t stream) {
  const Call call = checked_call(router, source, inputs, outputs, workspace);
  const std::int64_t num_tokens = call.inputs.num_tokens;
  if (call.inputs.num_valid_rows != nullptr && call.slices.count > 1) {
    check(launch_slice_valid_rows(call.inputs.num_valid_rows, call.slices.rows, call.slices.count,
                                  call.workspace.slice_valid_rows, stream),
          "launch_slice_valid_rows");
  }
  const bool fused = call.form == Form::kFused && num_tokens > 0;
  if (fused) launch_all_at_once(call, stream);
  for (std::int64_t first = 0; first < num_tokens && !fused; first += call.slices.rows) {
    CallView view = view_of_slice(call, first, std::min(call.slices.rows, num_tokens - first));
    if (call.form) {
      const LogitsStage stage{*call.form, call.inputs.hidden_states, call.copies_rows, call.workspace};
      launch_logits(router.view, stage, first, view, stream);
    }
    check(launch_select(router.view, view, stream), "launch_select");
  }
  if (call.bookkeeper != Bookkeeper::kNone && !fused) launch_bookkeeping(call, stream);
  write_kernel_name(call, outputs);
}

}  // namespace samebits::cuda
