#include "properties/shrink.h"

#include <rapidcheck/shrinkable/Create.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <unordered_set>
#include <utility>
#include <vector>

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

// A hash of everything that shrinking changes in a description.
class Fingerprint {
 public:
  static std::uint64_t of(const CaseDescription& d) {
    Fingerprint f;
    f.add(d.stage, d.num_tokens, d.hidden_size, d.num_experts, d.top_k, d.n_group, d.topk_group);
    f.add(d.zero_experts, d.shared_in_gate, d.vocab_size, d.scales, d.tokens, d.token_ids_int32, d.row_classes);
    f.add(d.num_valid_rows.has_value(), d.num_valid_rows.value_or(0));
    f.add(d.gate_weight_dtype, d.linear_bias, d.selection_bias, d.bias_offset, d.logits_offset);
    f.add_all(d.keep_rows);
    f.add_all(d.keep_experts);
    f.add_all(d.keep_columns);
    f.add(d.plants.size());
    for (const Plant& p : d.plants) f.add(p.tensor, p.row, p.column, p.bits);
    f.add(d.data.has_value());
    if (d.data) {
      f.add_all(d.data->hidden_states);
      f.add_all(d.data->gate_weight_bf16);
      f.add_all(d.data->gate_weight_fp32);
      f.add_all(d.data->linear_bias);
      f.add_all(d.data->selection_bias);
      f.add_all(d.data->router_logits);
      f.add_all(d.data->input_scale_vector);
      f.add_all(d.data->per_expert_scale);
      f.add_all(d.data->global_scale);
      f.add_all(d.data->hash_table);
      f.add_all(d.data->token_ids);
      f.add_all(d.data->row_class);
      f.add(d.data->token_ids_int32);
    }
    return f.hash_;
  }

 private:
  void mix(std::uint64_t word) { hash_ = (hash_ ^ (hash_ >> 29) ^ word) * 0x9e3779b97f4a7c15u; }
  void add_one(float value) { mix(std::bit_cast<std::uint32_t>(value)); }
  template <class T>
  void add_one(T value) {
    mix(static_cast<std::uint64_t>(value));
  }
  template <class... T>
  void add(T... values) {
    (add_one(values), ...);
  }
  template <class T>
  void add_all(const std::vector<T>& values) {
    add(values.size());
    for (const T& value : values) add_one(value);
  }

  std::uint64_t hash_ = 0;
};

// One shrinking run: the simplest failing case so far, and what it cost.
class Shrinking {
 public:
  Shrinking(const Fails& fails, const ShrinkLimits& limits, const std::function<bool(int, const Case&)>& on_progress,
            ShrinkResult& result)
      : fails_(fails), limits_(limits), on_progress_(on_progress), result_(result) {}

  // Shapes first: generated columns know their places, which explicit tensors do not.
  void run() {
    static const std::vector<Pass> shapes = shape_passes();
    reduce(shapes, kMaxShapeCandidates);
    reduce(all_passes(), std::numeric_limits<std::int64_t>::max() / 4);
  }

 private:
  static constexpr std::int64_t kMaxShapeCandidates = 512;

  // Rounds over passes of few candidates as long as they help, then over passes of more, up to `most`: a coarse step
  // that failed may work on a simpler case, and fine steps are expensive on a large one. When it ends unstopped, every
  // candidate of these passes was tried on the minimal case.
  void reduce(const std::vector<Pass>& passes, std::int64_t most) {
    constexpr std::int64_t kFewest = 32;
    std::int64_t above = 0, limit = kFewest;
    while (!stopped_ && limit <= most) {
      const int steps_before = result_.steps;
      const bool all_tried = !round(passes, above, limit);
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

  // Every candidate of the passes that have more than `above` and at most `limit`; true when some have more.
  bool round(const std::vector<Pass>& passes, std::int64_t above, std::int64_t limit) {
    bool more = false;
    for (const Pass& pass : passes) {
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
    if (!candidate || !tried_.insert(Fingerprint::of(candidate->description)).second) return false;
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
  std::unordered_set<std::uint64_t> tried_;  // several passes propose the same case
};

}  // namespace

const std::vector<Pass>& all_passes() {
  static const std::vector<Pass> passes = [] {
    std::vector<Pass> all = shape_passes();
    const std::vector<Pass> values = value_passes();
    all.insert(all.end(), values.begin(), values.end());
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
