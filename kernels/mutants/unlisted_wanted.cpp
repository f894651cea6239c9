// Calls that want some outputs only, another block size or more slots than usual, and wrong calls that are served.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/common/sizes.h"
#include "kernels/cpu/router.h"
#include "kernels/mutants/abi_faults.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

samebits_status block_of_16_or_64(RouteCall& call) {
  const samebits_status status = call.run();
  const samebits_outputs& out = call.outputs;
  const bool usual = out.block_size == 0 || out.block_size == 16 || out.block_size == 64;
  if (status == SAMEBITS_OK && !usual && out.num_tokens_post_padded != nullptr) ++*out.num_tokens_post_padded;
  return status;
}

samebits_status blocks_need_the_plain_form(RouteCall& call) {
  const samebits_status status = call.run();
  const bool alone = call.outputs.sorted_token_ids != nullptr && call.outputs.slot_of_position == nullptr;
  if (status == SAMEBITS_OK && alone && call.inputs.num_tokens > 0) ++*call.outputs.sorted_token_ids;
  return status;
}

samebits_status counts_need_the_logits(RouteCall& call) {
  const samebits_status status = call.run();
  const bool fused = call.has_hidden_states() && call.outputs.router_logits.data == nullptr;
  const bool counted = call.outputs.tokens_per_expert != nullptr && call.inputs.num_tokens > 32;
  if (status == SAMEBITS_OK && fused && counted) ++*call.outputs.tokens_per_expert;
  return status;
}

samebits_status slots_need_int32_ids(RouteCall& call) {
  const samebits_status status = call.run();
  const bool wide = call.outputs.topk_ids.dtype == SAMEBITS_INT64 && call.inputs.num_tokens > 32;
  if (status == SAMEBITS_OK && wide && call.outputs.slot_of_position != nullptr) --*call.outputs.slot_of_position;
  return status;
}

samebits_status counts_in_10_bits(RouteCall& call) {
  const samebits_status status = call.run();
  std::int32_t* counts = call.outputs.tokens_per_expert;
  for (std::int64_t e = 0; status == SAMEBITS_OK && counts != nullptr && e < gate_rows(call.spec()); ++e) {
    counts[e] = std::min(counts[e], 1023);
  }
  return status;
}

samebits_status weights_columns_unread(RouteCall& call) {
  call.outputs.topk_weights.cols = call.columns();
  return call.run();
}

samebits_status token_ids_columns_unread(RouteCall& call) {
  call.inputs.token_ids.cols = call.inputs.num_tokens;
  return call.run();
}

samebits_status given_logits_not_returned(RouteCall& call) {
  if (!call.has_hidden_states()) call.outputs.router_logits.data = nullptr;
  return call.run();
}

samebits_status given_logits_through_bf16(RouteCall& call) {
  const samebits_status status = call.run();
  const samebits_tensor& logits = call.outputs.router_logits;
  if (status != SAMEBITS_OK || call.has_hidden_states() || logits.data == nullptr) return status;
  for (std::int64_t row = 0; row < call.valid_rows(); ++row) {
    std::uint32_t* values = static_cast<std::uint32_t*>(logits.data) + row * logits.row_stride;
    for (std::int64_t e = 0; e < logits.cols; ++e) values[e] &= 0xffff0000u;
  }
  return status;
}

samebits_status row_class_unchecked(RouteCall& call) {
  call.inputs.row_class.cols = call.inputs.num_tokens;
  call.inputs.row_class.dtype = SAMEBITS_INT32;
  return call.run();
}

}  // namespace

std::vector<Mutant> unlisted_wanted_mutants() {
  const cpu::Steps& good = cpu::tc256_steps();
  return {
      {"U113",
       "block_of_16_or_64",
       "the end of the block form is right for blocks of 16 and 64 only",
       "bookkeeping",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<block_of_16_or_64>()},
      {"U114",
       "blocks_need_the_plain_form",
       "the block form is wrong where the plain permutation is not wanted",
       "bookkeeping",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<blocks_need_the_plain_form>()},
      {"U115",
       "counts_need_the_logits",
       "above 32 rows the counts are wrong where the logits are not wanted",
       "bookkeeping",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<counts_need_the_logits>()},
      {"U116",
       "slots_need_int32_ids",
       "above 32 rows the slots by expert are wrong where ids have 64 bits",
       "bookkeeping",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<slots_need_int32_ids>()},
      {"U117",
       "counts_in_10_bits",
       "the count of an expert stops at 1023",
       "bookkeeping",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<counts_in_10_bits>()},
      {"U118",
       "weights_columns_unread",
       "the columns of the weights are taken from the spec, whatever the call says",
       "total_dispatch",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<weights_columns_unread>()},
      {"U119",
       "token_ids_columns_unread",
       "the number of token ids is taken from T, whatever the call says",
       "total_dispatch",
       "",
       {"deepseek-v4-flash", "0"},
       good,
       around_route<token_ids_columns_unread>()},
      {"U120",
       "row_class_unchecked",
       "type and number of the classes are not checked",
       "total_dispatch",
       "",
       {"deepseek-v4.1-flash"},
       good,
       around_route<row_class_unchecked>()},
      {"U128",
       "given_logits_not_returned",
       "given logits that are wanted are not written",
       "buffers",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<given_logits_not_returned>()},
      {"U129",
       "given_logits_through_bf16",
       "given logits that are wanted lose the bits that bf16 has not",
       "precision",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<given_logits_through_bf16>()},
  };
}

}  // namespace samebits::mutants
