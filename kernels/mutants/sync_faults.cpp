// Missing waits and barriers, as fixed orders of turns.
#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/cpu/bookkeep.h"
#include "kernels/mutants/abi_faults.h"
#include "kernels/mutants/schedule.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;

constexpr std::int64_t kMaxTurns = 1000;  // far more than any of these tasks takes
constexpr std::int64_t kBlockRows = 16;

// Selection as a kernel of its own: logits of up to kBlockRows rows go through the workspace.

std::size_t logits_bytes(const samebits_router& router) {
  return static_cast<std::size_t>(kBlockRows * gate_rows(router.constants.spec)) * sizeof(float);
}

Task store_even_rows_first(const std::vector<float>& logits, std::int64_t width, float* stored) {
  const auto rows = static_cast<std::int64_t>(logits.size()) / width;
  for (std::int64_t first = 0; first < 2; ++first) {
    for (std::int64_t row = first; row < rows; row += 2) {
      std::copy_n(logits.begin() + row * width, width, stored + row * width);
    }
    co_await kNextTurn;
  }
}

Task select_without_wait(RouteCall call, const samebits_tensor logits) {
  call.inputs.hidden_states = {};
  call.inputs.router_logits = logits;
  call.outputs.router_logits = {};
  call.route = samebits_route_from_logits;
  call.run();  // what the first call accepted is accepted again
  co_return;
}

samebits_status selection_overtakes_logits(RouteCall& call) {
  const std::int64_t rows = call.inputs.num_tokens, width = gate_rows(call.spec());
  if (!call.has_hidden_states() || rows <= 0 || rows > kBlockRows) return call.run();
  const samebits_tensor wanted = call.outputs.router_logits;
  std::vector<float> logits(static_cast<std::size_t>(rows * width));
  const samebits_status status = call.run();
  if (status != SAMEBITS_OK) return status;
  call.outputs.router_logits = {logits.data(), rows, width, width, SAMEBITS_FP32, 0};
  call.run();
  call.outputs.router_logits = wanted;

  auto* stored = static_cast<float*>(call.kept);
  std::array tasks = {store_even_rows_first(logits, width, stored),
                      select_without_wait(call, {stored, rows, width, width, SAMEBITS_FP32, 0})};
  run_in_turns(tasks, kMaxTurns);
  return SAMEBITS_OK;
}

// Bookkeeping as a kernel of its own, which reads the ids that the one before it stores.

struct StoredIds {
  std::vector<std::int32_t> ids;
  bool dependents_may_start = false;
};

Task store_ids(const std::int32_t* finished, std::int64_t columns, StoredIds& stored) {
  const auto rows = static_cast<std::int64_t>(stored.ids.size()) / columns;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (row == rows - 1) stored.dependents_may_start = true;
    co_await kNextTurn;
    std::copy_n(finished + row * columns, columns, stored.ids.begin() + row * columns);
  }
}

// The array belongs to a scope of the host, which ends as soon as the launches are queued; its next owner clears it.
Task queue_and_free(const std::int32_t* finished, StoredIds& stored) {
  std::copy_n(finished, stored.ids.size(), stored.ids.begin());
  stored.dependents_may_start = true;
  std::ranges::fill(stored.ids, 0);
  co_return;
}

Task bookkeep_when_started(const RouterConstants& constants, const StoredIds& stored, std::int32_t* scratch,
                           samebits_outputs& outputs) {
  while (!stored.dependents_may_start) co_await kNextTurn;
  const auto rows = static_cast<std::int64_t>(stored.ids.size()) / topk_columns(constants.spec);
  cpu::bookkeep_tc256(constants, stored.ids.data(), rows, scratch, outputs);
}

StoredIds cleared_ids(const RouterConstants& constants, std::int64_t num_tokens) {
  return {std::vector<std::int32_t>(static_cast<std::size_t>(num_tokens * topk_columns(constants.spec)), -1)};
}

void dependents_before_last_store(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                                  std::int32_t* scratch, samebits_outputs& outputs) {
  StoredIds stored = cleared_ids(constants, num_tokens);
  stored.dependents_may_start = num_tokens == 0;
  std::array tasks = {store_ids(ids, topk_columns(constants.spec), stored),
                      bookkeep_when_started(constants, stored, scratch, outputs)};
  run_in_turns(tasks, kMaxTurns + num_tokens);
}

void workspace_freed_early(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                           std::int32_t* scratch, samebits_outputs& outputs) {
  StoredIds stored = cleared_ids(constants, num_tokens);
  std::array tasks = {queue_and_free(ids, stored), bookkeep_when_started(constants, stored, scratch, outputs)};
  run_in_turns(tasks, kMaxTurns);
}

// A warp for 32 experts: reads the counts before and of its own, then clears its own for the next launch. Between the
// two, all warps must meet.
Task scan_warp(std::vector<std::int32_t>& counts, std::int64_t first, std::int32_t* offsets) {
  const auto num_ids = static_cast<std::int64_t>(counts.size()), end = std::min<std::int64_t>(first + 32, num_ids);
  std::int32_t offset = std::accumulate(counts.begin(), counts.begin() + first, 0);
  for (std::int64_t e = first; e < end; ++e) {
    offsets[e] = offset;
    offset += counts[static_cast<std::size_t>(e)];
  }
  if (end == num_ids) offsets[end] = offset;
  std::fill(counts.begin() + first, counts.begin() + end, 0);
  co_return;
}

