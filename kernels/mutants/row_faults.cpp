// Row counts: limits of a grid and of an index, and another kernel past a limit. Limits are small here, so that small
// calls meet them.
#include <algorithm>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/common/sizes.h"
#include "kernels/cpu/bookkeep.h"
#include "kernels/cpu/gate_weight.h"
#include "kernels/cpu/logits.h"
#include "kernels/cpu/simd.h"
#include "kernels/mutants/abi_faults.h"
#include "kernels/mutants/above_rows.h"
#include "kernels/mutants/choose.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;
using cpu::RowInfo;
using cpu::RowScratch;

// The grid has 32 blocks in y, one a row.
samebits_status rows_on_grid_y(RouteCall& call) {
  constexpr std::int64_t kGridRows = 32;
  samebits_inputs& inputs = call.inputs;
  samebits_outputs& outputs = call.outputs;
  inputs.num_tokens = std::min(inputs.num_tokens, kGridRows);
  for (samebits_tensor* tensor : {&inputs.hidden_states, &inputs.router_logits, &outputs.topk_ids,
                                  &outputs.topk_weights, &outputs.router_logits}) {
    tensor->rows = std::min(tensor->rows, kGridRows);
  }
  for (samebits_tensor* tensor : {&inputs.token_ids, &inputs.row_class}) {
    tensor->cols = std::min(tensor->cols, kGridRows);
  }
  return call.run();
}

// row * E in an integer of 15 bits and a sign, as 2^23 rows of 256 experts in one of 31: given logits come from where
// the index wraps to.
samebits_status wrapped_index(RouteCall& call) {
  samebits_tensor& given = call.inputs.router_logits;
  if (call.has_hidden_states() || given.data == nullptr || given.cols != gate_rows(call.spec())) return call.run();
  std::vector<float> read;
  for (std::int64_t row = 0; row < call.inputs.num_tokens; ++row) {
    const float* from = static_cast<const float*>(given.data) + ((row * given.row_stride) & 0x7fff);
    read.insert(read.end(), from, from + given.cols);
  }
  given.data = read.data();
  given.row_stride = given.cols;
  return call.run();
}

void select_higher_id(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  select_by(constants, row, scratch, [](Candidates& candidates, std::int64_t k, std::int32_t* ids) {
    choose_in_order(candidates, k, ids, higher_id_before);
  });
}

// Each block of 16 rows clears the histogram that all of them use: the last one's counts are left.
void one_histogram(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                   std::int32_t* scratch, samebits_outputs& outputs) {
  constexpr std::int64_t kBlockRows = 16;
  cpu::bookkeep_tc256(constants, ids, num_tokens, scratch, outputs);
  if (outputs.tokens_per_expert == nullptr || num_tokens == 0) return;
  const std::int64_t columns = topk_columns(constants.spec);
  std::fill_n(outputs.tokens_per_expert, gate_rows(constants.spec), 0);
  for (std::int64_t slot = (num_tokens - 1) / kBlockRows * kBlockRows * columns; slot < num_tokens * columns; ++slot) {
    if (ids[slot] >= 0) ++outputs.tokens_per_expert[ids[slot]];
  }
}

constexpr std::int64_t kLargestUnsplitBatch = 16;

// Like a GEMM that splits K for some batch sizes: each half is right by itself, their sum has another order.
void split_logits(const RouterConstants& constants, const std::uint16_t* hidden_states, std::int64_t row_stride,
                  std::int64_t num_rows, std::int64_t num_tokens, float* logits, std::int64_t logits_stride) {
  const cpu::GateWeight& weight = *constants.gate_weight;
  const std::int64_t hidden_size = weight.hidden_size(), gate_rows = weight.gate_rows();
  const std::int64_t middle = (hidden_size / 2 + cpu::kStepWidth - 1) / cpu::kStepWidth * cpu::kStepWidth;
  if (num_tokens <= kLargestUnsplitBatch || middle == 0 || middle >= hidden_size) {
    cpu::logits_tc256(constants, hidden_states, row_stride, num_rows, num_tokens, logits, logits_stride);
    return;
  }
  std::vector<float> second(static_cast<std::size_t>(num_rows * gate_rows));
  cpu::multiply_rows(weight, hidden_states, row_stride, num_rows, 0, middle, logits, logits_stride);
  cpu::multiply_rows(weight, hidden_states, row_stride, num_rows, middle, hidden_size, second.data(), gate_rows);
  for (std::int64_t r = 0; r < num_rows; ++r) {
    float* row = logits + r * logits_stride;
    for (std::int64_t e = 0; e < gate_rows; ++e) {
      row[e] = canonical(row[e] + second[static_cast<std::size_t>(r * gate_rows + e)]);
    }
    cpu::finish_logits(constants, row);
  }
}

}  // namespace

std::vector<Mutant> row_mutants() {
  using cpu::Steps;
  return {
      {"M53",
       "rows_on_grid_y",
       "rows past the largest grid are not written (32 instead of 65,535)",
       "buffers",
       "ggml-org/llama.cpp#16849, ggml-org/llama.cpp#13384",
       {"qwen3-30b-a3b"},
       cpu::tc256_steps(),
       around_route<rows_on_grid_y>()},
      {"M54",
       "wrapped_index",
       "row * E overflows (15 bits instead of 31), and another row is read",
       "batch_invariance",
       "sgl-project/sglang#29605",
       {"kimi-k3"},
       cpu::tc256_steps(),
       around_route<wrapped_index>()},
      {"M55",
       "other_tie_rule_above_16_rows",
       "calls of more than 16 rows take the higher id of equal keys",
       "batch_invariance",
       "ROCm/aiter#2359",
       {"qwen3-30b-a3b"},
       cpu::tc256_steps(),
       above_rows<16, [] { return with(&Steps::select, select_higher_id); }>()},
      {"M56",
       "one_histogram",
       "blocks of 16 rows clear and count in the same histogram",
       "bookkeeping",
       "trymirai/uzu#715",
       {"qwen3-30b-a3b"},
       with(&Steps::bookkeep, one_histogram)},
      {"M87",
       "row_dependent_split",
       "more than 16 rows: the sum over H is cut in two halves that are added at the end",
       "batch_invariance",
       "cuBLAS on H100 and H200 splits K for small batches only; SGLang's tiny router GEMM stops at 16 rows",
       {"glm-5.3-flash"},
       with(&Steps::logits, split_logits)},
  };
}

}  // namespace samebits::mutants
