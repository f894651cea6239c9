#include <algorithm>
#include <array>
#include <utility>

#include "oracle/spec/validate.h"
#include "properties/exhaustive/sweeps.h"

namespace samebits::properties {
namespace {

using oracle::GroupMask;
using oracle::GroupScore;
using oracle::RouterSpec;

constexpr std::int64_t kMaxKeys = 7;
// Ordered set partitions of n keys: a(n) = sum over j of binomial(n, j) a(n - j), j the size of the best class.
constexpr std::array<std::int64_t, kMaxKeys + 1> kFubini = {1, 1, 3, 13, 75, 541, 4683, 47293};

// Every valid way to choose k of n keys: without groups, with each equal division, group score and mask, and per group.
// Groups of one expert only up to 6 keys: of 7, they would be four fifths of all rows.
std::vector<RouterSpec> all_rules() {
  std::vector<RouterSpec> rules;
  const auto add = [&](const RouterSpec& spec) {
    if (oracle::find_problems(spec).empty()) rules.push_back(spec);
  };
  for (std::int64_t n = 1; n <= kMaxKeys; ++n) {
    for (std::int64_t k = 1; k <= n; ++k) {
      RouterSpec spec = plain_spec("weak_orders", n, k);
      add(spec);
      for (std::int64_t groups = 2; groups <= n; ++groups) {
        if (n % groups != 0 || (n == kMaxKeys && groups == n)) continue;
        spec.selection.n_group = groups;
        spec.selection.topk_scope = oracle::TopkScope::kGlobal;
        for (std::int64_t kept = 1; kept <= groups; ++kept) {
          spec.selection.topk_group = kept;
          for (const GroupScore score : {GroupScore::kMax, GroupScore::kTop2Sum}) {
            for (const GroupMask mask : {GroupMask::kNegInf, GroupMask::kZero}) {
              spec.selection.group_score = score;
              spec.selection.group_mask = mask;
              add(spec);
            }
          }
        }
        spec.selection.topk_scope = oracle::TopkScope::kPerGroup;
        spec.selection.group_score = GroupScore::kNone;
        spec.selection.group_mask = GroupMask::kNone;
        add(spec);
      }
    }
  }
  return rules;
}

// Levels 0 .. m - 1 of n keys, every level used: the weak orders, by counting in base n and leaving out words with a
// gap.
class Words {
 public:
  explicit Words(std::int64_t n) : levels_(static_cast<std::size_t>(n), 0) {}
  const std::vector<int>& levels() const { return levels_; }
  // false: that was the last.
  bool advance() {
    do {
      std::size_t i = 0;
      while (i < levels_.size() && ++levels_[i] == static_cast<int>(levels_.size())) levels_[i++] = 0;
      if (i == levels_.size()) return false;
    } while (!complete());
    return true;
  }

 private:
  bool complete() const {
    unsigned seen = 0;
    for (const int level : levels_) seen |= 1u << level;
    return (seen & (seen + 1)) == 0;
  }
  std::vector<int> levels_;
};

class Stream final : public SweepStream {
 public:
  std::int64_t size() const override {
    std::int64_t total = 0;
    for (const RouterSpec& rule : rules_) total += kFubini[static_cast<std::size_t>(oracle::num_experts(rule))];
    return total;
  }

  std::optional<SweepBatch> next() override {
    if (rule_ == rules_.size()) return std::nullopt;
    const RouterSpec& spec = rules_[rule_];
    if (!words_) words_.emplace(oracle::num_experts(spec));
    std::vector<float> logits;
    std::int64_t rows = 0;
    bool left = true;
    while (left && rows < kBatchRows) {
      // Keys of both signs, and a zero of either sign: a mask of 0 ties with some, loses to some and wins against
      // others.
      for (const int level : words_->levels()) {
        const float key = 0.5f * static_cast<float>(level - 2);
        logits.push_back(key == 0.0f && rows % 2 == 1 && logits.size() % 2 == 0 ? -0.0f : key);
      }
      ++rows;
      left = words_->advance();
    }
    if (!left) {
      words_.reset();
      ++rule_;
    }
    return SweepBatch{given_logits(kWeakOrders, spec, std::move(logits)), rows, {}};
  }

 private:
  std::vector<RouterSpec> rules_ = all_rules();
  std::size_t rule_ = 0;
  std::optional<Words> words_;
};

}  // namespace

constinit const ExhaustiveSweep kWeakOrders = {
    .name = "weak_orders",
    .item = "rows",
    .statement = "every order with ties of up to 7 keys, for every k, without groups and with every kind of them",
    .law = "selection",
    .takes_spec = false,
    .open = [](const oracle::RouterSpec&) -> std::unique_ptr<SweepStream> { return std::make_unique<Stream>(); },
};

}  // namespace samebits::properties
