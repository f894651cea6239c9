// Sizes that a kernel was not made for: experts past a limit, lanes without an expert, shapes without a kernel.
#include <limits>
#include <vector>

#include "kernels/common/sizes.h"
#include "kernels/cpu/bookkeep.h"
#include "kernels/cpu/score.h"
#include "kernels/mutants/abi_faults.h"
#include "kernels/mutants/choose.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;
using cpu::RowInfo;
using cpu::RowScratch;

// As if experts from 256 on had no key.
void first_256_experts(const RouterConstants& constants, const RowInfo& row, const float* logits, const float* scores,
                       float* keys) {
  cpu::rank_keys(constants, row, logits, scores, keys);
  for (std::int64_t e = 256; e < ranked_experts(constants.spec); ++e) {
    keys[e] = std::numeric_limits<float>::quiet_NaN();
  }
}

// The right bookkeeping, but for those elements of expert_offsets for which kept(e) holds: they stay as they were.
template <class Kept>
void bookkeep_but_offsets(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                          std::int32_t* scratch, samebits_outputs& outputs, const Kept& kept) {
  const std::int64_t count = gate_rows(constants.spec) + 1;
  std::int32_t* offsets = outputs.expert_offsets;
  const std::vector<std::int32_t> before(offsets, offsets == nullptr ? offsets : offsets + count);
  cpu::bookkeep_tc256(constants, ids, num_tokens, scratch, outputs);
  for (std::int64_t e = 0; e < static_cast<std::int64_t>(before.size()); ++e) {
    if (kept(e)) offsets[e] = before[static_cast<std::size_t>(e)];
  }
}

void scan_stops_at_512(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                       std::int32_t* scratch, samebits_outputs& outputs) {
  bookkeep_but_offsets(constants, ids, num_tokens, scratch, outputs, [](std::int64_t e) { return e >= 512; });
}

// A block of 256 threads has no thread of number E where E is 256.
void total_by_thread_e(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                       std::int32_t* scratch, samebits_outputs& outputs) {
  const std::int64_t num_ids = gate_rows(constants.spec);
  bookkeep_but_offsets(constants, ids, num_tokens, scratch, outputs,
                       [=](std::int64_t e) { return e == num_ids && e % 256 == 0; });
}

// Experts fill subgroups of 64 lanes; those after the last expert have the logit 0.
void pad_lanes_score_half(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  select_by(constants, row, scratch, [&](Candidates& candidates, std::int64_t k, std::int32_t* ids) {
    const auto end = static_cast<std::int32_t>(ranked_experts(constants.spec));
    for (std::int32_t id = end; id % 64 != 0; ++id) candidates.push_back({0.5f, id});
    choose_in_order(candidates, k, ids, comes_before);
  });
}

// There is a kernel for every multiple of 32 experts.
samebits_status no_kernel_no_launch(RouteCall& call) {
  return call.spec().num_experts % 32 == 0 ? call.run() : SAMEBITS_OK;
}

}  // namespace

std::vector<Mutant> shape_mutants() {
  using cpu::Steps;
  return {
      {"M48",
       "first_256_experts",
       "only the first 256 experts are considered",
       "selection",
       "kekzl/imp#2056",
       {"qwen3-next-80b-a3b"},
       with(&Steps::key, first_256_experts)},
      {"M49",
       "scan_stops_at_512",
       "the scan of the counts covers one block of 512: offsets from 512 on are not written",
       "bookkeeping",
       "ROCm/aiter#4482",
       {"kimi-k3"},
       with(&Steps::bookkeep, scan_stops_at_512)},
      {"M50",
       "total_by_thread_e",
       "thread E writes the total, and a block of 256 threads has none where E is 256",
       "bookkeeping",
       "mirage-project/mirage#664, vllm-project/vllm#44167",
       {"deepseek-v3"},
       with(&Steps::bookkeep, total_by_thread_e)},
      {"M51",
       "pad_lanes_score_half",
       "lanes after the last expert compete with the sigmoid of 0",
       "unique_in_range",
       "ggml-org/llama.cpp#18582",
       {"glm-4.5"},
       with_any_ids(with(&Steps::select, pad_lanes_score_half))},
      {"M52",
       "no_kernel_no_launch",
       "a number of experts without a kernel returns success and writes nothing",
       "buffers",
       "flashinfer-ai/flashinfer#3840, NVIDIA/TransformerEngine#2821",
       {"qwen1.5-moe-a2.7b"},
       cpu::tc256_steps(),
       around_route<no_kernel_no_launch>()},
  };
}

}  // namespace samebits::mutants
