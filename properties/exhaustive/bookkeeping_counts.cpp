#include <bit>
#include <utility>

#include "properties/exhaustive/sweeps.h"

namespace samebits::properties {
namespace {

constexpr std::int64_t kMaxExperts = 4, kMaxTokens = 5;

std::int64_t binomial(std::int64_t n, std::int64_t k) {
  std::int64_t result = 1;
  for (std::int64_t i = 1; i <= k; ++i) result = result * (n - k + i) / i;
  return result;
}

std::int64_t power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  for (std::int64_t i = 0; i < exponent; ++i) result *= base;
  return result;
}

// The k-subsets of E experts as bit masks, ascending.
std::vector<unsigned> subsets(std::int64_t num_experts, std::int64_t top_k) {
  std::vector<unsigned> masks;
  for (unsigned mask = 0; mask < 1u << num_experts; ++mask) {
    if (std::popcount(mask) == top_k) masks.push_back(mask);
  }
  return masks;
}

// One batch a call: T rows, of which each chooses one of the k-subsets. Every count vector of T rows is among them.
class Stream final : public SweepStream {
 public:
  std::int64_t size() const override {
    std::int64_t total = 0;
    for (std::int64_t experts = 1; experts <= kMaxExperts; ++experts) {
      for (std::int64_t k = 1; k <= experts; ++k) {
        for (std::int64_t tokens = 1; tokens <= kMaxTokens; ++tokens) total += power(binomial(experts, k), tokens);
      }
    }
    return total;
  }

  std::optional<SweepBatch> next() override {
    if (experts_ > kMaxExperts) return std::nullopt;
    const std::vector<unsigned> choices = subsets(experts_, top_k_);
    std::vector<float> logits;
    std::int64_t digits = assignment_;
    const auto base = static_cast<std::int64_t>(choices.size());
    for (std::int64_t row = 0; row < tokens_; ++row, digits /= base) {
      const unsigned mask = choices[static_cast<std::size_t>(digits % base)];
      // Slots in ascending order of ids in one row, in descending order in the next.
      for (std::int64_t e = 0; e < experts_; ++e) {
        const bool chosen = (mask >> e & 1u) != 0;
        logits.push_back(static_cast<float>(chosen ? 1 + (row % 2 == 0 ? experts_ - e : e) : 0 - e));
      }
    }
    SweepBatch batch{
        given_logits(kBookkeepingCounts, plain_spec("counts", experts_, top_k_), std::move(logits)), 1, {1, 2, 4, 16}};
    advance(power(base, tokens_));
    return batch;
  }

 private:
  void advance(std::int64_t assignments) {
    if (++assignment_ < assignments) return;
    assignment_ = 0;
    if (++tokens_ <= kMaxTokens) return;
    tokens_ = 1;
    if (++top_k_ <= experts_) return;
    top_k_ = 1;
    ++experts_;
  }

  std::int64_t experts_ = 1, top_k_ = 1, tokens_ = 1, assignment_ = 0;
};

}  // namespace

constinit const ExhaustiveSweep kBookkeepingCounts = {
    .name = "counts",
    .item = "calls",
    .statement =
        "every assignment of up to 5 rows to k of up to 4 experts, and so every vector of counts; blocks of 1, "
        "2, 4 and 16",
    .law = "bookkeeping",
    .takes_spec = false,
    .open = [](const oracle::RouterSpec&) -> std::unique_ptr<SweepStream> { return std::make_unique<Stream>(); },
};

}  // namespace samebits::properties
