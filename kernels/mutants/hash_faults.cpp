// Lookups in the hash table, and what becomes of its experts.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/common/sizes.h"
#include "kernels/common/tensor_check.h"
#include "kernels/cpu/select.h"
#include "kernels/cpu/weigh.h"
#include "kernels/mutants/abi_faults.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;
using cpu::RowInfo;
using cpu::RowScratch;

// The call with each token id replaced by kRow(id, vocab_size).
template <std::int64_t (*kRow)(std::int64_t token_id, std::int64_t vocab_size)>
samebits_status with_rows(RouteCall& call) {
  const samebits_tensor given = call.inputs.token_ids;
  const bool is_integer = given.dtype == SAMEBITS_INT32 || given.dtype == SAMEBITS_INT64;
  if (given.data == nullptr || !is_integer) return call.run();
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < given.cols; ++i) rows.push_back(kRow(element(given, i), call.spec().hash_vocab_size));
  call.inputs.token_ids = {rows.data(), 1, given.cols, given.cols, SAMEBITS_INT64, 0};
  return call.run();
}

std::int64_t from_the_end(std::int64_t token_id, std::int64_t vocab_size) {
  return token_id < 0 && token_id >= -vocab_size ? token_id + vocab_size : token_id;
}

// Memory behind the table stands for: the table again.
std::int64_t past_the_end(std::int64_t token_id, std::int64_t vocab_size) {
  return token_id >= vocab_size ? token_id % vocab_size : token_id;
}

void hash_ids_by_score(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  cpu::select_tc256(constants, row, scratch);
  if (constants.spec.selection_method != SAMEBITS_SELECT_HASH_TABLE) return;
  const float* scores = scratch.scores;
  std::sort(scratch.ids, scratch.ids + constants.spec.top_k, [scores](std::int32_t a, std::int32_t b) {
    return cpu::ranks_before(scores[a], scores[b]) || (a < b && !cpu::ranks_before(scores[b], scores[a]));
  });
}

void uniform_hash_weights(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  if (constants.spec.selection_method == SAMEBITS_SELECT_HASH_TABLE) {
    std::fill_n(scratch.chosen_values, topk_columns(constants.spec), 1.0f);
    std::fill_n(scratch.chosen_logits, topk_columns(constants.spec), 0.0f);
  }
  cpu::weigh_tc256(constants, scratch, weights);
}

}  // namespace

std::vector<Mutant> hash_mutants() {
  using cpu::Steps;
  const Steps right = cpu::tc256_steps();
  return {
      {"M67",
       "negative_index_wraps",
       "the row of the table for token id -1 is the last one, as of table[-1] in Python",
       "hash_routing",
       "vllm-project/vllm#46408, #42034: table[-1] wraps to the last expert",
       {"deepseek-v4-flash", "0"},
       right,
       around_route<with_rows<from_the_end>>()},
      {"M90",
       "token_id_not_checked",
       "a token id past the table is looked up; what lies there is the table once more",
       "hash_routing",
       "vllm-project/vllm#50844",
       {"deepseek-v4-flash", "0"},
       right,
       around_route<with_rows<past_the_end>>()},
      {"M91",
       "hash_ids_by_score",
       "ids from a hash table are sorted by score",
       "order",
       "hash layers of DeepSeek-V4: ids in table order",
       {"deepseek-v4-flash", "0"},
       with(&Steps::select, hash_ids_by_score)},
      {"M92",
       "uniform_hash_weights",
       "experts from a hash table all get the same weight",
       "weights",
       "pie #480: 1/k instead of the renormalised scores of the chosen",
       {"deepseek-v4-flash", "0"},
       with(&Steps::weigh, uniform_hash_weights)},
  };
}

}  // namespace samebits::mutants
