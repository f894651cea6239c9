// The runs of more rows than a case has: its rows repeated, where a router may take another kernel. What each of them
// asks for (logits, outputs of the bookkeeping, a count of valid rows, a layout, calls before it) is drawn by the key
// of the case.
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "properties/plan_parts.h"

namespace samebits::properties {
namespace {

// From here on main itself has many rows.
constexpr std::int64_t kManyRows = 512;
// Between tiles of 64 rows, and past two of them and 256, where dispatchers change kernels.
constexpr std::int64_t kBetweenTiles[] = {80, 96, 112};
constexpr std::int64_t kPastTile = 33, kPastBlock = 257, kMostRows = 300;
constexpr std::int32_t kBlockSizes[] = {1, 8, 16, 32, 64, 128};
constexpr int kBooks = 7;
// Products a row: below, a run of 300 rows is a matter of milliseconds. A wider gate gets one run in two cases.
constexpr std::int64_t kSmallGate = 1 << 17;

class WideRuns {
 public:
  WideRuns(const Case& c, const Claims& claims, std::int64_t valid, std::vector<RunRequest>& plan)
      : c_(c),
        claims_(claims),
        valid_(valid),
        full_stage_(c.description.data ? !c.description.data->from_logits() : c.description.stage == Stage::kFull),
        width_(full_stage_ ? oracle::hidden_size(c.spec) : oracle::gate_rows(c.spec)),
        small_(!full_stage_ || width_ * oracle::gate_rows(c.spec) <= kSmallGate),
        choices_(c.description.data_key ^ 0x776964655f72756eu),
        plan_(plan) {}

  void add_all() {
    const std::int64_t only = choices_.below(8);
    const auto is_asked = [&](std::int64_t which) { return small_ ? choices_.below(2) == 0 : only == which; };
    if (is_asked(0)) add_plain();
    if (is_asked(1)) add_layout();
    if (is_asked(2)) add_history();
    if (is_asked(3)) add_other_router();
  }

 private:
  bool one_in(std::int64_t count) { return choices_.below(count) == 0; }

  // The rows of the case again and again.
  std::vector<std::int64_t> rows_of(std::int64_t count) const {
    if (claims_.max_tokens > 0) count = std::min(count, claims_.max_tokens);
    std::vector<std::int64_t> rows = first_rows(count);
    for (std::int64_t& row : rows) row %= valid_;
    return rows;
  }

  std::int64_t past(std::int64_t first, std::int64_t last) { return first + choices_.below(last - first + 1); }

  std::int64_t many() {
    if (one_in(small_ ? 3 : 8)) return past(kPastBlock, kMostRows);
    return one_in(2) ? kBetweenTiles[choices_.below(std::size(kBetweenTiles))] : past(kPastTile, 128);
  }

  // Inside 0 .. T, at its end, outside both ends; past 256 where there are more rows.
  std::int32_t count_of(std::int64_t rows) {
    switch (choices_.below(5)) {
      case 0:
        return static_cast<std::int32_t>(-past(1, 40));
      case 1:
        return static_cast<std::int32_t>(rows + past(1, 40));
      case 2:
        return static_cast<std::int32_t>(choices_.below(rows + 1));
      default:
        return static_cast<std::int32_t>(rows > kPastBlock ? past(kPastBlock, rows - 1) : rows);
    }
  }

  RunRequest drawn(std::string id, std::int64_t count) {
    RunRequest run;
    run.id = std::move(id);
    run.rows = rows_of(count);
    run.poison = one_in(2) ? kPoisonA : kPoisonB;
    run.want_logits = claims_.returns_logits && full_stage_ && one_in(3);
    run.want_bookkeeping = claims_.returns_bookkeeping && !one_in(3);
    if (!run.want_bookkeeping) return run;
    run.block_size = kBlockSizes[choices_.below(std::size(kBlockSizes))];
    if (one_in(2)) run.omitted_books = static_cast<std::uint8_t>(choices_.below((1 << kBooks) - 1));
    return run;
  }

  void add_plain() {
    RunRequest run = drawn("wide/plain", many());
    plan_.push_back(run);
    const bool past_block = small_ && one_in(2);
    run = drawn("wide/count", past_block ? past(kPastBlock + 1, kMostRows) : one_in(3) ? past(4, 16) : many());
    run.num_valid_rows = count_of(static_cast<std::int64_t>(run.rows.size()));
    plan_.push_back(std::move(run));
  }

  void add_layout() {
    RunRequest run = drawn("layout/wide", many());
    const std::int64_t gaps[] = {0, 3, 8, width_ + 8};
    run.layout.input_gap = static_cast<std::int32_t>(gaps[choices_.below(std::size(gaps))]);
    run.layout.output_gap = static_cast<std::int32_t>(choices_.below(3) * 2);
    run.layout.shifted = one_in(4);
    run.layout.ids_int64 = one_in(2);
    run.layout.weights_bf16 = one_in(2);
    if (one_in(2)) run.num_valid_rows = count_of(static_cast<std::int64_t>(run.rows.size()));
    // The usual layout, but for one that has to be there: it is what makes the run one of the law.
    if (run.layout == Layout{}) run.layout = {8, 0, false, true, true};
    plan_.push_back(std::move(run));
  }

  // Four to six calls before: the first and the last of them as long as the run.
  void add_history() {
    RunRequest run = drawn("history/wide", many());
    const auto count = static_cast<std::int64_t>(run.rows.size());
    const std::int64_t calls = past(4, 6);
    for (std::int64_t i = 0; i < calls; ++i) {
      EarlierCall call;
      const bool long_one = i == 0 || i == calls - 1;
      call.rows = long_one ? run.rows : rows_of(past(1, std::min<std::int64_t>(count, 40)));
      if (one_in(2)) call.replace.assign(call.rows.size(), RowReplacement::kHuge);
      if (one_in(3)) call.num_valid_rows = count_of(static_cast<std::int64_t>(call.rows.size()));
      run.earlier.push_back(std::move(call));
    }
    run.earlier[static_cast<std::size_t>(choices_.below(calls))].given_logits = full_stage_;
    plan_.push_back(std::move(run));
  }

  void add_other_router() {
    RunRequest run = drawn("history/other_router", past(1, 40));
    constexpr OtherRouter kKinds[] = {OtherRouter::kBefore, OtherRouter::kBeside, OtherRouter::kAtOnce};
    run.other_router = kKinds[choices_.below(claims_.device_memory ? 2 : 3)];
    plan_.push_back(std::move(run));
  }

  const Case& c_;
  const Claims& claims_;
  std::int64_t valid_;
  bool full_stage_;
  std::int64_t width_;
  bool small_;
  Choices choices_;
  std::vector<RunRequest>& plan_;
};

}  // namespace

void plan_wide_runs(const Case& c, const Claims& claims, std::int64_t valid, std::vector<RunRequest>& plan) {
  if (claims.determinism != Determinism::kBatchInvariant || valid >= kManyRows) return;
  WideRuns(c, claims, valid, plan).add_all();
}

}  // namespace samebits::properties
