#include "properties/exhaustive/exhaustive.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "properties/exhaustive/sweeps.h"

namespace samebits::properties {

std::span<const ExhaustiveSweep> exhaustive_sweeps() {
  static const ExhaustiveSweep sweeps[] = {kFlags, kBookkeepingCounts, kBf16Values, kWeakOrders, kTiedPairs};
  return sweeps;
}

const ExhaustiveSweep* find_exhaustive(const std::string& name) {
  for (const ExhaustiveSweep& sweep : exhaustive_sweeps()) {
    if (name == sweep.name) return &sweep;
  }
  return nullptr;
}

oracle::RouterSpec plain_spec(const char* name, std::int64_t num_experts, std::int64_t top_k) {
  oracle::RouterSpec spec;
  spec.name = name;
  spec.family = "exhaustive";
  spec.sources = {"properties/exhaustive"};
  spec.shape.hidden_size = 16;
  spec.shape.num_experts = num_experts;
  spec.shape.top_k = top_k;
  spec.score.func = oracle::ScoreFunc::kIdentity;
  return spec;
}

Case given_logits(const ExhaustiveSweep& sweep, const oracle::RouterSpec& spec, std::vector<float> logits) {
  const std::int64_t width = oracle::gate_rows(spec);
  oracle::RouterInputs data;
  data.num_tokens = static_cast<std::int64_t>(logits.size()) / width;
  data.gate_rows = width;
  data.router_logits = std::move(logits);

  Case c;
  c.spec_name = spec.name;
  c.spec = spec;
  CaseDescription& d = c.description;
  d.hazard = sweep.name;
  d.stage = Stage::kFromLogits;
  d.num_tokens = data.num_tokens;
  d.num_experts = oracle::num_experts(spec);
  d.top_k = oracle::top_k(spec);
  d.n_group = spec.selection.n_group;
  d.topk_group = spec.selection.topk_group;
  d.zero_experts = spec.special.zero_experts;
  d.shared_in_gate = oracle::shared_in_gate(spec);
  d.data = std::move(data);
  return c;
}

std::vector<RunRequest> exhaustive_runs(const SweepBatch& batch, const Claims& claims) {
  const std::int64_t num_tokens = batch.c.description.num_tokens;
  RunRequest main;
  main.id = "main";
  main.rows.resize(static_cast<std::size_t>(num_tokens));
  std::iota(main.rows.begin(), main.rows.end(), std::int64_t{0});
  main.want_logits = claims.returns_logits && batch.c.description.stage == Stage::kFull;
  main.want_bookkeeping = claims.returns_bookkeeping;
  if (main.want_bookkeeping) main.block_size = batch.block_sizes.empty() ? 16 : batch.block_sizes.front();

  std::vector<RunRequest> runs{main};
  RunRequest& repeat = runs.emplace_back(main);
  repeat.id = "repeat";
  repeat.poison = 0x5a5a5a5au;
  if (num_tokens > 1 && claims.determinism == Determinism::kBatchInvariant) {
    // Every row in another place. Rows that only differ in what the sweep enumerates are far apart afterwards.
    RunRequest& permuted = runs.emplace_back(main);
    permuted.id = "permuted";
    std::int64_t step = num_tokens / 2 + 1;
    while (std::gcd(step, num_tokens) != 1) ++step;
    for (std::int64_t i = 0; i < num_tokens; ++i) {
      permuted.rows[static_cast<std::size_t>(i)] = (1 + i * step) % num_tokens;
    }
  }
  if (main.want_bookkeeping) {
    for (std::size_t i = 1; i < batch.block_sizes.size(); ++i) {
      RunRequest& blocks = runs.emplace_back(main);
      blocks.id = "blocks/" + std::to_string(batch.block_sizes[i]);
      blocks.block_size = batch.block_sizes[i];
    }
  }
  return runs;
}

Case only_row(const Case& c, std::int64_t row) {
  if (!c.description.data || row < 0 || row >= c.description.num_tokens) {
    throw std::invalid_argument("row " + std::to_string(row) + " of a case with " +
                                std::to_string(c.description.num_tokens) +
                                " rows; allowed are 0 to T - 1 of a case with explicit tensors");
  }
  RunRequest request;
  request.rows = {row};
  Case one = c;
  one.description.num_tokens = 1;
  one.description.num_valid_rows.reset();
  oracle::RouterInputs data = select_rows(*c.description.data, request);
  data.num_valid_rows.reset();
  if (!data.row_class.empty()) {
    // The bias of the row's class alone: a case file need not hold the others.
    const auto width = static_cast<std::ptrdiff_t>(oracle::ranked_experts(c.spec));
    const std::ptrdiff_t begin = data.row_class.front() * width;
    if (begin >= 0 && begin < std::ssize(data.selection_bias)) {
      data.selection_bias =
          std::vector<float>(data.selection_bias.begin() + begin, data.selection_bias.begin() + begin + width);
      data.row_class.clear();
      one.spec.selection.bias_variants = {"text"};
    }
  }
  one.description.data = std::move(data);
  return one;
}

}  // namespace samebits::properties
