// Hazards of places and counts: winners, ties and NaN where lanes, warps and blocks begin and end, biases that overrule
// the scores, and row counts that equal other sizes.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "properties/generators/hazard_parts.h"

namespace samebits::properties {
namespace {

using oracle::RouterSpec;

std::int64_t competing(const CaseDescription& d) {
  return d.num_experts + d.zero_experts;
}

// Ids on both sides of the ends of warps, blocks of 256 and 512 and of the whole row, the last first.
std::vector<std::int64_t> edge_ids(const CaseDescription& d) {
  constexpr std::array<std::int64_t, 18> kEdges = {0,   31,  32,  63,  64,  127, 128, 159, 160,
                                                   255, 256, 257, 511, 512, 513, 767, 768, 1023};
  const std::int64_t count = competing(d);
  std::vector<std::int64_t> ids{count - 1};
  for (const std::int64_t edge : kEdges) {
    if (edge < count - 1) ids.push_back(edge);
  }
  return ids;
}

// Even rows: the k winners lie at edges, another one comes first in each. Odd rows: two tied at the cut, in the last
// slot alone, both at edges where there are that many.
void edge_winners(const RouterSpec&, const Draw& draw, CaseDescription& d) {
  constexpr std::int64_t kRows = 16;
  logits(d, LogitsFamily::kNormal, -8.0f, 0.5f);
  no_bias(d);
  const std::vector<std::int64_t> edges = edge_ids(d);
  const std::int64_t count = competing(d), num_edges = std::ssize(edges);
  const auto first = static_cast<std::int64_t>(choose(draw, 16, edges.size()));
  for (std::int64_t row = 0; row < std::min(kRows, d.num_tokens); ++row) {
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < num_edges + count && std::ssize(ids) < std::min(count, d.top_k + row % 2); ++i) {
      const std::int64_t id =
          i < num_edges ? edges[static_cast<std::size_t>((first + row / 2 + i) % num_edges)] : i - num_edges;
      if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
    }
    // The tied ones are the first two.
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const bool tied = row % 2 == 1 && i < 2;
      plant_logit(d, row, ids[i], tied ? -1.0f : -0.5f + 0.0625f * static_cast<float>(i));
    }
  }
}

// Equal scores, so the bias alone ranks: keys 0, 1 or 2 fp32 steps apart at the offsets of trained checkpoints and
// where a step is coarse or fine.
void bias_gaps(const RouterSpec&, const Draw& draw, CaseDescription& d) {
  constexpr std::array<float, 10> kOffsets = {7.0f, 11.3f, 12.0f, 35.0f, 0.1f, 1.0f, 0.5f, -0.75f, 8.0f, -8.0f};
  const float offset = kOffsets[choose(draw, 16, kOffsets.size())];
  // A key is the offset and a score, up to 1: one step of a value in the middle.
  const float key = std::fabs(offset + 0.5f);
  const float step = std::nextafter(key, 100.0f) - key;
  logits(d, LogitsFamily::kAllEqual);
  switch (choose(draw, 24, 3)) {
    case 0:
      return bias(d, BiasFamily::kStepped, offset, step);
    case 1:
      return bias(d, BiasFamily::kStepped, offset, 2.0f * step);
    default:
      return bias(d, BiasFamily::kFewDistinct, offset, 4.0f * step);
  }
}

// The experts with the smallest scores get a bias that puts them first: keys and scores rank in opposite order.
void bias_inverts(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  const std::int64_t count = competing(d), favoured = std::min(count, d.top_k + 1);
  usual_bias(spec, draw, d);
  for (std::int64_t i = 0; i < favoured; ++i) {
    const std::int64_t id = count - 1 - i * std::max<std::int64_t>(1, count / favoured);
    const std::int64_t place = id >= 0 ? id : i;
    plant_logit(d, -1, place, -5.0f - 0.25f * static_cast<float>(i));
    plant(d, TensorId::kSelectionBias, -1, place, std::bit_cast<std::uint32_t>(40.0f + 2.0f * static_cast<float>(i)));
  }
}

