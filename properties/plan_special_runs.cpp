// The runs of the laws layout, history, ordering, total_dispatch and metamorphic, and one that wants ids and weights
// alone. They have few rows, and the derived
// routers and wrong calls of a case are some of those that there are, chosen by its key; the directed cases together
// meet all.
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "properties/plan_parts.h"
#include "properties/spec_features.h"

namespace samebits::properties {
namespace {

// Enough for two tiles of 16 rows or two blocks of the CPU router.
constexpr std::int64_t kFewRows = 17;
constexpr std::int64_t kDerivedRows = 8;
// Of a router whose rows depend on each other only the same rows can be compared: those of main, where they are few.
constexpr std::int64_t kMostSharedRows = 64;
// Products a row: below, hundreds of calls of one row are a matter of milliseconds.
constexpr std::int64_t kSmallGate = 1 << 17;
constexpr int kDerivedRouters = 2, kWrongCalls = 3, kWrongCreations = 1;

class SpecialRuns {
 public:
  SpecialRuns(const Case& c, const Claims& claims, std::int64_t valid, std::vector<RunRequest>& plan)
      : c_(c),
        claims_(claims),
        valid_(valid),
        main_(plan.front()),
        full_stage_(c.description.data ? !c.description.data->from_logits() : c.description.stage == Stage::kFull),
        invariant_(claims.determinism == Determinism::kBatchInvariant),
        choices_(c.description.data_key ^ 0x7370656369616c73u),
        plan_(plan) {}

  void add_all() {
    if (claims_.determinism != Determinism::kNone) {
      add_bare();
      if (invariant_) add_layouts();
      add_histories();
      add_many_calls();
      if (claims_.device_memory) add_late_inputs();
    }
    add_wrong_calls();
    if (claims_.determinism == Determinism::kNone) return;
    if (invariant_) add_spread_constants();
    add_derived_routers();
  }

 private:
  std::int64_t tokens() const { return static_cast<std::int64_t>(main_.rows.size()); }

  // Main itself, or its first rows where those may be compared.
  RunRequest few_rows(std::string id) const {
    RunRequest run = main_;
    run.id = std::move(id);
    if (!invariant_ || tokens() <= kFewRows) return run;
    run.rows = first_rows(std::min(valid_, kFewRows));
    run.num_valid_rows.reset();
    return run;
  }

  // Another kernel may run where nobody wants the logits.
  void add_bare() {
    if (!main_.want_logits || (!invariant_ && tokens() > kMostSharedRows)) return;
    RunRequest bare = few_rows("bare");
    bare.want_logits = false;
    bare.want_bookkeeping = false;
    bare.block_size = 0;
    plan_.push_back(std::move(bare));
  }

  void add_layouts() {
    constexpr std::int32_t kAligned[] = {8, 64}, kUnaligned[] = {1, 3, 7};
    const bool first = choices_.below(2) == 0;  // has int64 ids, the other one bf16 weights; or the other way round
    RunRequest gaps = few_rows("layout/gaps");
    gaps.layout = {kAligned[choices_.below(2)], 4, false, first, !first};
    plan_.push_back(std::move(gaps));
    RunRequest shifted = few_rows("layout/shifted");
    shifted.layout = {kUnaligned[choices_.below(3)], 1, true, !first, first};
    const auto count = static_cast<std::int64_t>(shifted.rows.size());
    if (!shifted.num_valid_rows && (claims_.max_tokens == 0 || count < claims_.max_tokens)) {  // padding in these types
      shifted.num_valid_rows = static_cast<std::int32_t>(count);
      shifted.rows.push_back(0);
    }
    plan_.push_back(std::move(shifted));
  }

  // The router is created from matrices with gaps between their rows.
  void add_spread_constants() {
    RunRequest run = few_rows("layout/constants");
    if (choices_.below(2) == 0) return;  // the router is created once more
    run.constants_gap = choices_.below(2) == 0 ? 8 : 3;
    plan_.push_back(std::move(run));
  }

