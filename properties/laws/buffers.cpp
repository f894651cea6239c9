#include <algorithm>
#include <bit>
#include <cstddef>

#include "properties/laws/laws.h"
#include "properties/laws/rows.h"

namespace samebits::properties {
namespace {

// What an output element looks like when the call left the poison in it: the pattern once (32 bits), twice (64 bits) or
// half of it (16 bits, widened); the halves of a pattern are equal.
bool is_poison(std::int32_t value, std::uint32_t poison) {
  return value == static_cast<std::int32_t>(poison);
}
bool is_poison(std::int64_t value, std::uint32_t poison) {
  const std::uint64_t twice = (static_cast<std::uint64_t>(poison) << 32) | poison;
  return value == static_cast<std::int64_t>(static_cast<std::int32_t>(poison)) ||
         value == static_cast<std::int64_t>(twice);
}
bool is_poison(float value, std::uint32_t poison) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return bits == poison || bits == (poison & 0xffff0000u);
}

struct Unwritten {
  std::string buffer;
  std::size_t index;
};

// The first of `count` elements that still holds the poison of its own run in both runs.
template <class T>
std::optional<Unwritten> first_unwritten(const char* buffer, std::span<const T> a, std::uint32_t poison_a,
                                         std::span<const T> b, std::uint32_t poison_b, std::size_t count) {
  for (std::size_t i = 0; i < std::min({a.size(), b.size(), count}); ++i) {
    if (is_poison(a[i], poison_a) && is_poison(b[i], poison_b)) return Unwritten{buffer, i};
  }
  return std::nullopt;
}

std::optional<Unwritten> find_unwritten(const Run& main, const Run& repeat) {
  const oracle::RouterOutputs& a = main.result.outputs;
  const oracle::RouterOutputs& b = repeat.result.outputs;
  const std::uint32_t pa = main.request.poison;
  const std::uint32_t pb = repeat.request.poison;
  const auto look = [&](const char* buffer, const auto& x, const auto& y, std::size_t count) {
    return first_unwritten(buffer, std::span(x), pa, std::span(y), pb, count);
  };
  if (auto found = look("topk_ids", a.topk_ids, b.topk_ids, a.topk_ids.size())) return found;
  if (auto found = look("topk_weights", a.topk_weights, b.topk_weights, a.topk_weights.size())) return found;
  if (!a.router_logits.empty()) {  // padding rows are left as they were
    const std::size_t width = a.router_logits.size() / main.request.rows.size();
    const std::size_t written = static_cast<std::size_t>(valid_rows(main)) * width;
    if (auto found = look("router_logits", a.router_logits, b.router_logits, written)) return found;
  }
  if (!main.request.want_bookkeeping) return std::nullopt;
  const oracle::Bookkeeping& x = a.bookkeeping;
  const oracle::Bookkeeping& y = b.bookkeeping;
  for (const auto& [name, part] : kBookkeepingArrays) {
    if (auto found = look(name, x.*part, y.*part, (x.*part).size())) return found;
  }
  return std::nullopt;
}

// Two runs of the same call on buffers with different fillings.
void find_unwritten_by(const Evidence& evidence, const char* first, const char* second, LawOutcome& outcome) {
  const Run* main = usable(evidence, first);
  const Run* repeat = usable(evidence, second);
  if (main == nullptr || repeat == nullptr || main->request.poison == repeat->request.poison) return;
  outcome.relevant += num_rows(*main);
  if (outcome.violation) return;
  if (const auto found = find_unwritten(*main, *repeat)) {
    Violation violation;
    violation.law = kBuffers.id;
    const bool per_slot = found->buffer == "topk_ids" || found->buffer == "topk_weights";
    const std::int64_t k = oracle::topk_columns(evidence.c.spec);
    std::string place = "element " + std::to_string(found->index);
    if (per_slot) {
      violation.row = case_row(*main, static_cast<std::int64_t>(found->index) / k);
      violation.slot = static_cast<std::int64_t>(found->index) % k;
      place = "row " + std::to_string(violation.row) + " slot " + std::to_string(violation.slot);
    }
    violation.observed = "the pattern that was there before the call";
    violation.expected = "a value";
    violation.summary = found->buffer + " " + place +
                        " was never written: two calls on buffers filled with different "
                        "patterns left both patterns in place";
    outcome.violation = violation;
  }
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  for (const Run& run : evidence.runs) {
    ++outcome.relevant;
    if ((run.result.guards_intact && run.result.inputs_intact) || outcome.violation) continue;
    Violation violation;
    violation.law = kBuffers.id;
    violation.observed = run.result.damage;
    violation.expected = "untouched memory";
    violation.summary = "run " + run.request.id + ": " +
                        (run.result.guards_intact ? "an input was written" : "memory outside a buffer was written") +
                        (run.result.damage.empty() ? "" : ": " + run.result.damage);
    outcome.violation = violation;
  }

  find_unwritten_by(evidence, "main", "repeat", outcome);
  find_unwritten_by(evidence, "count/0", "count/0_again", outcome);
  return outcome;
}

}  // namespace

constinit const Law kBuffers = {
    .id = "buffers",
    .statement = "every output element is written, nothing outside the outputs is, and inputs keep their bytes",
    .source =
        "sgl-project/sglang#15306 (ids left uninitialised), flashinfer-ai/flashinfer#3840 (outputs never "
        "written), NVIDIA/TransformerEngine#2821",
    .hazards =
        "two different fillings of the output buffers, guard bands, padding rows, no valid row, every row count of the "
        "run",
    .min_relevant = 8,
    .not_applicable = [](const oracle::RouterSpec&, const Claims&) -> std::optional<std::string> {
      return std::nullopt;
    },
    .check = check,
};

}  // namespace samebits::properties
