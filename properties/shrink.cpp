#include "properties/shrink.h"

#include <rapidcheck/shrinkable/Create.h>

#include <memory>
#include <stdexcept>
#include <utility>

#include "properties/shrink_passes.h"

namespace samebits::properties {
namespace {

// The candidates of all passes, one after another.
class SimplerCases {
 public:
  explicit SimplerCases(const Case& c) : case_(std::make_shared<const Case>(c)) {}

  rc::Maybe<Case> operator()() {
    for (; pass_ < all_passes().size(); ++pass_, index_ = 0) {
      const Pass& pass = all_passes()[pass_];
      const std::int64_t count = pass.count(*case_);
      while (index_ < count) {
        if (std::optional<Case> candidate = pass.candidate(*case_, index_++)) return std::move(*candidate);
      }
    }
    return rc::Nothing;
  }

 private:
  std::shared_ptr<const Case> case_;
  std::size_t pass_ = 0;
  std::int64_t index_ = 0;
};

// One shrinking run: the simplest failing case so far, and what it cost.
class Shrinking {
 public:
  Shrinking(const Fails& fails, const ShrinkLimits& limits, const std::function<bool(int, const Case&)>& on_progress,
            ShrinkResult& result)
      : fails_(fails), limits_(limits), on_progress_(on_progress), result_(result) {}

  // Rounds over passes of few candidates as long as they help, then over passes of more: a coarse step that failed may
  // work on a simpler case, and fine steps are expensive on a large one. The last of the rounds without progress has
  // tried every candidate of the minimal case.
  void run() {
    constexpr std::int64_t kFewest = 32;
    std::int64_t above = 0, limit = kFewest;
    while (!stopped_) {
      const int steps_before = result_.steps;
      const bool all_tried = !round(above, limit);
      if (result_.steps > steps_before) {
        above = 0;
        limit = kFewest;
      } else if (all_tried) {
        return;
      } else {
        above = limit;
        limit *= 4;
      }
    }
  }

 private:
  // Every candidate of the passes that have more than `above` and at most `limit`; true when some have more.
  bool round(std::int64_t above, std::int64_t limit) {
    bool more = false;
    for (const Pass& pass : all_passes()) {
      std::int64_t count = pass.count(result_.minimal);
      more |= count > limit;
      if (count <= above || count > limit) continue;
      for (std::int64_t i = 0; i < count && !stopped_;) {
        if (try_candidate(pass.candidate(result_.minimal, i))) {
          count = pass.count(result_.minimal);
        } else {
          ++i;
        }
      }
    }
    return more;
  }

  bool try_candidate(std::optional<Case> candidate) {
    if (!candidate) return false;
    if (result_.evaluations >= limits_.max_evaluations) {
      stopped_ = true;
      return false;
    }
    ++result_.evaluations;
    std::optional<Violation> violation = fails_(*candidate);
    if (violation) {
      result_.minimal = std::move(*candidate);
      result_.violation = std::move(*violation);
      ++result_.steps;
    }
    if (on_progress_ && !on_progress_(result_.evaluations, result_.minimal)) stopped_ = true;
    return violation.has_value();
  }

  const Fails& fails_;
  const ShrinkLimits& limits_;
  const std::function<bool(int, const Case&)>& on_progress_;
  ShrinkResult& result_;
  bool stopped_ = false;
};

}  // namespace

const std::vector<Pass>& all_passes() {
  static const std::vector<Pass> passes = [] {
    std::vector<Pass> all;
    add_shape_passes(all);
    add_value_passes(all);
    return all;
  }();
  return passes;
}

rc::Seq<Case> simpler_cases(const Case& c) {
  return rc::Seq<Case>(SimplerCases(c));
}

rc::Shrinkable<Case> shrinkable(const Case& c) {
  return rc::shrinkable::shrinkRecur(c, simpler_cases);
}

ShrinkResult shrink(const Case& failing, const Fails& fails, const ShrinkLimits& limits,
                    const std::function<bool(int, const Case&)>& on_progress) {
  std::optional<Violation> violation = fails(failing);
  if (!violation) throw std::invalid_argument("the case to shrink does not break the law");
  ShrinkResult result{failing, std::move(*violation), 1, 0};
  Shrinking shrinking(fails, limits, on_progress, result);
  shrinking.run();
  return result;
}

ShrinkResult shrink(const Case& failing, const std::string& law, Subject& subject, const ShrinkLimits& limits,
                    const std::function<bool(int, const Case&)>& on_progress) {
  const Fails fails = [&](const Case& c) -> std::optional<Violation> {
    if (subject.unsupported(c.spec)) return std::nullopt;
    for (const LawResult& result : evaluate(c, subject, {law})) {
      if (law == result.law->id && result.outcome.violation) return result.outcome.violation;
    }
    return std::nullopt;
  };
  return shrink(failing, fails, limits, on_progress);
}

}  // namespace samebits::properties