  static EarlierCall loud(const RunRequest& run, std::optional<std::int32_t> num_valid_rows) {
    return {run.rows, std::vector<RowReplacement>(run.rows.size(), RowReplacement::kNaN), num_valid_rows};
  }

  // Many rows, one row, and then the call; one row after many; other values and other numbers of valid rows between.
  void add_histories() {
    RunRequest again = few_rows("history/many_one_many");
    const auto count = static_cast<std::int32_t>(again.rows.size());
    again.poison = kPoisonB;
    again.earlier = {loud(again, std::nullopt), {{0}, {}, std::nullopt}, {again.rows, {}, count / 2}};
    // After half of the rows all are, and said to be; where the call is that of main, it stays so.
    if (again.rows != main_.rows) again.num_valid_rows = count;
    RunRequest one = again;
    one.id = "history/one_after_many";
    one.rows = {choices_.below(valid_)};
    one.num_valid_rows.reset();
    one.earlier = {{again.rows, {}, std::nullopt}};
    RunRequest replayed = few_rows("history/graphs");
    replayed.launch = Launch::kGraph;
    replayed.earlier = {{{0}, {}, std::nullopt}};
    plan_.push_back(std::move(again));
    if (invariant_) plan_.push_back(std::move(one));
    if (claims_.device_memory) plan_.push_back(std::move(replayed));
  }

  // In every eighth case: a call as long as the run, hundreds of one row, and the run. Where a count or an epoch has
  // come round since, what the first left in the workspace looks as if it were of today.
  void add_many_calls() {
    constexpr std::int32_t kShorts[] = {255, 254, 256, 300, 127, 126};
    constexpr std::uint64_t kEvery = 8, kFirst = 5;
    const std::uint64_t index = c_.description.index;
    if (index % kEvery != kFirst) return;
    RunRequest run = few_rows("history/many_calls");
    EarlierCall one{{0}, {}, std::nullopt};
    one.times = kShorts[index / kEvery % std::size(kShorts)];
    one.given_logits = full_stage_ && oracle::hidden_size(c_.spec) * oracle::gate_rows(c_.spec) > kSmallGate;
    run.earlier = {loud(run, std::nullopt), std::move(one)};
    plan_.push_back(std::move(run));
  }

  void add_late_inputs() {
    const auto add = [&](const char* name, InputTensor input) {
      RunRequest run = few_rows(std::string("ordering/late_") + name);
      run.launch = Launch::kLateInput;
      run.late_input = input;
      if (input == InputTensor::kNumValidRows && !run.num_valid_rows) {
        run.num_valid_rows = static_cast<std::int32_t>(run.rows.size());
      }
      plan_.push_back(std::move(run));
    };
    add(full_stage_ ? "hidden_states" : "router_logits", InputTensor::kRows);
    add("num_valid_rows", InputTensor::kNumValidRows);
    if (has_table(c_.spec)) add("token_ids", InputTensor::kTokenIds);
    if (has_row_class(c_)) add("row_class", InputTensor::kRowClass);
  }

  bool is_possible(Misuse misuse) const {
    const bool gate = full_stage_ && oracle::hidden_size(c_.spec) > 1;
    switch (misuse) {
      case Misuse::kNone:
        return false;
      case Misuse::kTooManyTokens:
        return claims_.max_tokens > 0;
      case Misuse::kAbsentTokenIds:
      case Misuse::kTokenIdsDtype:
      case Misuse::kTokenIdsColumns:
      case Misuse::kTableId:
        return has_table(c_.spec);
      case Misuse::kTableRepeat:
        return has_table(c_.spec) && oracle::top_k(c_.spec) > 1;
      case Misuse::kRowClassDtype:
      case Misuse::kRowClassColumns:
        return has_row_class(c_);
      case Misuse::kGateColumns:
        return gate;
      case Misuse::kAbsentBias:
        return has_selection_bias(c_.spec);
      default:
        return true;
    }
  }

