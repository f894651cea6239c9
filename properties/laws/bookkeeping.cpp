#include <algorithm>
#include <cstddef>

#include "properties/laws/laws.h"
#include "properties/laws/rows.h"

namespace samebits::properties {
namespace {

std::optional<std::string> not_applicable(const oracle::RouterSpec&, const Claims& claims) {
  if (claims.returns_bookkeeping) return std::nullopt;
  return "the router does not return dispatch bookkeeping";
}

// Ids that bookkeeping is defined for: -1 (padding, no answer) or in range. Anything else is the matter of other laws.
bool countable(const std::vector<std::int64_t>& ids, std::int64_t num_ids) {
  return std::all_of(ids.begin(), ids.end(), [&](std::int64_t id) { return id >= -1 && id < num_ids; });
}

std::optional<Violation> compare(const oracle::Bookkeeping& observed, const oracle::Bookkeeping& expected,
                                 const Run& run) {
  Violation violation;
  violation.law = kBookkeeping.id;
  const auto report = [&](const std::string& what, const std::string& seen, const std::string& wanted) {
    violation.observed = seen;
    violation.expected = wanted;
    violation.summary = what + " is " + seen + ", expected " + wanted + " (run " + run.request.id + ", " +
                        std::to_string(num_rows(run)) + " rows, block size " + std::to_string(run.request.block_size) +
                        ")";
    return violation;
  };
  unsigned output = 0;
  const auto is_omitted = [&] { return (run.request.omitted_books >> output & 1u) != 0; };
  for (const auto& [name, part] : kBookkeepingArrays) {
    const bool omitted = is_omitted();
    ++output;
    if (omitted) continue;
    const std::vector<std::int32_t>& a = observed.*part;
    const std::vector<std::int32_t>& b = expected.*part;
    if (a.size() != b.size()) {
      return report("the length of " + std::string(name), std::to_string(a.size()), std::to_string(b.size()));
    }
    const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin());
    if (x == a.end()) continue;
    return report(std::string(name) + "[" + std::to_string(x - a.begin()) + "]", std::to_string(*x),
                  std::to_string(*y));
  }
  if (!is_omitted() && observed.num_tokens_post_padded != expected.num_tokens_post_padded) {
    return report("num_tokens_post_padded", std::to_string(observed.num_tokens_post_padded),
                  std::to_string(expected.num_tokens_post_padded));
  }
  return std::nullopt;
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  const std::int64_t num_ids = oracle::gate_rows(evidence.c.spec);
  for (const Run& run : evidence.runs) {
    const oracle::RouterOutputs& outputs = run.result.outputs;
    const bool readable = run.request.variation == Variation::kNone && is_complete(evidence, run);
    if (!run.request.want_bookkeeping || !readable || !countable(outputs.topk_ids, num_ids)) {
      continue;
    }
    outcome.relevant += num_rows(run);
    if (outcome.violation) continue;
    outcome.violation =
        compare(outputs.bookkeeping,
                oracle::bookkeeping(outputs.topk_ids, num_rows(run), oracle::topk_columns(evidence.c.spec), num_ids,
                                    run.request.block_size),
                run);
  }
  return outcome;
}

}  // namespace

constinit const Law kBookkeeping = {
    .id = "bookkeeping",
    .statement =
        "counts, offsets, both permutations and the padded block form are the ones that the returned ids "
        "define, slots of an expert in ascending order",
    .source =
        "sgl-project/sglang#33511 (order by atomics), ROCm/aiter#4482, flashinfer-ai/flashinfer#4735 (stale tail)",
    .hazards =
        "empty experts, one expert for all rows (300, of a small gate 1,100), padding rows, E beyond 512, block sizes "
        "from 1 to 128, some of the outputs alone, without logits, int64 ids",
    .min_relevant = 8,
    .not_applicable = not_applicable,
    .check = check,
};

}  // namespace samebits::properties
