// Kernels for many rows that are right only in the usual call.
#include <cstdint>
#include <vector>

#include "kernels/common/sizes.h"
#include "kernels/cpu/router.h"
#include "kernels/mutants/abi_faults.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

constexpr std::int64_t kManyRows = 32, kRowsOfABlock = 256;

samebits_status spoil_rows(RouteCall& call, bool spoiled, std::int64_t first = 0) {
  const samebits_status status = call.run();
  if (status != SAMEBITS_OK || !spoiled) return status;
  for (std::int64_t r = first; r < call.inputs.num_tokens; ++r) spoil_weight(call.outputs, r);
  return status;
}

bool has_int64_ids(const RouteCall& call) {
  return call.outputs.topk_ids.dtype == SAMEBITS_INT64;
}

bool has_bf16_weights(const RouteCall& call) {
  return call.outputs.topk_weights.dtype == SAMEBITS_BF16;
}

samebits_status wrong_without_logits(RouteCall& call) {
  const bool fused = call.has_hidden_states() && call.outputs.router_logits.data == nullptr;
  return spoil_rows(call, fused && call.inputs.num_tokens > kManyRows);
}

template <std::int64_t kRows>
samebits_status dense_input(RouteCall& call) {
  samebits_tensor& input = call.has_hidden_states() ? call.inputs.hidden_states : call.inputs.router_logits;
  if (call.inputs.num_tokens > kRows) input.row_stride = input.cols;
  return call.run();
}

samebits_status dense_given_logits(RouteCall& call) {
  return call.has_hidden_states() ? call.run() : dense_input<kManyRows>(call);
}

samebits_status wide_stride_folded(RouteCall& call) {
  samebits_tensor& input = call.has_hidden_states() ? call.inputs.hidden_states : call.inputs.router_logits;
  if (input.row_stride >= 2 * input.cols && input.cols > 0)
    input.row_stride = input.cols + input.row_stride % input.cols;
  return call.run();
}

samebits_status wrong_bf16_weights(RouteCall& call) {
  return spoil_rows(call, has_bf16_weights(call) && call.inputs.num_tokens > kManyRows);
}

samebits_status wrong_with_int64_ids(RouteCall& call) {
  return spoil_rows(call, has_int64_ids(call) && call.inputs.num_tokens > kManyRows);
}

samebits_status wrong_with_both_types(RouteCall& call) {
  return spoil_rows(call, has_int64_ids(call) && has_bf16_weights(call));
}

samebits_status count_dropped_with_int64_ids(RouteCall& call) {
  if (has_int64_ids(call) && call.inputs.num_tokens > kManyRows) call.inputs.num_valid_rows = nullptr;
  return call.run();
}

samebits_status last_row_of_whole_tiles(RouteCall& call) {
  const std::int64_t rows = call.inputs.num_tokens;
  return spoil_rows(call, rows > 64 && rows < 128 && rows % 16 == 0, rows - 1);
}

samebits_status with_valid_rows(RouteCall& call, bool changed, std::int32_t count) {
  if (changed) call.inputs.num_valid_rows = &count;
  return call.run();
}

bool has_count(const RouteCall& call) {
  return call.inputs.num_valid_rows != nullptr && call.inputs.num_tokens > 3;
}

samebits_status count_above_4_rows_is_none(RouteCall& call) {
  return with_valid_rows(call, has_count(call) && *call.inputs.num_valid_rows > call.inputs.num_tokens, 0);
}

samebits_status negative_count_of_4_rows_is_all(RouteCall& call) {
  const bool negative = has_count(call) && *call.inputs.num_valid_rows < 0;
  return with_valid_rows(call, negative, static_cast<std::int32_t>(call.inputs.num_tokens));
}

samebits_status count_above_256_is_all(RouteCall& call) {
  const bool many = has_count(call) && *call.inputs.num_valid_rows > kRowsOfABlock;
  return with_valid_rows(call, many, static_cast<std::int32_t>(call.inputs.num_tokens));
}

}  // namespace

std::vector<Mutant> unlisted_many_row_mutants() {
  const cpu::Steps& good = cpu::tc256_steps();
  return {
      {"U100",
       "many_rows_without_logits",
       "above 32 rows weights are wrong where the logits are not wanted",
       "batch_invariance",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<wrong_without_logits>()},
      {"U101",
       "stride_dropped_above_32_rows",
       "above 32 rows the input is read as if its rows had no gaps",
       "layout",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<dense_input<kManyRows>>()},
      {"U102",
       "stride_dropped_above_256_rows",
       "above 256 rows the input is read as if its rows had no gaps",
       "layout",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<dense_input<kRowsOfABlock>>()},
      {"U103",
       "given_stride_dropped",
       "above 32 rows given logits are read as if their rows had no gaps",
       "layout",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<dense_given_logits>()},
      {"U104",
       "wide_stride_folded",
       "a row stride of twice the columns or more loses whole rows",
       "layout",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<wide_stride_folded>()},
      {"U105",
       "many_rows_bf16_weights",
       "above 32 rows weights wanted as bf16 are wrong",
       "layout",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<wrong_bf16_weights>()},
      {"U106",
       "many_rows_int64_ids",
       "above 32 rows weights are wrong where ids have 64 bits",
       "layout",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<wrong_with_int64_ids>()},
      {"U107",
       "both_types_at_once",
       "int64 ids together with bf16 weights give wrong weights",
       "layout",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<wrong_with_both_types>()},
      {"U108",
       "count_dropped_with_int64_ids",
       "above 32 rows the count of valid rows is not read where ids have 64 bits",
       "layout",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<count_dropped_with_int64_ids>()},
      {"U109",
       "last_row_of_whole_tiles",
       "at 80, 96 and 112 rows the last row is wrong",
       "batch_invariance",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<last_row_of_whole_tiles>()},
      {"U110",
       "count_above_4_rows_is_none",
       "from four rows on a count of valid rows above T makes no row valid",
       "padding",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<count_above_4_rows_is_none>()},
      {"U111",
       "negative_count_of_4_rows_is_all",
       "from four rows on a negative count makes all rows valid",
       "padding",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<negative_count_of_4_rows_is_all>()},
      {"U112",
       "count_above_256_is_all",
       "a count of valid rows above 256 makes all rows valid",
       "padding",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<count_above_256_is_all>()},
  };
}

}  // namespace samebits::mutants