  void add_wrong_calls() {
    std::vector<Misuse> of_route, of_create;
    for (int i = 0; i < kNumMisuses; ++i) {
      const auto misuse = static_cast<Misuse>(i);
      if (is_possible(misuse)) (is_of_create(misuse) ? of_create : of_route).push_back(misuse);
    }
    const auto add = [&](const std::vector<Misuse>& all, int count) {
      const auto size = static_cast<std::int64_t>(all.size());
      const std::int64_t start = choices_.below(size);
      for (std::int64_t i = 0; i < std::min<std::int64_t>(count, size); ++i) {
        RunRequest run = main_;
        run.misuse = all[static_cast<std::size_t>((start + i) % size)];
        run.id = std::string("wrong/") + name_of(run.misuse);
        run.rows = {0};
        run.num_valid_rows.reset();
        plan_.push_back(std::move(run));
      }
    };
    add(of_route, kWrongCalls);
    add(of_create, kWrongCreations);
  }

  static bool is_base(Variation variation) {
    return variation == Variation::kNoGroups || variation == Variation::kGivenLogits ||
           variation == Variation::kRoundBiases;
  }

  // Bits of one router follow from those of another only where every bit is specified. For the others: what concerns
  // the weights alone, after the choice.
  bool is_comparable(Variation variation) const {
    if (is_base(variation)) return false;  // asked with those that are compared with it
    const bool after_choice = variation == Variation::kDoubledScale || variation == Variation::kOtherScale ||
                              variation == Variation::kBf16Weights;
    return (claims_.bit_exact() || after_choice) && can_vary(c_.spec, variation);
  }

  void add_derived_routers() {
    if (!invariant_ && tokens() > kMostSharedRows) return;
    std::vector<Variation> all;
    std::copy_if(std::begin(kVariations), std::end(kVariations), std::back_inserter(all),
                 [&](Variation variation) { return is_comparable(variation); });
    const auto size = static_cast<std::int64_t>(all.size());
    const std::int64_t start = choices_.below(size);
    std::vector<Variation> asked;
    const auto ask = [&](Variation variation) {
      if (variation == Variation::kNone || std::count(asked.begin(), asked.end(), variation) > 0) return;
      asked.push_back(variation);
      RunRequest run = main_;
      run.id = std::string("derived/") + name_of(variation);
      run.variation = variation;
      run.want_bookkeeping = false;
      run.block_size = 0;
      const auto gives = [](Variation v) { return v == Variation::kGivenLogits || v == Variation::kRoundBiases; };
      const bool given = gives(variation) || gives(base_of(c_.spec, variation));
      run.want_logits = run.want_logits && full_stage_ && !given;
      if (invariant_) {
        run.rows = first_rows(std::min(valid_, kDerivedRows));
        run.num_valid_rows.reset();
      }
      plan_.push_back(std::move(run));
    };
    for (std::int64_t i = 0; i < std::min<std::int64_t>(kDerivedRouters, size); ++i) {
      const Variation variation = all[static_cast<std::size_t>((start + i) % size)];
      ask(base_of(c_.spec, variation));
      ask(variation);
    }
  }

  const Case& c_;
  const Claims& claims_;
  std::int64_t valid_;
  RunRequest main_;
  bool full_stage_, invariant_;
  Choices choices_;
  std::vector<RunRequest>& plan_;
};

}  // namespace

bool has_row_class(const Case& c) {
  const CaseDescription& d = c.description;
  return d.data ? !d.data->row_class.empty()
                : has_selection_bias(c.spec) && c.spec.selection.bias_variants.size() > 1 &&
                      d.row_classes != RowClassFamily::kAbsent;
}

void plan_special_runs(const Case& c, const Claims& claims, std::int64_t valid, std::vector<RunRequest>& plan) {
  SpecialRuns(c, claims, valid, plan).add_all();
}

}  // namespace samebits::properties
