// NaN and Inf: searches that lose their way, lanes without an expert, a normaliser that NaN reaches.
#include <algorithm>
#include <limits>

#include "kernels/common/bits.h"
#include "kernels/cpu/score.h"
#include "kernels/mutants/choose.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;
using cpu::RowInfo;
using cpu::RowScratch;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr std::int32_t kLanes = 32;

// Nothing is above a NaN that comes first.
void argmax_from_first(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  select_by(constants, row, scratch, [](Candidates& candidates, std::int64_t k, std::int32_t* ids) {
    for (std::int64_t c = 0; c < k; ++c) {
      Candidate* best = &candidates.front();
      for (Candidate& candidate : candidates) {
        if (candidate.key > best->key) best = &candidate;
      }
      ids[c] = best->id;
      best->key = -kInf;
    }
  });
}

// Nothing equals a maximum that is NaN: the id is then that of no lane.
void winner_by_equality(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  select_by(constants, row, scratch, [&](Candidates& candidates, std::int64_t k, std::int32_t* ids) {
    choose_by_rounds(candidates, k, ids, [](float) { return from_bits(kNaNBits); });
    for (std::int64_t c = 0; c < k; ++c) {
      if (is_nan(scratch.keys[ids[c]])) ids[c] = static_cast<std::int32_t>(gate_rows(constants.spec)) + 1;
    }
  });
}

void no_winner_is_minus_one(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  select_by(constants, row, scratch, [](Candidates& candidates, std::int64_t k, std::int32_t* ids) {
    choose_above(candidates, k, ids, -kInf, -kInf);
  });
}

// Experts fill warps of 32 lanes; those after the last expert compete with `pad`.
template <class Pad>
void select_with_pads(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch, const Pad& pad) {
  select_by(constants, row, scratch, [&](Candidates& candidates, std::int64_t k, std::int32_t* ids) {
    const auto end = static_cast<std::int32_t>(ranked_experts(constants.spec));
    for (std::int32_t id = end; id % kLanes != 0; ++id) candidates.push_back(pad(id));
    choose_in_order(candidates, k, ids, comes_before);
  });
}

void pad_lanes_with_id_zero(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  select_with_pads(constants, row, scratch, [](std::int32_t) { return Candidate{-kInf, 0}; });
}

void pad_lanes_lowest_finite(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  select_with_pads(constants, row, scratch, [](std::int32_t id) {
    return Candidate{std::numeric_limits<float>::lowest(), id};
  });
}

// One NaN makes the sum NaN, then every quotient, and then NaN becomes 0.
void sanitised_after_sum(const RouterConstants& constants, const float* logits, float* scores) {
  cpu::score_experts(constants, logits, scores);
  const std::int64_t n = gate_rows(constants.spec);
  const bool softmax = constants.spec.score_func == SAMEBITS_SCORE_SOFTMAX;
  if (softmax && std::any_of(logits, logits + n, is_nan)) std::fill_n(scores, n, 0.0f);
}

// The cursor of a lane never leaves a NaN: what else the lane holds is chosen only when other lanes have no more.
void lane_stuck_on_nan(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  select_by(constants, row, scratch, [](Candidates& candidates, std::int64_t k, std::int32_t* ids) {
    bool stuck[kLanes] = {};
    for (const Candidate& candidate : candidates) stuck[candidate.id % kLanes] |= is_nan(candidate.key);
    choose_in_order(candidates, k, ids, [&](const Candidate& a, const Candidate& b) {
      const bool a_stuck = stuck[a.id % kLanes], b_stuck = stuck[b.id % kLanes];
      return a_stuck != b_stuck ? b_stuck : comes_before(a, b);
    });
  });
}

}  // namespace

std::vector<Mutant> non_finite_mutants() {
  using cpu::Steps;
  return {
      {"M08",
       "argmax_from_first",
       "each slot takes an argmax by > that starts at the first expert, without a guard for NaN",
       "unique_in_range",
       "vllm-project/vllm#39391",
       {"qwen3-30b-a3b"},
       with(&Steps::select, argmax_from_first)},
      {"M09",
       "winner_by_equality",
       "the winner is the expert whose key equals the maximum; where that is NaN the id is past the last expert",
       "unique_in_range",
       "sgl-project/sglang#30079, lightseekorg/tokenspeed#605",
       {"qwen3-30b-a3b"},
       with_any_ids(with(&Steps::select, winner_by_equality))},
      {"M10",
       "no_winner_is_minus_one",
       "the index starts at -1 and the maximum at -Inf: keys of -Inf or NaN give the id -1",
       "unique_in_range",
       "flashinfer-ai/flashinfer#1347",
       {"granite-4.0-h-small"},
       with_any_ids(with(&Steps::select, no_winner_is_minus_one))},
      {"M11",
       "pad_lanes_with_id_zero",
       "lanes after the last expert compete with -Inf and id 0, before real experts of -Inf",
       "unique_in_range",
       "vllm-project/vllm#32058",
       {"granite-4.0-h-small"},
       with(&Steps::select, pad_lanes_with_id_zero)},
      {"M12",
       "pad_lanes_lowest_finite",
       "lanes after the last expert compete with the lowest finite value, before real experts of -Inf",
       "unique_in_range",
       "microsoft/onnxruntime#28980",
       {"granite-4.0-h-small"},
       with_any_ids(with(&Steps::select, pad_lanes_lowest_finite))},
      {"M13",
       "sanitised_after_sum",
       "NaN logits are replaced after the sum of the softmax, so that one NaN makes every score 0",
       "selection",
       "sgl-project/sglang#30079",
       {"olmoe-1b-7b"},
       with(&Steps::score, sanitised_after_sum)},
      {"M14",
       "lane_stuck_on_nan",
       "a lane holds every 32nd expert; its cursor does not pass a NaN, which hides the lane's other experts",
       "selection",
       "ROCm/aiter#4247",
       {"deepseek-v4-flash"},
       with(&Steps::select, lane_stuck_on_nan)},
  };
}

}  // namespace samebits::mutants
