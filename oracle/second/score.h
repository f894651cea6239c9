// Scores from finished logits.
#pragma once

#include <span>
#include <vector>

#include "oracle/second/ball.h"
#include "oracle/second/functions.h"
#include "oracle/second/row.h"

namespace samebits::second {

// Scores before selection, of all G rows of the gate; softmax runs over the R that compete, and shared experts then
// have none (0).
std::vector<Ball> scores(const RouterSpec& spec, const Functions& functions, const std::vector<Ball>& logits);

// after_topk and sparsemixer: the scores of the chosen alone, in slot order; `chosen` holds ids of all K columns, those
// of shared experts in the gate last. `certain` becomes false where sparsemixer's threshold is undecided.
std::vector<Ball> chosen_scores(const RouterSpec& spec, const Functions& functions, const std::vector<Ball>& logits,
                                std::span<const std::int32_t> chosen, bool& certain);

// Whether scores exist for the chosen only.
bool scores_the_chosen(const RouterSpec& spec);

}  // namespace samebits::second
