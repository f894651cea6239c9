// Equal keys, and selections that are right as long as there are none.
#include <algorithm>

#include "kernels/common/bits.h"
#include "kernels/mutants/choose.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;
using cpu::RowInfo;
using cpu::RowScratch;

void select_higher_id(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  select_by(constants, row, scratch, [](Candidates& candidates, std::int64_t k, std::int32_t* ids) {
    choose_in_order(candidates, k, ids, higher_id_before);
  });
}

// Experts in parts that are right by themselves; of equal winners the one of the last part is taken.
template <class Part>
void select_by_parts(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch, const Part& part) {
  select_by(constants, row, scratch, [&](Candidates& candidates, std::int64_t k, std::int32_t* ids) {
    choose_in_order(candidates, k, ids, [&](const Candidate& a, const Candidate& b) {
      const bool equal = !cpu::ranks_before(a.key, b.key) && !cpu::ranks_before(b.key, a.key);
      return equal && part(a.id) != part(b.id) ? part(a.id) > part(b.id) : comes_before(a, b);
    });
  });
}

void lane_merge_takes_last(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  select_by_parts(constants, row, scratch, [](std::int32_t id) { return id % 32; });
}

void block_merge_without_tie_rule(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  select_by_parts(constants, row, scratch, [](std::int32_t id) { return id / 64; });
}

void slots_in_discovery_order(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  cpu::select_tc256(constants, row, scratch);
  if (constants.spec.selection_method == SAMEBITS_SELECT_HASH_TABLE) return;
  std::sort(scratch.ids, scratch.ids + constants.spec.top_k);
}

// Integers in the order of the floats, -0 below +0; NaN is the least.
std::uint32_t sortable(float key) {
  const std::uint32_t bits = to_bits(key);
  if (is_nan(key)) return 0;
  return (bits & kSignBit) != 0 ? ~bits : bits | kSignBit;
}

void zeros_of_two_kinds(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  select_by(constants, row, scratch, [](Candidates& candidates, std::int64_t k, std::int32_t* ids) {
    choose_in_order(candidates, k, ids, [](const Candidate& a, const Candidate& b) {
      return sortable(a.key) != sortable(b.key) ? sortable(a.key) > sortable(b.key) : a.id < b.id;
    });
  });
}

// A radix selection: sign, exponent and 3 bits of the mantissa give the bin of the cut. Those above it are in; those in
// it go to a buffer for a quarter of the experts.
void truncated_candidates(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  select_by(constants, row, scratch, [&](Candidates& candidates, std::int64_t k, std::int32_t* ids) {
    const auto bin = [](const Candidate& candidate) { return sortable(candidate.key) >> 20; };
    Candidates sorted = candidates;
    std::ranges::sort(sorted, comes_before);
    const std::uint32_t cut = bin(sorted[static_cast<std::size_t>(k - 1)]);
    std::int64_t room = std::max(ranked_experts(constants.spec) / 4, k);
    std::erase_if(candidates, [&](const Candidate& candidate) { return bin(candidate) == cut && --room < 0; });
    choose_in_order(candidates, k, ids, comes_before);
  });
}

// The key at the cut first, as often as it occurs, then those above it while there is room.
void threshold_ties_first(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  select_by(constants, row, scratch, [](Candidates& candidates, std::int64_t k, std::int32_t* ids) {
    Candidates sorted = candidates;
    std::ranges::sort(sorted, comes_before);
    const float cut = sorted[static_cast<std::size_t>(k - 1)].key;
    std::ranges::stable_partition(candidates, [=](const Candidate& candidate) { return candidate.key == cut; });
    const auto above = std::ranges::find_if(candidates, [=](const Candidate& c) { return c.key != cut; });
    std::sort(above, candidates.end(), comes_before);
    candidates.resize(static_cast<std::size_t>(k));
    choose_in_order(candidates, k, ids, comes_before);
  });
}

}  // namespace

std::vector<Mutant> ties_mutants() {
  using cpu::Steps;
  return {
      {"M01",
       "ties_to_higher_id",
       "of equal keys the higher expert id is chosen first",
       "selection",
       "ggml-org/llama.cpp#17659",
       {"qwen3-30b-a3b"},
       with(&Steps::select, select_higher_id)},
      {"M02",
       "lane_merge_takes_last",
       "lanes hold every 32nd expert; of equal winners of two lanes the later lane's is taken",
       "selection",
       "",
       {"qwen3-30b-a3b"},
       with(&Steps::select, lane_merge_takes_last)},
      {"M03",
       "block_merge_without_tie_rule",
       "blocks of 64 experts are right; of equal winners of two blocks the one that comes last is taken",
       "selection",
       "",
       {"qwen3-30b-a3b"},
       with(&Steps::select, block_merge_without_tie_rule)},
      {"M04",
       "slots_in_discovery_order",
       "slots hold the right experts in the order in which a scan finds them",
       "order",
       "",
       {"qwen3-30b-a3b"},
       with(&Steps::select, slots_in_discovery_order)},
      {"M05",
       "zeros_of_two_kinds",
       "keys are mapped to integers in which -0 lies below +0",
       "selection",
       "oneapi-src/oneDPL#2713, NVIDIA/cub#218",
       {"gpt-oss-20b"},
       with(&Steps::select, zeros_of_two_kinds)},
      {"M06",
       "truncated_candidates",
       "keys that share the leading bits of the key at the cut go to a buffer for E / 4; the rest are dropped",
       "selection",
       "flashinfer-ai/flashinfer#2605, sgl-project/sglang#36807",
       {"qwen3-30b-a3b"},
       with(&Steps::select, truncated_candidates)},
      {"M07",
       "threshold_ties_first",
       "all keys equal to the one at the cut are emitted before those above it",
       "selection",
       "ggml-org/llama.cpp#17659",
       {"qwen3-30b-a3b"},
       with(&Steps::select, threshold_ties_first)},
  };
}

}  // namespace samebits::mutants
