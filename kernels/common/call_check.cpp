#include "kernels/common/call_check.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/common/error.h"
#include "kernels/common/sizes.h"
#include "kernels/common/tensor_check.h"

namespace samebits {
namespace {

// token_ids and row_class are vectors where they are given; a hash table needs the former.
void check_row_tensors(const samebits_router_spec& spec, const samebits_inputs& inputs) {
  const std::int64_t num_tokens = inputs.num_tokens;
  if (inputs.token_ids.data != nullptr) {
    check_tensor(inputs.token_ids, "token_ids", 1, num_tokens, {SAMEBITS_INT32, SAMEBITS_INT64});
  } else if (spec.selection_method == SAMEBITS_SELECT_HASH_TABLE && num_tokens > 0) {
    fail_invalid("token_ids: absent, allowed [1, " + std::to_string(num_tokens) +
                 "] with selection_method 2 (hash_table)");
  }
  if (inputs.row_class.data != nullptr) {
    check_tensor(inputs.row_class, "row_class", 1, num_tokens, {SAMEBITS_INT32});
  }
}

void check_bookkeeping(const samebits_router_spec& spec, const samebits_outputs& o, std::int64_t num_tokens) {
  if (o.block_size < 0) {
    fail_invalid("outputs.block_size: found " + std::to_string(o.block_size) + ", allowed 0 (not wanted) or more");
  }
  const bool blocks = o.sorted_token_ids != nullptr || o.expert_ids != nullptr || o.num_tokens_post_padded != nullptr;
  if (blocks && o.block_size == 0) {
    fail_invalid(
        "outputs.block_size: found 0, allowed 1 or more with sorted_token_ids, expert_ids or num_tokens_post_padded");
  }
  // Slots are int32. In double: no overflow in the check itself.
  const double slots = static_cast<double>(num_tokens) * static_cast<double>(topk_columns(spec));
  const double places = slots + std::min(static_cast<double>(gate_rows(spec)), slots) * std::max(o.block_size - 1, 0);
  if (wants_bookkeeping(o) && places > INT32_MAX) {
    fail_invalid("num_tokens: found " + std::to_string(num_tokens) + ", but bookkeeping allowed at most " +
                 std::to_string(INT32_MAX) + " slots and block places; route fewer rows at a time");
  }
}

}  // namespace

bool wants_bookkeeping(const samebits_outputs& o) {
  return o.tokens_per_expert != nullptr || o.expert_offsets != nullptr || o.slot_of_position != nullptr ||
         o.position_of_slot != nullptr || o.block_size > 0;
}

void check_call(const samebits_router_spec& spec, Source source, bool has_gate_weight, const samebits_inputs& inputs,
                const samebits_outputs& outputs) {
  const std::int64_t num_tokens = inputs.num_tokens;
  if (num_tokens < 0) fail_invalid("inputs.num_tokens: found " + std::to_string(num_tokens) + ", allowed 0 or more");
  if (source == Source::kHiddenStates) {
    if (!has_gate_weight) {
      fail_invalid(
          "gate_weight: absent, so that only samebits_route_from_logits may be used; create the router with one");
    }
    check_tensor(inputs.hidden_states, "hidden_states", num_tokens, spec.hidden_size, {SAMEBITS_BF16});
  } else {
    check_tensor(inputs.router_logits, "inputs.router_logits", num_tokens, gate_rows(spec), {SAMEBITS_FP32});
  }
  check_row_tensors(spec, inputs);
  const std::int64_t columns = topk_columns(spec);
  check_tensor(outputs.topk_ids, "topk_ids", num_tokens, columns, {SAMEBITS_INT32, SAMEBITS_INT64});
  check_tensor(outputs.topk_weights, "topk_weights", num_tokens, columns, {SAMEBITS_FP32, SAMEBITS_BF16});
  if (outputs.router_logits.data != nullptr) {
    check_tensor(outputs.router_logits, "outputs.router_logits", num_tokens, gate_rows(spec), {SAMEBITS_FP32});
  }
  check_bookkeeping(spec, outputs, num_tokens);
}

}  // namespace samebits
