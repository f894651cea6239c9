#include "properties/laws/rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "oracle/reference/answer.h"
#include "oracle/tensors/bf16.h"
#include "properties/spec_features.h"

namespace samebits::properties {

std::string text(float value) {
  char buffer[48];
  std::snprintf(buffer, sizeof buffer, "%.9g (0x%08x)", static_cast<double>(value),
                std::bit_cast<std::uint32_t>(value));
  return buffer;
}

std::string text(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.12g", value);
  return buffer;
}

std::string text(const Interval& interval) {
  return interval.lower == interval.upper ? text(interval.lower)
                                          : "[" + text(interval.lower) + ", " + text(interval.upper) + "]";
}

std::string text(std::span<const std::int64_t> values) {
  std::string line = "[";
  for (const std::int64_t value : values) {
    if (line.size() > 1) line += ", ";
    line += std::to_string(value);
  }
  return line + "]";
}

std::string expert_text(const oracle::RowAnswer<float>& answer, std::int64_t id) {
  const auto e = static_cast<std::size_t>(id);
  if (e >= answer.keys.size()) return "id " + std::to_string(id);
  return "expert " + std::to_string(id) +
         (answer.excluded[e] != 0 ? " (group rejected)" : " (key " + text(answer.keys[e]) + ")");
}

std::string keys_text(const BoundedRow& row, std::int64_t a, std::int64_t b) {
  const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
  if (a < 0 || b < 0 || std::max(i, j) >= row.keys.size()) return "";
  return ": keys " + text(row.keys[i]) + " and " + text(row.keys[j]);
}

std::string ulp_text(float a, float b) {
  if (!std::isfinite(a) || !std::isfinite(b)) return "";
  if (a == b) return "equal in value";
  return std::to_string(oracle::ulp_distance(a, b)) + " ulp apart";
}

std::string shape_problem(const Run& run, const oracle::RouterSpec& spec) {
  const oracle::RouterOutputs& outputs = run.result.outputs;
  const std::size_t rows = run.request.rows.size();
  const auto k = static_cast<std::size_t>(oracle::topk_columns(spec));
  const auto e = static_cast<std::size_t>(oracle::gate_rows(spec));
  const auto wrong = [](const char* name, std::size_t found, std::size_t wanted) {
    return std::string(name) + " has " + std::to_string(found) + " elements; " + std::to_string(wanted) +
           " were asked for";
  };
  if (outputs.topk_ids.size() != rows * k) return wrong("topk_ids", outputs.topk_ids.size(), rows * k);
  if (outputs.topk_weights.size() != rows * k) return wrong("topk_weights", outputs.topk_weights.size(), rows * k);
  if (!outputs.router_logits.empty() && outputs.router_logits.size() != rows * e) {
    return wrong("router_logits", outputs.router_logits.size(), rows * e);
  }
  return "";
}

bool is_complete(const Evidence& evidence, const Run& run) {
  return run.result.status == RunResult::Status::kOk && run.request.misuse == Misuse::kNone &&
         shape_problem(run, evidence.c.spec).empty();
}

bool is_usable(const Evidence& evidence, const Run& run) {
  return is_ordinary(run.request) && is_complete(evidence, run);
}

const Run* usable(const Evidence& evidence, const std::string& id) {
  const Run* run = evidence.find(id);
  return run != nullptr && is_usable(evidence, *run) ? run : nullptr;
}

std::int64_t num_rows(const Run& run) {
  return static_cast<std::int64_t>(run.request.rows.size());
}

std::int64_t valid_rows(const Run& run) {
  if (!run.request.num_valid_rows) return num_rows(run);
  return std::clamp<std::int64_t>(*run.request.num_valid_rows, 0, num_rows(run));
}

std::int64_t case_row(const Run& run, std::int64_t r) {
  return run.request.rows[static_cast<std::size_t>(r)];
}

bool is_kept(const Run& run, std::int64_t r) {
  return run.request.replace.empty() || run.request.replace[static_cast<std::size_t>(r)] == RowReplacement::kKeep;
}

RowView row_view(const Run& run, std::int64_t r) {
  const oracle::RouterOutputs& outputs = run.result.outputs;
  const auto row = static_cast<std::size_t>(r);
  const std::size_t rows = run.request.rows.size();
  const std::size_t k = outputs.topk_ids.size() / rows;
  const std::size_t e = outputs.router_logits.size() / rows;
  return {std::span(outputs.topk_ids).subspan(row * k, k), std::span(outputs.topk_weights).subspan(row * k, k),
          std::span(outputs.router_logits).subspan(row * e, e)};
}

std::vector<JudgedRow> judged_rows(const Evidence& evidence) {
  std::vector<JudgedRow> rows;
  const Run* main = usable(evidence, "main");
  if (main == nullptr) return rows;
  const std::int64_t valid = valid_rows(*main);
  const auto add = [&](const Run& run) {
    for (std::int64_t r = 0; r < valid_rows(run); ++r) {
      if (case_row(run, r) < valid) rows.push_back({&run, r, case_row(run, r), row_view(run, r)});
    }
  };
  const bool all_runs = evidence.claims.determinism == Determinism::kBatchInvariant;
  std::int64_t most = valid;
  for (const Run& run : evidence.runs) most += all_runs ? num_rows(run) : 0;
  rows.reserve(static_cast<std::size_t>(most));
  add(*main);
  if (!all_runs) return rows;
  for (const Run& run : evidence.runs) {
    if (&run != main && run.request.replace.empty() && is_usable(evidence, run)) add(run);
  }
  return rows;
}

void name_run(Violation& violation, const JudgedRow& judged) {
  if (judged.in_main()) return;
  violation.notes.push_back("seen in run " + judged.run->request.id + ", as row " + std::to_string(judged.r) + " of " +
                            std::to_string(num_rows(*judged.run)));
}

std::vector<std::int64_t> answer_ids(const oracle::RowAnswer<float>& answer) {
  return {answer.ids.begin(), answer.ids.end()};
}

bool may_be_renamed(const oracle::RouterSpec& spec, const RowView& row, std::size_t slot) {
  return renames_zero_experts(spec) && row.ids[slot] == 0 && row.weights[slot] == 0.0f;
}

std::string ids_problem(const oracle::RouterSpec& spec, const RowView& row) {
  const std::int64_t num_ids = oracle::gate_rows(spec);
  const bool renames = renames_zero_experts(spec);
  for (std::size_t i = 0; i < row.ids.size(); ++i) {
    const std::int64_t id = row.ids[i];
    const auto place = [&] { return "id " + std::to_string(id) + " in slot " + std::to_string(i); };
    if (id < 0 || id >= num_ids) return place() + " is outside 0 .. " + std::to_string(num_ids - 1);
    if (renames && id >= oracle::num_experts(spec) && id < oracle::ranked_experts(spec)) {
      return place() + " is that of a zero expert, which has to become id 0 with weight 0";
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (id == row.ids[j] && !may_be_renamed(spec, row, i) && !may_be_renamed(spec, row, j)) {
        return "id " + std::to_string(id) + " is in slots " + std::to_string(j) + " and " + std::to_string(i);
      }
    }
  }
  return "";
}

bool has_answer(const Evidence& evidence, std::int64_t row) {
  return oracle::row_constants(evidence.c.spec, evidence.inputs, row).routable;
}

std::vector<JudgedRow> answered_rows(const Evidence& evidence) {
  std::vector<JudgedRow> rows = judged_rows(evidence);
  std::erase_if(rows, [&](const JudgedRow& judged) { return !has_answer(evidence, judged.row); });
  return rows;
}

std::optional<Difference> first_answer(const RowView& row) {
  for (std::size_t i = 0; i < row.ids.size(); ++i) {
    const std::string slot = " in slot " + std::to_string(i);
    const auto at = static_cast<std::int64_t>(i);
    if (row.ids[i] != -1) return Difference{"id" + slot, at, std::to_string(row.ids[i]), "-1", ""};
    if (!same_bits(row.weights[i], 0.0f)) return Difference{"weight" + slot, at, text(row.weights[i]), text(0.0f), ""};
  }
  return std::nullopt;
}

namespace {

template <class T>
bool same_bytes(std::span<const T> a, std::span<const T> b) {
  const std::size_t size = std::min(a.size(), b.size());
  return size == 0 || std::memcmp(a.data(), b.data(), size * sizeof(T)) == 0;
}

}  // namespace

std::optional<Difference> first_difference(const RowView& observed, const RowView& expected) {
  if (same_bytes(observed.ids, expected.ids) && same_bytes(observed.weights, expected.weights) &&
      same_bytes(observed.logits, expected.logits)) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < observed.ids.size(); ++i) {
    if (observed.ids[i] == expected.ids[i]) continue;
    return Difference{"id in slot " + std::to_string(i), static_cast<std::int64_t>(i), std::to_string(observed.ids[i]),
                      std::to_string(expected.ids[i]), ""};
  }
  for (std::size_t i = 0; i < observed.weights.size(); ++i) {
    const float a = observed.weights[i];
    const float b = expected.weights[i];
    if (same_bits(a, b)) continue;
    return Difference{"weight in slot " + std::to_string(i) + " (expert " + std::to_string(observed.ids[i]) + ")",
                      static_cast<std::int64_t>(i), text(a), text(b), ulp_text(a, b)};
  }
  for (std::size_t e = 0; e < std::min(observed.logits.size(), expected.logits.size()); ++e) {
    const float a = observed.logits[e];
    const float b = expected.logits[e];
    if (same_bits(a, b)) continue;
    return Difference{"logit of expert " + std::to_string(e), -1, text(a), text(b), ulp_text(a, b)};
  }
  return std::nullopt;
}

