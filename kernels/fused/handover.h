// How the blocks that multiply hand their sums to the block that selects, within one launch (docs/kernels.md).
//
// A word is one sum, and says by its bits whether it has come: kNoWord is no result of a tensor-core step or of fadd,
// whose only NaN is 0x7fffffff. There are two sides, used by launches in turn: while one is written and read, all words
// of the other go back to kNoWord, whose last writers ended before this launch. So a launch leaves nothing behind, even
// if a block that selects did not wait.
#pragma once

#include <cstdint>

#include "kernels/cuda/view.h"

namespace samebits::cuda {

inline constexpr std::uint32_t kNoWord = 0xffffffffu;
inline constexpr std::int64_t kWordsOfSide = std::int64_t{1} << 18;

// Every block of a launch adds to `arrivals`, after it has read it: the first one as much as makes kArrivals of all. So
// whenever a block reads it, arrivals / kArrivals is the number of the launch.
inline constexpr std::uint32_t kArrivals = 4096;

// In the header of the workspace, zero at first; the words follow, kNoWord at first.
struct alignas(16) HandoverState {
  std::uint32_t arrivals;
  std::uint32_t used[2];    // words of each side that its last launch wrote
  std::uint32_t rows_done;  // of this launch, where it does the bookkeeping; 0 before and after
};

struct Handover {
  HandoverState* state;
  std::uint32_t* words;  // [2][kWordsOfSide]; few_words.cuh
  // A block that selects looks this often for its words; then it computes the row itself. 0: at once.
  std::int32_t patience;
};

}  // namespace samebits::cuda
