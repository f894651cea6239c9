#include <stdexcept>
#include <utility>

#include "properties/exhaustive/sweeps.h"
#include "properties/spec_features.h"

namespace samebits::properties {
namespace {

using oracle::RouterSpec;

// Where the k - 1 experts lie that are better than the two tied ones. Lanes are at distance 1, warps at 32, the parts
// of a block or of a thread at multiples of 32 and 128: of the four, each pair has all.
enum Placement : std::int64_t { kAfterFirst, kBeforeSecond, kSameLane, kSpread, kPlacements };

std::vector<std::int64_t> better_experts(std::int64_t placement, std::int64_t first, std::int64_t second,
                                         std::int64_t num_experts, std::int64_t count, std::int64_t group_size) {
  std::vector<std::int64_t> better;
  // In the groups of the two, so that these groups are kept.
  const auto allowed = [&](std::int64_t expert) {
    const std::int64_t group = expert / group_size;
    return group == first / group_size || group == second / group_size;
  };
  std::vector<bool> used(static_cast<std::size_t>(num_experts), false);
  used[static_cast<std::size_t>(first)] = used[static_cast<std::size_t>(second)] = true;
  const auto take = [&](std::int64_t expert) {
    const auto place = static_cast<std::size_t>(((expert % num_experts) + num_experts) % num_experts);
    if (std::ssize(better) == count || used[place] || !allowed(static_cast<std::int64_t>(place))) return;
    used[place] = true;
    better.push_back(static_cast<std::int64_t>(place));
  };
  for (std::int64_t i = 1; i <= num_experts && std::ssize(better) < count; ++i) {
    if (placement == kAfterFirst) take(first + i);
    if (placement == kBeforeSecond) take(second - i);
    if (placement == kSameLane) take(first + 32 * i + 32 * i / num_experts);
    if (placement == kSpread) take(first + 1 + i * (num_experts / (count + 1) + 1));
  }
  for (std::int64_t e = 0; e < num_experts && std::ssize(better) < count; ++e) take(e);
  return better;
}

class Stream final : public SweepStream {
 public:
  explicit Stream(const RouterSpec& spec) : spec_(spec), experts_(oracle::ranked_experts(spec)) {
    if (has_table(spec)) {
      throw std::invalid_argument("sweep tied_pairs: spec " + spec.name +
                                  " selects by hash_table, so there is no cut; choose a spec that ranks its experts");
    }
  }

  std::int64_t size() const override { return experts_ * (experts_ - 1) / 2 * kPlacements; }

  std::optional<SweepBatch> next() override {
    const std::int64_t width = oracle::gate_rows(spec_), k = oracle::top_k(spec_);
    std::vector<float> logits;
    std::int64_t rows = 0;
    for (; rows < kBatchRows && second_ < experts_; ++rows, advance()) {
      const std::size_t begin = logits.size();
      // All others lower, at four levels: ties below the cut as well.
      for (std::int64_t e = 0; e < width; ++e) logits.push_back(-1.0f - 0.25f * static_cast<float>(e % 4));
      const auto at = [&](std::int64_t e) -> float& { return logits[begin + static_cast<std::size_t>(e)]; };
      at(first_) = at(second_) = 0.5f;
      float better = 1.0f;
      for (const std::int64_t e :
           better_experts(placement_, first_, second_, experts_, k - 1, experts_ / spec_.selection.n_group)) {
        at(e) = better;
        better += 0.0625f;
      }
    }
    if (rows == 0) return std::nullopt;
    SweepBatch batch{given_logits(kTiedPairs, spec_, std::move(logits)), rows, {}};
    oracle::RouterInputs& data = *batch.c.description.data;
    const auto ids = static_cast<std::size_t>(width);
    if (spec_.gate.linear_bias != oracle::BiasType::kNone) data.linear_bias.assign(ids, 0.0f);
    if (has_selection_bias(spec_)) {
      data.selection_bias.assign(spec_.selection.bias_variants.size() * static_cast<std::size_t>(experts_), 0.0f);
    }
    if (spec_.weights.per_expert_scale) data.per_expert_scale.assign(ids, 1.0f);
    if (spec_.weights.global_scale) data.global_scale.assign(1, 1.0f);
    return batch;
  }

 private:
  void advance() {
    if (++placement_ < kPlacements) return;
    placement_ = 0;
    if (++first_ < second_) return;
    first_ = 0;
    ++second_;
  }

  RouterSpec spec_;
  std::int64_t experts_;
  std::int64_t first_ = 0, second_ = 1, placement_ = 0;
};

}  // namespace

constinit const ExhaustiveSweep kTiedPairs = {
    .name = "tied_pairs",
    .item = "rows",
    .statement = "every pair of experts of the spec tied across the cut, below k - 1 better ones in four placements",
    .law = "selection",
    .takes_spec = true,
    .open = [](const RouterSpec& spec) -> std::unique_ptr<SweepStream> { return std::make_unique<Stream>(spec); },
};

}  // namespace samebits::properties
