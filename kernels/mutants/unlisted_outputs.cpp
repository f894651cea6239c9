// Outputs that are written wrongly, or outside their places.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cpu/workspace.h"
#include "kernels/mutants/mutants.h"
#include "kernels/mutants/wrapped_call.h"

namespace samebits::mutants {
namespace {

constexpr auto workspace_overrun = [](CallArguments& call, auto next) {
  const samebits_status status = next();
  if (status == SAMEBITS_OK) static_cast<unsigned char*>(call.workspace)[cpu::read_header(call.workspace)] = 0;
  return status;
};

bool wants_bookkeeping(const samebits_outputs& outputs) {
  return outputs.tokens_per_expert != nullptr || outputs.expert_offsets != nullptr ||
         outputs.slot_of_position != nullptr || outputs.position_of_slot != nullptr || outputs.block_size > 0;
}

// Where nobody sorts the slots by expert afterwards, another kernel runs, which leaves them in reverse order.
constexpr auto reversed_without_bookkeeping = [](CallArguments& call, auto next) {
  const samebits_status status = next();
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
};

}  // namespace

std::vector<Mutant> unlisted_output_mutants() {
  using cpu::Steps;
  const cpu::Steps& good = cpu::tc256_steps();
  return {
      {"U90",
       "workspace_overrun",
       "the byte after the workspace is written",
       "buffers",
       "",
       {"glm-5.3-flash"},
       good,
       calls(workspace_overrun)},
      {"U91",
       "reversed_without_bookkeeping",
       "slots are in reverse order unless bookkeeping is wanted",
       "order",
       "",
       {"glm-5.3-flash"},
       good,
       calls(reversed_without_bookkeeping)},
  };
}

}  // namespace samebits::mutants