// NaN where a lane, a warp or a group begins, in all of one of them, and in all experts but one.
void nan_places(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  const auto id = TensorId::kRouterLogits;
  const std::int64_t count = competing(d);
  const std::int64_t group = d.n_group > 1 ? count / d.n_group : (count + 3) / 4;
  const std::uint32_t nan = choose(draw, 16, 2) == 0 ? kNaN : kNegativeNaN;
  for (std::int64_t e = 0; e < count; ++e) {
    if (e % 32 == 0) plant(d, id, 0, e, nan);
    if (e % 32 == 31 || e == count - 1) plant(d, id, 1, e, nan);
    if (e < group) plant(d, id, 2, e, nan);
    if (e >= count - group) plant(d, id, 3, e, nan);
    if (e >= 32 && e < 64) plant(d, id, 5, e, nan);
    if (e % group == 0) plant(d, id, 6, e, nan);
  }
  plant(d, id, 4, -1, nan);
  plant(d, id, 4, count - 1, kOne);
  plant(d, id, 7, -1, kNegativeInf);  // one number, no NaN
  plant(d, id, 7, count / 2, kOne);
  usual_bias(spec, draw, d);
}

// As many rows as experts, as slots, or one more or less: an index along the wrong axis stays in range.
void rows_as_sizes(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  constexpr std::int64_t kMostRows = 1025;
  const std::int64_t count = competing(d);
  const std::array<std::int64_t, 5> rows = {count, d.top_k, count - 1, count + 1, d.top_k + 1};
  d.num_tokens = std::clamp(rows[choose(draw, 16, rows.size())], std::int64_t{1}, kMostRows);
  usual_bias(spec, draw, d);
}

// Runs of 16 rows that choose the same experts, then of the next ones: most experts are empty, the others have a block
// of slots, or one more or less. All rows the same in a quarter of the cases, one expert after the other in another.
void skewed_counts(const RouterSpec&, const Draw& draw, CaseDescription& d) {
  constexpr std::int64_t kRows = 65;
  constexpr std::array<std::int64_t, 4> kRuns = {16, kRows, 15, 1};
  const std::int64_t run = kRuns[choose(draw, 16, kRuns.size())], count = competing(d);
  logits(d, LogitsFamily::kNormal, -8.0f, 0.5f);
  no_bias(d);
  if (run == kRows) {
    for (std::int64_t i = 0; i < d.top_k; ++i) plant_logit(d, -1, count - 1 - i, static_cast<float>(i) * 0.125f);
    return;
  }
  for (std::int64_t row = 0; row < std::min(kRows, d.num_tokens); ++row) {
    for (std::int64_t i = 0; i < d.top_k; ++i) {
      plant_logit(d, row, (count - 1 - row / run * d.top_k % count + count - i) % count,
                  static_cast<float>(i) * 0.125f);
    }
  }
}

// All drawn at random: a spec has as many directed cases as a short run takes.
constexpr std::array kHazards = {
    Hazard{"edge_winners", HazardStage::kLogits, always, 0, 3, edge_winners},
    Hazard{"bias_gaps", HazardStage::kLogits, has_selection_bias, 0, 3, bias_gaps},
    Hazard{"bias_inverts", HazardStage::kLogits, has_selection_bias, 0, 2, bias_inverts},
    Hazard{"nan_places", HazardStage::kGivenOnly, always, 0, 2, nan_places},
    Hazard{"rows_as_sizes", HazardStage::kLogits, always, 0, 1, rows_as_sizes},
    Hazard{"skewed_counts", HazardStage::kLogits, always, 0, 2, skewed_counts},
};

}  // namespace

std::span<const Hazard> edge_hazards() {
  return kHazards;
}

}  // namespace samebits::properties