std::vector<float> rounded_weights(std::span<const float> weights) {
  std::vector<float> rounded;
  for (const float weight : weights) {
    const float value = oracle::round_to_bf16(weight);
    rounded.push_back(std::isfinite(value) ? value : 0.0f);
  }
  return rounded;
}

namespace {

// A router with a declared error bound may round a wider value than the fp32 weight that it returns otherwise; that
// lies within one fp32 step of it, so that rounding it gives what rounding one of the neighbours gives.
void take_nearby_roundings(std::span<const float> weights, std::span<const float> observed,
                           std::vector<float>& rounded) {
  for (std::size_t i = 0; i < rounded.size(); ++i) {
    for (const float towards : {-INFINITY, INFINITY}) {
      const float neighbour = oracle::round_to_bf16(std::nextafter(weights[i], towards));
      if (same_bits(neighbour, observed[i])) rounded[i] = neighbour;
    }
  }
}

}  // namespace

std::string count_differences(const RowView& observed, const RowView& expected) {
  const auto count = [](auto a, auto b, auto same) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) n += same(a[i], b[i]) ? 0 : 1;
    return std::to_string(n) + " of " + std::to_string(std::min(a.size(), b.size()));
  };
  std::string line = "ids differ in " +
                     count(observed.ids, expected.ids, [](std::int64_t a, std::int64_t b) { return a == b; }) +
                     " slots, weights in " + count(observed.weights, expected.weights, same_bits);
  if (!observed.logits.empty() && !expected.logits.empty()) {
    line += ", logits in " + count(observed.logits, expected.logits, same_bits);
  }
  return line;
}