void counts_cleared_while_read(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                               std::int32_t* scratch, samebits_outputs& outputs) {
  cpu::bookkeep_tc256(constants, ids, num_tokens, scratch, outputs);
  if (outputs.tokens_per_expert == nullptr || outputs.expert_offsets == nullptr) return;
  const std::int64_t num_ids = gate_rows(constants.spec);
  std::vector<std::int32_t> counts(outputs.tokens_per_expert, outputs.tokens_per_expert + num_ids);
  std::vector<Task> warps;
  for (std::int64_t first = 0; first < num_ids; first += 32) {
    warps.push_back(scan_warp(counts, first, outputs.expert_offsets));
  }
  run_in_turns(warps, kMaxTurns);
}

// A barrier between logits and selection: the last block to arrive makes the counter ready for the next launch, while
// the others still wait for it to be full.
Task arrive_and_wait(std::int64_t& arrived, std::int64_t num_blocks) {
  const bool is_leader = ++arrived == num_blocks;
  if (is_leader) arrived = 0;
  while (!is_leader && arrived != num_blocks) co_await kNextTurn;
}

samebits_status leader_resets_at_once(RouteCall& call) {
  const std::int64_t num_blocks = (call.inputs.num_tokens + kBlockRows - 1) / kBlockRows;
  std::int64_t arrived = 0;
  std::vector<Task> blocks;
  for (std::int64_t block = 0; block < num_blocks; ++block) blocks.push_back(arrive_and_wait(arrived, num_blocks));
  const std::int64_t waiting = run_in_turns(blocks, kMaxTurns);
  if (waiting == 0) return call.run();
  call.router->errors.set("step budget exceeded: after " + std::to_string(kMaxTurns) + " turns " +
                          std::to_string(waiting) + " of " + std::to_string(num_blocks) +
                          " blocks still wait for a barrier");
  return SAMEBITS_DEVICE_ERROR;
}

// Counters of all ids in the workspace, which every launch leaves cleared: those of the routed experts.
std::size_t counter_bytes(const samebits_router& router) {
  const auto bytes = static_cast<std::size_t>(gate_rows(router.constants.spec)) * sizeof(std::int32_t);
  return (bytes + 63) / 64 * 64;
}

samebits_status shared_counters_not_cleared(RouteCall& call) {
  const samebits_status status = call.run();
  std::int32_t* counts = call.outputs.tokens_per_expert;
  if (status != SAMEBITS_OK || counts == nullptr) return status;
  auto* counters = static_cast<std::int32_t*>(call.kept);
  for (std::int64_t e = 0; e < gate_rows(call.spec()); ++e) counts[e] = counters[e] += counts[e];
  std::fill_n(counters, ranked_experts(call.spec()), 0);
  return status;
}

}  // namespace

std::vector<Mutant> sync_mutants() {
  using cpu::Steps;
  const Steps right = cpu::tc256_steps();
  return {
      {"M80",
       "selection_overtakes_logits",
       "up to 16 rows, the selection of odd rows reads their logits before they are stored",
       "run_to_run",
       "flashinfer-ai/flashinfer#2913: a missing flag made the wait for the kernel before a no-op",
       {"qwen3-30b-a3b"},
       right,
       around_route_keeping<selection_overtakes_logits, logits_bytes, false>()},
      {"M81",
       "dependents_before_last_store",
       "the bookkeeping is let go before the ids of the last row are stored",
       "bookkeeping",
       "NVIDIA/TensorRT-LLM#13294: dependents released before the maps are stored",
       {"glm-5.3-flash"},
       with(&Steps::bookkeep, dependents_before_last_store)},
      {"M82",
       "counts_cleared_while_read",
       "without a barrier a warp clears its counts before the next warp has read them",
       "bookkeeping",
       "flashinfer-ai/flashinfer#3529: a histogram cleared while others read it",
       {"glm-5.3-flash"},
       with(&Steps::bookkeep, counts_cleared_while_read)},
      {"M83",
       "leader_resets_at_once",
       "the last block to arrive resets the counter of a barrier while the others still wait for it",
       "termination",
       "flashinfer-ai/flashinfer#3615",
       {"glm-5.3-flash"},
       right,
       around_route<leader_resets_at_once>()},
      {"M84",
       "shared_counters_not_cleared",
       "counters in the workspace are cleared for the routed experts, but used for the shared ones too",
       "history",
       "flashinfer-ai/flashinfer#2625: cleared for E, used for E + shared",
       {"inkling-small"},
       right,
       around_route_keeping<shared_counters_not_cleared, counter_bytes, true>()},
      {"M85",
       "workspace_freed_early",
       "the ids that the bookkeeping reads lie in memory that was freed when it was queued, and cleared by the next "
       "owner",
       "bookkeeping",
       "ROCm/aiter#2381: a workspace freed when the scope ends",
       {"glm-5.3-flash"},
       with(&Steps::bookkeep, workspace_freed_early)},
  };
}

}  // namespace samebits::mutants
