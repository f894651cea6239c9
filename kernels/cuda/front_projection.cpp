#include "kernels/cuda/front_projection.h"

#include <algorithm>
#include <string>

#include "kernels/common/abi_struct.h"
#include "kernels/common/error.h"
#include "kernels/common/gate_input.h"
#include "kernels/common/spec_check.h"
#include "kernels/common/tensor_check.h"
#include "kernels/cuda/force_form.h"
#include "kernels/cuda/host_constants.h"
#include "kernels/cuda/limits.h"
#include "kernels/cuda/logits_stage.h"
#include "kernels/cuda/router.h"
#include "kernels/cuda/slices.h"
#include "kernels/logits/output_pieces.h"
#include "kernels/logits/pack.h"
#include "kernels/logits/prefill.h"

namespace samebits::cuda {
namespace {

std::string block_name(std::size_t i, const char* field) {
  return "blocks[" + std::to_string(i) + "]." + field;
}

void check_gate(const samebits_router_spec& spec, const samebits_constants& constants) {
  if (has_prepared_input(spec)) {
    fail_unsupported(
        "spec: has an input norm or scale, but a front projection reads the hidden states as they are; route such a "
        "router apart");
  }
  if (constants.gate_weight.data == nullptr) fail_invalid("gate_weight: absent, allowed [G, H] BF16");
  if (constants.gate_weight.dtype == SAMEBITS_FP32) {
    fail_unsupported(
        "gate_weight: found dtype 1 (fp32), a front projection takes 2 (bf16); route a router with another one apart");
  }
}

// The pieces of the merged weight, and its columns in all.
std::int64_t lay_out_pieces(const RouterView& view, const samebits_front_block* blocks, std::int32_t num_blocks,
                            std::vector<ColumnPiece>& pieces) {
  if (num_blocks < 0) fail_invalid("num_blocks: found " + std::to_string(num_blocks) + ", allowed 0 or more");
  if (num_blocks > 0 && blocks == nullptr) {
    fail_invalid("blocks: null, allowed an array of num_blocks, " + std::to_string(num_blocks));
  }
  pieces.push_back({0, view.gate_rows, true, false, nullptr, 0});
  std::int64_t columns = view.padded_gate_rows;
  for (std::size_t i = 0; i < static_cast<std::size_t>(num_blocks); ++i) {
    const samebits_tensor& weight = blocks[i].weight;
    check_tensor(weight, block_name(i, "weight").c_str(), std::max<std::int64_t>(weight.rows, 1), view.hidden_size,
                 {SAMEBITS_BF16});
    const std::int32_t dtype = blocks[i].output_dtype;
    if (dtype != SAMEBITS_BF16 && dtype != SAMEBITS_FP32) {
      fail_invalid(block_name(i, "output_dtype") + ": found " + std::to_string(dtype) + ", allowed 1 (fp32), 2 (bf16)");
    }
    if (weight.rows > kMaxFrontColumns - columns) {
      fail_unsupported(block_name(i, "weight") + ": found " + std::to_string(weight.rows) + " rows after " +
                       std::to_string(columns) + " columns, a front projection has at most " +
                       std::to_string(kMaxFrontColumns) + " in all; project it apart");
    }
    pieces.push_back({static_cast<std::int32_t>(columns), static_cast<std::int32_t>(weight.rows), false,
                      dtype == SAMEBITS_BF16, nullptr, 0});
    columns += round_up(weight.rows, kGateRowPad);
  }
  return columns;
}

void check_workspace(const FrontProjection& front, std::int64_t num_tokens, const void* workspace, std::size_t bytes) {
  if (workspace == nullptr) fail_invalid("workspace: null, allowed samebits_front_workspace_bytes bytes");
  const std::size_t needed = layout_bytes(front.view, num_tokens);
  if (bytes >= needed) return;
  fail_invalid("workspace_bytes: found " + std::to_string(bytes) + ", but " + std::to_string(num_tokens) +
               " rows need " + std::to_string(needed) + "; ask samebits_front_workspace_bytes");
}

void check_rows(const FrontProjection& front, const samebits_inputs& inputs) {
  const std::int64_t num_tokens = inputs.num_tokens;
  if (num_tokens < 0) fail_invalid("inputs.num_tokens: found " + std::to_string(num_tokens) + ", allowed 0 or more");
  check_tensor(inputs.hidden_states, "hidden_states", num_tokens, front.view.hidden_size, {SAMEBITS_BF16});
  if (num_tokens > kMaxTokens) {
    fail_unsupported("inputs.num_tokens: found " + std::to_string(num_tokens) + ", a front projection has at most " +
                     std::to_string(kMaxTokens) + " rows a call");
  }
}

// The pieces with the outputs of a call.
std::vector<ColumnPiece> checked_outputs(const FrontProjection& front, std::int64_t num_tokens,
                                         const samebits_tensor* router_logits, const samebits_tensor* outputs) {
  std::vector<ColumnPiece> pieces = front.pieces;
  if (pieces.size() > 1 && outputs == nullptr) {
    fail_invalid("outputs: null, allowed an array of one tensor a block, " + std::to_string(pieces.size() - 1));
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    ColumnPiece& piece = pieces[i];
    const samebits_tensor* output = piece.is_gate ? router_logits : outputs + (i - 1);
    if (output == nullptr || output->data == nullptr) continue;
    const std::string name = piece.is_gate ? "router_logits" : "outputs[" + std::to_string(i - 1) + "]";
    check_tensor(*output, name.c_str(), num_tokens, piece.columns, {piece.bf16 ? SAMEBITS_BF16 : SAMEBITS_FP32});
    piece.output = output->data;
    piece.stride = output->row_stride;
  }
  return pieces;
}

void advance_rows(std::vector<ColumnPiece>& pieces, std::int64_t rows) {
  for (ColumnPiece& piece : pieces) {
    if (piece.output == nullptr) continue;
    piece.output = static_cast<unsigned char*>(piece.output) + rows * piece.stride * (piece.bf16 ? 2 : 4);
  }
}

}  // namespace

void make_front_projection(const samebits_router_spec* spec_from, const samebits_constants* constants_from,
                           const samebits_front_block* blocks, std::int32_t num_blocks, FrontProjection& front) {
  const samebits_router_spec spec = read_struct(spec_from, "spec");
  check_spec(spec);
  check_limits(spec);
  check_gate(spec, read_struct(constants_from, "constants"));
  RouterView& view = front.view;
  view = sizes_of(spec);
  view.columns = 0;
  const std::int64_t columns = lay_out_pieces(view, blocks, num_blocks, front.pieces);
  view.num_parts = num_parts(SAMEBITS_BF16);
  view.gate_rows = view.padded_gate_rows = static_cast<std::int32_t>(columns);

  check(cudaGetDevice(&front.device), "cudaGetDevice");
  front.tensor_cores = test_tensor_cores();
  front.plain = front.tensor_cores != TensorCores::kUsed || forced_form() == Form::kPlain;
  HostConstants host = read_constants(spec, constants_from);
  std::vector<std::uint16_t> rows = std::move(host.weight_rows);
  for (std::int32_t i = 0; i < num_blocks; ++i) {
    const std::vector<std::uint16_t> block = read_weight_rows(blocks[i].weight);
    rows.insert(rows.end(), block.begin(), block.end());
  }
  const auto upload = [&](const auto& values) {
    front.arrays.emplace_back(values);
    return front.arrays.back().template as<typename std::decay_t<decltype(values)>::value_type>();
  };
  view.linear_bias = upload(host.linear_bias);
  if (front.plain) {
    view.weight_rows = upload(rows);
  } else {
    view.weight_fragments = upload(pack_fragments(rows, 1, columns, view.padded_hidden_size));
    view.weight_tiles = upload(pack_tiles(rows, 1, columns, view.padded_hidden_size));
  }
}

std::size_t front_workspace_bytes(const FrontProjection& front, std::int64_t max_tokens) {
  return max_tokens < 0 || max_tokens > kMaxTokens ? 0 : layout_bytes(front.view, max_tokens);
}

void project(const FrontProjection& front, const samebits_inputs* inputs_from, const samebits_tensor* router_logits,
             const samebits_tensor* outputs, void* workspace_memory, std::size_t workspace_bytes, cudaStream_t stream) {
  const samebits_inputs inputs = read_struct(inputs_from, "inputs");
  check_rows(front, inputs);
  const std::int64_t num_tokens = inputs.num_tokens;
  std::vector<ColumnPiece> pieces = checked_outputs(front, num_tokens, router_logits, outputs);
  check_workspace(front, num_tokens, workspace_memory, workspace_bytes);
  check_device(front.device);

  const Form form = front.plain ? Form::kPlain : choose_form(front.view, front.tensor_cores, num_tokens);
  const bool copies_rows = needs_copy(front.view, inputs.hidden_states);
  const bool is_direct = form == Form::kPrefill && direct_outputs(front.view, pieces).has_value();
  const SliceContents contents{form, copies_rows, !is_direct};
  const Slices slices = slices_of(front.view, contents, num_tokens);
  const LogitsStage stage{form, inputs.hidden_states, copies_rows,
                          lay_out(front.view, contents, num_tokens, workspace_memory)};
  const bool sliced_valid_rows = inputs.num_valid_rows != nullptr && slices.count > 1;
  if (sliced_valid_rows) {
    check(launch_slice_valid_rows(inputs.num_valid_rows, slices.rows, slices.count, stage.workspace.slice_valid_rows,
                                  stream),
          "launch_slice_valid_rows");
  }
  for (std::int64_t first = 0; first < num_tokens; first += slices.rows) {
    CallView call{};
    call.num_tokens = std::min(slices.rows, num_tokens - first);
    call.num_valid_rows =
        sliced_valid_rows ? stage.workspace.slice_valid_rows + first / slices.rows : inputs.num_valid_rows;
    if (is_direct) {
      const OutputPieces direct = direct_outputs(front.view, pieces).value();
      launch_logits(front.view, stage, first, call, stream, &direct);
    } else {
      launch_logits(front.view, stage, first, call, stream);
      check(launch_split_columns(front.view, call, pieces, stream), "launch_split_columns");
    }
    advance_rows(pieces, slices.rows);
  }
}

}  // namespace samebits::cuda