void compare_with_main(const Evidence& evidence, const Run& run, const Law& law, const std::string& where,
                       LawOutcome& outcome) {
  const Run* main = usable(evidence, "main");
  if (main == nullptr || !is_complete(evidence, run)) return;
  const bool same_call =
      run.request.rows == main->request.rows && run.request.num_valid_rows == main->request.num_valid_rows;
  const std::int64_t valid = valid_rows(*main);
  for (std::int64_t r = 0; r < num_rows(run); ++r) {
    const std::int64_t row = case_row(run, r);
    const bool padding = r >= valid_rows(run);
    if (row >= valid && !padding && !same_call) continue;
    ++outcome.relevant;
    if (outcome.violation) continue;
    if (padding && !same_call) {
      if (const auto answer = first_answer(row_view(run, r))) {
        outcome.violation =
            violation_of(*answer, law.id, row, where + " as a padding row (run " + run.request.id + ")");
      }
      continue;
    }
    RowView observed = row_view(run, r);
    RowView expected = row_view(*main, row);
    if (padding) observed.logits = expected.logits = {};  // untouched: each run has its own filling there
    std::vector<float> rounded;
    if (run.request.layout.weights_bf16) {
      rounded = rounded_weights(expected.weights);
      if (!evidence.claims.bit_exact()) take_nearby_roundings(expected.weights, observed.weights, rounded);
      expected.weights = rounded;
    }
    const auto difference = first_difference(observed, expected);
    if (!difference) continue;
    outcome.violation = violation_of(*difference, law.id, row, where + " (run " + run.request.id + ")");
    outcome.violation->summary += "; expected is its value in run main";
    outcome.violation->notes.push_back(count_differences(observed, expected));
  }
  const bool books = same_call && main->request.want_bookkeeping && run.request.want_bookkeeping &&
                     run.request.omitted_books == 0 && run.request.block_size == main->request.block_size;
  if (!books || outcome.violation || run.result.outputs.bookkeeping == main->result.outputs.bookkeeping) return;
  Violation violation;
  violation.law = law.id;
  violation.observed = "other bookkeeping";
  violation.expected = "that of run main";
  violation.summary = "the bookkeeping" + where + " (run " + run.request.id + ") differs from that of run main";
  outcome.violation = violation;
}

Violation violation_of(const Difference& difference, const char* law, std::int64_t row, const std::string& where) {
  Violation violation;
  violation.law = law;
  violation.row = row;
  violation.slot = difference.slot;
  violation.observed = difference.observed;
  violation.expected = difference.expected;
  violation.summary = "row " + std::to_string(row) + ": " + difference.what + where + " is " + difference.observed +
                      ", expected " + difference.expected;
  if (!difference.distance.empty()) violation.summary += ", " + difference.distance;
  return violation;
}

}  // namespace samebits::properties
