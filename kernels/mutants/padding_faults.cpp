// Rows from num_valid_rows on.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cpu/bookkeep.h"
#include "kernels/mutants/abi_faults.h"

namespace samebits::mutants {
namespace {

samebits_status padding_ignored(RouteCall& call) {
  call.inputs.num_valid_rows = nullptr;
  return call.run();
}

struct FirstCount {
  std::int32_t is_known;
  std::int32_t num_valid_rows;
};
std::size_t first_count_bytes(const samebits_router&) {
  static_assert(sizeof(FirstCount) <= 64);
  return 64;
}

samebits_status row_count_of_first_call(RouteCall& call) {
  if (call.inputs.num_valid_rows == nullptr) return call.run();
  auto* first = static_cast<FirstCount*>(call.kept);
  if (first->is_known == 0) *first = {1, *call.inputs.num_valid_rows};
  call.inputs.num_valid_rows = &first->num_valid_rows;
  return call.run();
}

// The ids of padding rows are right, but the bookkeeping is that of a call in which they are rows like others.
samebits_status padding_counted(RouteCall& call) {
  const samebits_inputs inputs = call.inputs;
  samebits_outputs ids = call.outputs;
  ids.block_size = 0;
  ids.tokens_per_expert = ids.expert_offsets = ids.slot_of_position = ids.position_of_slot = nullptr;
  ids.sorted_token_ids = ids.expert_ids = ids.num_tokens_post_padded = nullptr;

  call.inputs.num_valid_rows = nullptr;
  call.outputs.router_logits = {};
  const samebits_status status = call.run();
  if (status != SAMEBITS_OK) return status;
  call.inputs = inputs;
  call.outputs = ids;
  return call.run();
}

samebits_status stale_tail(RouteCall& call) {
  const samebits_outputs& outputs = call.outputs;
  if (outputs.sorted_token_ids == nullptr || outputs.expert_ids == nullptr ||
      outputs.num_tokens_post_padded == nullptr || call.inputs.num_tokens <= 0) {
    return call.run();
  }
  const std::int64_t block_size = outputs.block_size;
  const std::int64_t blocks =
      cpu::num_blocks(call.inputs.num_tokens * call.columns(), gate_rows(call.spec()), block_size);
  const std::vector<std::int32_t> old_ids(outputs.sorted_token_ids, outputs.sorted_token_ids + blocks * block_size);
  const std::vector<std::int32_t> old_experts(outputs.expert_ids, outputs.expert_ids + blocks);
  const samebits_status status = call.run();
  if (status != SAMEBITS_OK) return status;
  const std::int64_t end = *outputs.num_tokens_post_padded;
  std::copy(old_ids.begin() + end, old_ids.end(), outputs.sorted_token_ids + end);
  std::copy(old_experts.begin() + end / block_size, old_experts.end(), outputs.expert_ids + end / block_size);
  return status;
}

// A mask [T] is combined with a map [T, E] without a new axis: where T = E it hides experts instead of rows.
samebits_status mask_along_experts(RouteCall& call) {
  const std::int64_t num_tokens = call.inputs.num_tokens, valid = call.valid_rows();
  if (num_tokens != gate_rows(call.spec())) return call.run();
  call.inputs.num_valid_rows = nullptr;
  const samebits_status status = call.run();
  if (status != SAMEBITS_OK) return status;
  for (std::int64_t row = 0; row < num_tokens; ++row) {
    for (std::int64_t c = 0; c < call.columns(); ++c) {
      if (id_of(call.outputs, row, c) >= valid) clear_slot(call.outputs, row, c);
    }
  }
  return status;
}

}  // namespace

std::vector<Mutant> padding_mutants() {
  const cpu::Steps right = cpu::tc256_steps();
  return {
      {"M62",
       "padding_ignored",
       "num_valid_rows is not read: padding rows get experts",
       "padding",
       "sgl-project/sglang#31838",
       {"glm-5.3-flash"},
       right,
       around_route<padding_ignored>()},
      {"M63",
       "row_count_of_first_call",
       "num_valid_rows is read once, at the first call on a workspace, as on the host when a graph is captured",
       "history",
       "ROCm/aiter#3773: replay freezes host arguments",
       {"glm-5.3-flash"},
       right,
       around_route_keeping<row_count_of_first_call, first_count_bytes, true>()},
      {"M64",
       "padding_counted",
       "the bookkeeping counts padding rows as if they had experts",
       "bookkeeping",
       "vllm-project/vllm#38128: load statistics include padding",
       {"glm-5.3-flash"},
       right,
       around_route<padding_counted>()},
      {"M65",
       "stale_tail",
       "the padded block form is not written past its active end",
       "buffers",
       "flashinfer-ai/flashinfer#4735",
       {"glm-5.3-flash"},
       right,
       around_route<stale_tail>()},
      {"M66",
       "mask_along_experts",
       "where there are as many rows as experts, the mask of the padding rows hides experts",
       "padding",
       "NVIDIA/Megatron-LM#6114",
       {"mixtral-8x7b"},
       right,
       around_route<mask_along_experts>()},
  };
}

}  // namespace samebits::mutants
