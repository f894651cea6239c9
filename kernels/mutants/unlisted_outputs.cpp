// Outputs that are written wrongly, or outside their places.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/cpu/workspace.h"
#include "kernels/mutants/abi_faults.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

samebits_status workspace_overrun(RouteCall& call) {
  const samebits_status status = call.run();
  if (status == SAMEBITS_OK) static_cast<unsigned char*>(call.workspace)[cpu::read_header(call.workspace)] = 0;
  return status;
}

bool wants_bookkeeping(const samebits_outputs& outputs) {
  return outputs.tokens_per_expert != nullptr || outputs.expert_offsets != nullptr ||
         outputs.slot_of_position != nullptr || outputs.position_of_slot != nullptr || outputs.block_size > 0;
}

// Where nobody sorts the slots by expert afterwards, another kernel runs, which leaves them in reverse order.
samebits_status reversed_without_bookkeeping(RouteCall& call) {
  const samebits_status status = call.run();
  const samebits_tensor &ids = call.outputs.topk_ids, &weights = call.outputs.topk_weights;
  if (status != SAMEBITS_OK || wants_bookkeeping(call.outputs)) return status;
  for (std::int64_t r = 0; r < ids.rows; ++r) {
    const auto reverse = [r](const samebits_tensor& tensor, auto* data) {
      std::reverse(data + r * tensor.row_stride, data + r * tensor.row_stride + tensor.cols);
    };
    ids.dtype == SAMEBITS_INT64 ? reverse(ids, static_cast<std::int64_t*>(ids.data))
                                : reverse(ids, static_cast<std::int32_t*>(ids.data));
    weights.dtype == SAMEBITS_BF16 ? reverse(weights, static_cast<std::uint16_t*>(weights.data))
                                   : reverse(weights, static_cast<float*>(weights.data));
  }
  return status;
}

samebits_status truncated_bf16_output(RouteCall& call) {
  const samebits_tensor wanted = call.outputs.topk_weights;
  if (wanted.dtype != SAMEBITS_BF16) return call.run();
  std::vector<float> weights(static_cast<std::size_t>(wanted.rows * wanted.cols) + 1);
  call.outputs.topk_weights = {weights.data(), wanted.rows, wanted.cols, wanted.cols, SAMEBITS_FP32, 0};
  const samebits_status status = call.run();
  for (std::int64_t i = 0; status == SAMEBITS_OK && i < wanted.rows * wanted.cols; ++i) {
    static_cast<std::uint16_t*>(wanted.data)[i / wanted.cols * wanted.row_stride + i % wanted.cols] =
        static_cast<std::uint16_t>(to_bits(weights[static_cast<std::size_t>(i)]) >> 16);
  }
  return status;
}

samebits_status padding_id_zero_extended(RouteCall& call) {
  const samebits_status status = call.run();
  const samebits_tensor& ids = call.outputs.topk_ids;
  for (std::int64_t i = 0; status == SAMEBITS_OK && ids.dtype == SAMEBITS_INT64 && i < ids.rows * ids.cols; ++i) {
    auto* id = static_cast<std::int64_t*>(ids.data) + i / ids.cols * ids.row_stride + i % ids.cols;
    *id = static_cast<std::int64_t>(static_cast<std::uint32_t>(*id));
  }
  return status;
}

// A vector store of a multiple of four columns: it reaches into the gap between
// rows, never into the next row.
samebits_status gap_between_rows_written(RouteCall& call) {
  const samebits_status status = call.run();
  const samebits_tensor& weights = call.outputs.topk_weights;
  const std::int64_t end = std::min((weights.cols + 3) / 4 * 4, weights.row_stride);
  for (std::int64_t r = 0; weights.dtype == SAMEBITS_FP32 && r + 1 < weights.rows; ++r) {
    for (std::int64_t c = weights.cols; c < end; ++c) static_cast<float*>(weights.data)[r * weights.row_stride + c] = 0;
  }
  return status;
}

}  // namespace

std::vector<Mutant> unlisted_output_mutants() {
  using cpu::Steps;
  const cpu::Steps& good = cpu::tc256_steps();
  return {
      {"U87",
       "truncated_bf16_output",
       "weights wanted as bf16 are cut toward zero instead of rounded",
       "layout",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<truncated_bf16_output>()},
      {"U88",
       "padding_id_zero_extended",
       "the id -1 is written as 4294967295 where ids have 64 bits",
       "layout",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<padding_id_zero_extended>()},
      {"U89",
       "gap_between_rows_written",
       "weights are stored four at a time, past the last column",
       "layout",
       "",
       {"deepseek-v4-flash"},
       good,
       around_route<gap_between_rows_written>()},
      {"U90",
       "workspace_overrun",
       "the byte after the workspace is written",
       "buffers",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<workspace_overrun>()},
      {"U91",
       "reversed_without_bookkeeping",
       "slots are in reverse order unless bookkeeping is wanted",
       "order",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<reversed_without_bookkeeping>()},
  };
}

}  // namespace samebits::mutants
