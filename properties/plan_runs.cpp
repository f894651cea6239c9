#include <algorithm>
#include <set>
#include <utility>

#include "properties/plan_parts.h"

namespace samebits::properties {
namespace {

// From this many rows on, the runs with other rows take a quarter of them, so that the extra rows of a case stay below
// 1.5 T plus a constant (about 300).
constexpr std::int64_t kManyRows = 512;
constexpr std::int64_t kMaxPrefix = 128;

// Row counts at which public routers change kernels (16 and 64 rows), and the next one: with the rows of a small case
// repeated, so that also a case of one row meets another row count. So are as many rows as columns and, where they are
// few, as experts: square matrices, in which rows and columns can be mistaken for each other.
constexpr std::int64_t kTiledRows[] = {17, 65}, kFewExperts = 65;

// Enough for a count of valid rows below, at and between both ends.
constexpr std::int64_t kCountedRows = 3;
// More slots of one expert than 8 bits count, and where the gate is small, than 10 bits do.
constexpr std::int64_t kCrowd = 300, kBigCrowd = 1100, kSmallGate = 1 << 16;

// Sattolo's algorithm: one cycle over all rows, so no row keeps its place.
std::vector<std::int64_t> derangement(std::int64_t count, Choices& choices) {
  std::vector<std::int64_t> rows = first_rows(count);
  for (std::int64_t i = count - 1; i > 0; --i) {
    std::swap(rows[static_cast<std::size_t>(i)], rows[static_cast<std::size_t>(choices.below(i))]);
  }
  return rows;
}

// Every second row is kept, the others become NaN, Inf and huge in turn; padding is never kept.
std::vector<RowReplacement> loud(std::size_t count, std::int64_t valid, bool keep_even) {
  constexpr RowReplacement kKinds[] = {RowReplacement::kNaN, RowReplacement::kInf, RowReplacement::kHuge};
  std::vector<RowReplacement> replace(count, RowReplacement::kKeep);
  std::size_t kind = 0;
  for (std::size_t r = 0; r < count; ++r) {
    const bool padding = static_cast<std::int64_t>(r) >= valid;
    if (padding || (r % 2 == 0) != keep_even) replace[r] = kKinds[kind++ % 3];
  }
  return replace;
}

// The first rows with every kind of num_valid_rows: none of them (twice, with another poison), one, all but one, all,
// and on both sides of 0 .. T. `valid`: rows of main before the padding; where there is none, only such counts.
void plan_counts(const Claims& claims, std::int64_t valid, std::vector<RunRequest>& plan) {
  RunRequest run = plan.front();
  std::int64_t count = valid > 0 ? valid : static_cast<std::int64_t>(run.rows.size());
  count = std::min(count, claims.max_tokens > 0 ? std::min(claims.max_tokens, kCountedRows) : kCountedRows);
  if (count == 0) return;
  run.rows = first_rows(count);
  for (const std::int64_t n : std::set<std::int64_t>{-3, 0, 1, count - 1, count, count + 5}) {
    if (valid == 0 && n > 0) continue;
    run.id = "count/" + std::to_string(n);
    run.num_valid_rows = static_cast<std::int32_t>(n);
    plan.push_back(run);
    if (n != 0) continue;
    plan.push_back(run);
    plan.back().id = "count/0_again";
    plan.back().poison = kPoisonB;
  }
}

}  // namespace

std::vector<RunRequest> plan_runs(const Case& c, const Claims& claims) {
  const CaseDescription& description = c.description;
  const std::int64_t num_tokens = description.data ? description.data->num_tokens : description.num_tokens;
  const std::optional<std::int32_t> num_valid_rows = description.data && description.data->num_valid_rows
                                                         ? description.data->num_valid_rows
                                                         : description.num_valid_rows;
  const std::int64_t valid = num_valid_rows ? std::clamp<std::int64_t>(*num_valid_rows, 0, num_tokens) : num_tokens;
  const bool full_stage = description.data ? !description.data->from_logits() : description.stage == Stage::kFull;
  Choices choices(description.data_key ^ 0x706c616e5f72756eu);

  RunRequest like_main;
  like_main.poison = kPoisonA;
  // Given logits that are wanted come out again: in one of four cases.
  like_main.want_logits =
      claims.returns_logits && (full_stage || Choices(description.data_key ^ 0x676976656e5f6f75u).below(4) == 0);

  std::vector<RunRequest> plan;
  const auto add = [&](std::string id, std::vector<std::int64_t> rows) -> RunRequest& {
    plan.push_back(like_main);
    plan.back().id = std::move(id);
    plan.back().rows = std::move(rows);
    return plan.back();
  };

  RunRequest& main = add("main", first_rows(num_tokens));
  main.num_valid_rows = num_valid_rows;
  main.want_bookkeeping = claims.returns_bookkeeping;
  if (main.want_bookkeeping) main.block_size = choices.below(2) == 0 ? 16 : 64;

  RunRequest repeat = plan.front();
  repeat.id = "repeat";
  repeat.poison = kPoisonB;
  plan.push_back(std::move(repeat));
  RunRequest& empty = add("empty", {});
  empty.want_bookkeeping = claims.returns_bookkeeping;
  empty.block_size = plan.front().block_size;
  plan_counts(claims, valid, plan);
  if (valid == 0) return plan;

  const bool keep_even = choices.below(2) == 0;
  std::vector<std::int64_t> loud_rows = valid >= 2 ? first_rows(num_tokens) : std::vector<std::int64_t>{};
  std::optional<std::int32_t> loud_valid = num_valid_rows;

  if (claims.determinism == Determinism::kBatchInvariant) {
    if (num_tokens > 1) {
      std::set<std::int64_t> alone{0, valid - 1, choices.below(valid), choices.below(valid)};
      for (const std::int64_t row : alone) add("alone/" + std::to_string(row), {row});
    }

    std::set<std::int64_t> prefixes;
    for (const std::int64_t n : {std::int64_t{16}, std::int64_t{17}}) {
      if (n < valid) prefixes.insert(n);
    }
    if (valid > 2) prefixes.insert(2 + choices.below(std::min(valid - 2, kMaxPrefix - 1)));
    for (const std::int64_t n : prefixes) add("prefix/" + std::to_string(n), first_rows(n));

    std::set<std::int64_t> tiled(std::begin(kTiledRows), std::end(kTiledRows));
    tiled.insert(oracle::topk_columns(c.spec));
    if (oracle::gate_rows(c.spec) <= kFewExperts) tiled.insert(oracle::gate_rows(c.spec));
    for (const std::int64_t n : tiled) {
      if (valid >= n || (claims.max_tokens > 0 && n > claims.max_tokens)) continue;
      std::vector<std::int64_t> rows = first_rows(n);
      for (std::int64_t& row : rows) row %= valid;
      add("tiled/" + std::to_string(n), rows);
      if (loud_rows.empty() && n >= kTiledRows[0]) {
        loud_rows = std::move(rows);
        loud_valid.reset();
      }
    }

    if (valid > 1) {
      std::vector<std::int64_t> rows = derangement(valid, choices);
      if (valid >= kManyRows) {
        rows.resize(static_cast<std::size_t>((valid + 3) / 4));
        loud_rows = rows;
        loud_valid.reset();
      }
      add("permuted", std::move(rows));
    }
  }

  // The same rows in the same places as another run, so that nothing but the neighbours' values differs from it.
  if (!loud_rows.empty()) {
    const auto count = static_cast<std::int64_t>(loud_rows.size());
    RunRequest& run = add("loud_neighbours", std::move(loud_rows));
    run.num_valid_rows = loud_valid;
    run.replace = loud(run.rows.size(), loud_valid ? std::clamp<std::int64_t>(*loud_valid, 0, count) : count,
                       keep_even || count == 1);
  }
  const std::int64_t gate = oracle::gate_rows(c.spec) * (full_stage ? oracle::hidden_size(c.spec) : 1);
  std::int64_t crowd_rows = gate <= kSmallGate ? kBigCrowd : kCrowd;
  if (claims.max_tokens > 0) crowd_rows = std::min(crowd_rows, claims.max_tokens);
  if (num_tokens == 1 && claims.returns_bookkeeping && crowd_rows >= kCrowd) {
    RunRequest& crowd = add("crowd", std::vector<std::int64_t>(static_cast<std::size_t>(crowd_rows), 0));
    crowd.want_bookkeeping = true;
    crowd.block_size = plan.front().block_size;
  }
  plan_special_runs(c, claims, valid, plan);
  plan_wide_runs(c, claims, valid, plan);
  return plan;
}

}  // namespace samebits::properties
