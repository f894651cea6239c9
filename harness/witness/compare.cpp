#include "harness/witness/compare.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/io/safetensors.h"
#include "harness/io/spec_library.h"
#include "harness/io/tensor_text.h"
#include "oracle/emulate/prepared_input.h"
#include "oracle/exact/key_bounds.h"
#include "oracle/exact/logit_bounds.h"
#include "oracle/exact/score_bounds.h"
#include "oracle/reference/answer.h"
#include "oracle/tensors/bf16.h"
#include "properties/certificate.h"

namespace samebits::harness {
namespace {

using oracle::LogitBounds;
using oracle::RouterInputs;
using oracle::RouterSpec;
using properties::BoundedRow;
using properties::Interval;
using properties::TieRule;

constexpr double kBf16Rounding = 0x1p-8;  // relative error of one rounding to bf16, whose significand has 8 bits
constexpr std::size_t kMaxExamples = 3;
constexpr std::int64_t kRowsPerWrongReading = 8;  // every eighth row is held against the wrong rules

struct Recording {
  RouterInputs inputs;
  std::vector<float> prepared_input;  // [T, H] as the gate's linear layer got it, or empty
  std::vector<float> router_logits;   // [T, G]
  std::vector<std::int64_t> ids;      // [T, K]
  std::vector<float> weights;         // [T, K]
};

template <class T>
std::vector<T> take(std::map<std::string, SafeTensor>& tensors, const std::string& name, const std::string& dtype) {
  const auto found = tensors.find(name);
  if (found == tensors.end() || found->second.dtype != dtype) {
    throw FileError("tensor " + name + " of type " + dtype + " is missing");
  }
  std::vector<T> values(found->second.bytes.size() / sizeof(T));
  std::memcpy(values.data(), found->second.bytes.data(), found->second.bytes.size());
  tensors.erase(found);
  return values;
}

Recording read_recording(const std::filesystem::path& path) {
  SafeTensors file = read_safetensors(path);
  Recording recording;
  recording.router_logits = take<float>(file.tensors, "router_logits", "F32");
  recording.ids = take<std::int64_t>(file.tensors, "topk_ids", "I64");
  recording.weights = take<float>(file.tensors, "topk_weights", "F32");
  if (file.tensors.contains("prepared_input")) {
    recording.prepared_input = take<float>(file.tensors, "prepared_input", "F32");
  }
  recording.inputs = from_tensors(file.tensors);
  return recording;
}

// The spec with the first differences of a run, and what the certificate grants beyond it.
struct Reading {
  RouterSpec spec;
  Roundings roundings;
};

std::vector<Reading> readings_of(const RecordedRun& run) {
  const oracle::SpecFile file = load_spec(run.spec);
  oracle::Resolution resolution = run.resolution;
  std::vector<Reading> readings = {{oracle::resolve(file, resolution), {}}};
  for (const Difference& difference : run.differences) {
    resolution.set.insert(resolution.set.end(), difference.set.begin(), difference.set.end());
    Roundings sum = readings.back().roundings;
    sum.score += difference.roundings.score;
    sum.key += difference.roundings.key;
    sum.group += difference.roundings.group;
    sum.weight += difference.roundings.weight;
    sum.log += difference.roundings.log;
    readings.push_back({oracle::resolve(file, resolution), sum});
  }
  return readings;
}

oracle::Arithmetic arithmetic_of(const RouterSpec& spec) {
  return spec.gate.logits_dtype == oracle::FloatType::kBf16 ? oracle::Arithmetic::kBf16Logits
                                                            : oracle::Arithmetic::kFp32AnyOrder;
}

Interval rounded_more(Interval value, int roundings) {
  const double more = std::pow(1.0 + kBf16Rounding, roundings);
  const double less = std::pow(1.0 - kBf16Rounding, roundings);
  return {std::min(value.lower * less, value.lower * more), std::max(value.upper * less, value.upper * more)};
}

// The certificate of one row under one reading.
class Certificate {
 public:
  Certificate(const Reading& reading, const RouterInputs& inputs, std::int64_t row, const LogitBounds& logits,
              bool exact)
      : reading_(reading),
        constants_(oracle::row_constants(reading.spec, inputs, row)),
        bounded_(properties::bound_row(reading.spec, logits, exact, constants_, TieRule::kAny)) {
    const Roundings& more = reading.roundings;
    for (std::size_t e = 0; e < bounded_.scores.size(); ++e) {
      const Interval before = bounded_.scores[e];
      const Interval score = bounded_.scores[e] = rounded_more(before, more.score);
      if (e >= bounded_.keys.size()) continue;
      for (Interval* key : {&bounded_.keys[e], &bounded_.biased[e]}) {
        const bool by_score = reading.spec.selection.rank_by == oracle::RankBy::kScore;
        if (by_score) *key = {key->lower - (before.lower - score.lower), key->upper + (score.upper - before.upper)};
        *key = rounded_more(*key, more.key);
      }
    }
    if (more.group > 0) open_groups();
  }

  // Empty: the spec allows this answer.
  std::string objection(std::span<const std::int64_t> ids, std::span<const float> weights) const {
    if (!bounded_.judged) return "not judged: a bound is not finite";
    if (const auto found = properties::selection_contradiction(reading_.spec, bounded_, ids, TieRule::kAny)) {
      return found->reason;
    }
    std::vector<Interval> bounds = properties::weight_bounds(reading_.spec, bounded_, ids);
    if (reading_.roundings.log > 0) bounds = logs_rounded(std::move(bounds), ids);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const Interval allowed = rounded_more(bounds[i], reading_.roundings.weight);
      if (allowed.contains(static_cast<double>(weights[i]))) continue;
      return fmt::format("weight {} of expert {} is outside [{}, {}]", weights[i], ids[i], allowed.lower,
                         allowed.upper);
    }
    return {};
  }

  // Whether the weakest of the chosen certainly ranks before the strongest of the others.
  bool decides(std::span<const std::int64_t> ids) const {
    if (!bounded_.judged) return false;
    const auto k = static_cast<std::size_t>(oracle::top_k(reading_.spec));
    std::vector<std::int64_t> swapped(ids.begin(), ids.end());
    std::size_t weakest = 0;
    std::vector<bool> chosen(bounded_.keys.size());
    for (std::size_t i = 0; i < k; ++i) {
      const auto id = static_cast<std::size_t>(ids[i]);
      if (id >= chosen.size()) return true;  // a table has no keys
      chosen[id] = true;
      if (bounded_.keys[id].lower < bounded_.keys[static_cast<std::size_t>(ids[weakest])].lower) weakest = i;
    }
    const bool excludes = reading_.spec.selection.group_mask == oracle::GroupMask::kNegInf;
    std::optional<std::size_t> strongest;
    for (std::size_t e = 0; e < bounded_.keys.size(); ++e) {
      if (chosen[e]) continue;
      if (excludes && bounded_.group[e] == properties::GroupState::kRejected) continue;
      if (!strongest || bounded_.keys[e].upper > bounded_.keys[*strongest].upper) strongest = e;
      if (!bounded_.group.empty() && bounded_.group[e] == properties::GroupState::kPossiblyKept) return false;
    }
    if (!strongest) return true;
    swapped[weakest] = static_cast<std::int64_t>(*strongest);
    return properties::selection_contradiction(reading_.spec, bounded_, swapped, TieRule::kAny).has_value();
  }

 private:
  // Groups whose score may be among the kept ones after the roundings of group scores may be kept; for groups with a
  // `zero` mask, whose members then have their own key or 0.
  void open_groups() {
    const auto num_groups = static_cast<std::size_t>(reading_.spec.selection.n_group);
    const std::size_t size = bounded_.biased.size() / num_groups;
    std::vector<Interval> scores;
    for (std::size_t g = 0; g < num_groups; ++g) {
      const std::span members = std::span(bounded_.biased).subspan(g * size, size);
      scores.push_back(
          rounded_more(oracle::group_score_bounds(reading_.spec.selection.group_score, members, oracle::kFp32Steps),
                       reading_.roundings.group));
    }
    for (std::size_t g = 0; g < num_groups; ++g) {
      std::int64_t certainly_before = 0, possibly_before = 0;
      for (std::size_t h = 0; h < num_groups; ++h) {
        certainly_before += h != g && scores[h].lower > scores[g].upper ? 1 : 0;
        possibly_before += h != g && scores[h].upper >= scores[g].lower ? 1 : 0;
      }
      const std::int64_t kept = reading_.spec.selection.topk_group;
      if (certainly_before >= kept || possibly_before < kept) continue;
      for (std::size_t e = g * size; e < (g + 1) * size; ++e) {
        bounded_.group[e] = properties::GroupState::kPossiblyKept;
        bounded_.keys[e] = oracle::hull(bounded_.biased[e], {0.0, 0.0});
      }
    }
  }

  // Error of the exponent of w_i = exp(l_i - log sum exp(l)) when l, the logarithm and the difference are each rounded
  // to bf16: |l_i| + sum p_j |l_j| + |log sum exp(l)| + |l_i - log sum exp(l)|, each times 2^-8, p being the softmax of
  // l. An l that is off by d changes p_j by at most e^2d.
  std::vector<Interval> logs_rounded(std::vector<Interval> weights, std::span<const std::int64_t> ids) const {
    std::vector<Interval> l;
    double low_sum = 0.0, high_sum = 0.0, largest = 0.0;
    for (const std::int64_t id : ids) {
      l.push_back(oracle::log_sigmoid_bounds(bounded_.logits[static_cast<std::size_t>(id)], oracle::kFp32Steps));
      low_sum += std::exp(l.back().lower);
      high_sum += std::exp(l.back().upper);
      largest = std::max(largest, oracle::magnitude(l.back()));
    }
    const Interval log_sum{std::log(low_sum), std::log(high_sum)};
    double inside = 0.0;
    for (const Interval& value : l) inside += std::exp(value.upper) / low_sum * oracle::magnitude(value);
    inside *= std::exp(2.0 * largest * kBf16Rounding);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const Interval difference{l[i].lower - log_sum.upper, l[i].upper - log_sum.lower};
      const double error =
          oracle::magnitude(l[i]) + inside + oracle::magnitude(log_sum) + oracle::magnitude(difference);
      const double factor = std::exp(error * kBf16Rounding * reading_.roundings.log);
      weights[i] = {weights[i].lower / factor, weights[i].upper * factor};
    }
    return weights;
  }

  const Reading& reading_;
  oracle::RowConstants constants_;
  BoundedRow bounded_;
};

// The published router rounds the prepared row `roundings` times, the oracle once. The norm in fp32 adds H squares, and
// has a division, a root and two products; gamma_n, halved by the root, stays below (H + 8) 2^-24.
std::int64_t inputs_outside(const RouterSpec& spec, const Recording& recording, int roundings) {
  const auto hidden_size = static_cast<std::size_t>(recording.inputs.hidden_size);
  const double relative =
      std::pow(1.0 + kBf16Rounding, roundings + 1) - 1.0 + static_cast<double>(hidden_size + 8) * 0x1p-24;
  std::int64_t outside = 0;
  for (std::int64_t row = 0; row < recording.inputs.num_tokens; ++row) {
    const std::vector<std::uint16_t> expected = oracle::prepared_input(spec, recording.inputs, row);
    for (std::size_t i = 0; i < hidden_size; ++i) {
      const double value =
          static_cast<double>(recording.prepared_input[static_cast<std::size_t>(row) * hidden_size + i]);
      const auto contract = static_cast<double>(oracle::bf16_to_fp32(expected[i]));
      outside += std::fabs(value - contract) <= relative * std::fabs(contract) + 0x1p-133 ? 0 : 1;
    }
  }
  return outside;
}

// From here on the gate reads the recorded row as it is.
void start_from_prepared_input(Recording& recording, std::vector<Reading>& readings) {
  for (std::size_t i = 0; i < recording.prepared_input.size(); ++i) {
    recording.inputs.hidden_states[i] = oracle::fp32_to_bf16(recording.prepared_input[i]);
  }
  recording.inputs.input_scale_vector.clear();
  for (Reading& reading : readings) {
    const RouterSpec defaults;
    reading.spec.gate.input_norm = defaults.gate.input_norm;
    reading.spec.gate.input_norm_eps = defaults.gate.input_norm_eps;
    reading.spec.gate.input_scale_vector = defaults.gate.input_scale_vector;
    reading.spec.gate.input_scale_kind = defaults.gate.input_scale_kind;
    reading.spec.gate.input_scale = defaults.gate.input_scale;
  }
}

std::vector<std::int64_t> sorted(std::span<const std::int64_t> ids) {
  std::vector<std::int64_t> result(ids.begin(), ids.end());
  std::sort(result.begin(), result.end());
  return result;
}

struct Answer {
  std::span<const std::int64_t> ids;  // [K]
  std::span<const float> weights;     // [K]
  std::span<const float> logits;      // [G] of the gate's linear layer
};

Answer answer_of(const RouterSpec& spec, const Recording& recording, std::int64_t row) {
  const auto r = static_cast<std::size_t>(row);
  const auto columns = static_cast<std::size_t>(oracle::topk_columns(spec));
  const auto gate_rows = static_cast<std::size_t>(oracle::gate_rows(spec));
  return {std::span(recording.ids).subspan(r * columns, columns),
          std::span(recording.weights).subspan(r * columns, columns),
          std::span(recording.router_logits).subspan(r * gate_rows, gate_rows)};
}

struct Verdict {
  std::string objection;
  bool decided = false;
  bool decided_by_logits = false;
};

// Twice: from the hidden states, and from the router's own logits where its linear layer gives the finished ones.
Verdict judge(const Reading& reading, const Recording& recording, std::int64_t row) {
  const Answer answer = answer_of(reading.spec, recording, row);
  LogitBounds bounds = oracle::logit_bounds(reading.spec, recording.inputs, row, arithmetic_of(reading.spec));
  const Certificate certificate(reading, recording.inputs, row, bounds, false);
  Verdict verdict{.objection = certificate.objection(answer.ids, answer.weights)};
  if (!verdict.objection.empty()) return verdict;
  verdict.decided = certificate.decides(answer.ids);
  if (reading.spec.logits.temperature != 1.0 || reading.spec.logits.softcap) return verdict;

  for (std::size_t e = 0; e < answer.logits.size(); ++e) {
    const auto z = static_cast<double>(answer.logits[e]);
    if (!(bounds.lower[e] <= z && z <= bounds.upper[e])) {
      verdict.objection =
          fmt::format("logit {} of expert {} is outside [{}, {}]", z, e, bounds.lower[e], bounds.upper[e]);
      return verdict;
    }
    bounds.lower[e] = bounds.upper[e] = z;
  }
  const Certificate by_logits(reading, recording.inputs, row, bounds, true);
  verdict.objection = by_logits.objection(answer.ids, answer.weights);
  if (!verdict.objection.empty()) verdict.objection += ", from the router's own logits";
  verdict.decided_by_logits = by_logits.decides(answer.ids);
  return verdict;
}

struct WrongReading {
  std::string rule;
  Reading reading;
};

// Readings that a correct comparison must refuse: each leaves out or changes one step of the router.
std::vector<WrongReading> wrong_readings(const Reading& right) {
  std::vector<WrongReading> result;
  const auto add = [&](bool applies, const char* rule, const auto& change) {
    if (!applies) return;
    result.push_back({rule, right});
    change(result.back().reading.spec);
  };
  const RouterSpec& spec = right.spec;
  using oracle::Renormalize;
  const bool scores_first = spec.score.stage == oracle::ScoreStage::kBeforeTopk &&
                            spec.selection.method != oracle::SelectionMethod::kSparsemixer;
  add(spec.selection.bias != oracle::BiasType::kNone, "no bias",
      [](RouterSpec& s) { s.selection.bias = oracle::BiasType::kNone; });
  add(spec.gate.linear_bias != oracle::BiasType::kNone, "no linear bias",
      [](RouterSpec& s) { s.gate.linear_bias = oracle::BiasType::kNone; });
  add(spec.weights.renormalize == Renormalize::kL1 && oracle::top_k(spec) > 1, "not renormalised",
      [](RouterSpec& s) { s.weights.renormalize = Renormalize::kNone; });
  add(spec.weights.renormalize == Renormalize::kNone && scores_first, "renormalised",
      [](RouterSpec& s) { s.weights.renormalize = Renormalize::kL1; });
  add(spec.selection.n_group > 1, "no groups", [](RouterSpec& s) {
    s.selection.n_group = s.selection.topk_group = 1;
    s.selection.group_score = oracle::GroupScore::kNone;
    s.selection.group_mask = oracle::GroupMask::kNone;
  });
  add(spec.weights.routed_scaling_factor != 1.0 && spec.weights.scale_stage != oracle::ScaleStage::kOnExpertOutput,
      "no scale", [](RouterSpec& s) { s.weights.routed_scaling_factor = 1.0; });
  add(spec.weights.per_expert_scale, "no scale of the expert",
      [](RouterSpec& s) { s.weights.per_expert_scale = false; });
  add(spec.weights.global_scale, "no global scale", [](RouterSpec& s) { s.weights.global_scale = false; });
  add(spec.logits.softcap.has_value(), "no softcap", [](RouterSpec& s) { s.logits.softcap.reset(); });
  add(spec.sparsemixer_jitter_eps.has_value(), "a threshold ten times as wide",
      [](RouterSpec& s) { *s.sparsemixer_jitter_eps *= 10; });
  add(spec.score.func == oracle::ScoreFunc::kSqrtSoftplus, "sigmoid",
      [](RouterSpec& s) { s.score.func = oracle::ScoreFunc::kSigmoid; });
  add(spec.score.stage == oracle::ScoreStage::kAfterTopk && spec.score.func == oracle::ScoreFunc::kSigmoid, "softmax",
      [](RouterSpec& s) { s.score.func = oracle::ScoreFunc::kSoftmax; });
  add(spec.score.stage == oracle::ScoreStage::kAfterTopk && spec.score.func == oracle::ScoreFunc::kSoftmax,
      "softmax over all", [](RouterSpec& s) { s.score.stage = oracle::ScoreStage::kBeforeTopk; });
  return result;
}

void compare_row(const RecordedRun& run, const std::vector<Reading>& readings, const Recording& recording,
                 std::int64_t row, Comparison& result) {
  const auto [ids, weights, logits] = answer_of(readings.front().spec, recording, row);
  ++result.rows;

  std::size_t accepted = 0;
  Verdict verdict = judge(readings[0], recording, row);
  while (!verdict.objection.empty() && ++accepted < readings.size())
    verdict = judge(readings[accepted], recording, row);
  if (!verdict.objection.empty()) {
    ++result.unexplained;
    if (result.examples.size() < kMaxExamples) {
      result.examples.push_back(fmt::format("row {}: ids {}: {}", row, fmt::join(ids, " "), verdict.objection));
    }
    return;
  }
  if (accepted > 0) ++result.explained[run.differences[accepted - 1].kind];
  result.decided += verdict.decided ? 1 : 0;
  result.decided_by_logits += verdict.decided_by_logits ? 1 : 0;

  const RouterSpec& spec = readings[accepted].spec;
  const oracle::RowAnswer<double> answer =
      oracle::route_row(spec, std::span<const double>(oracle::logits_fp64(spec, recording.inputs, row)),
                        oracle::row_constants(spec, recording.inputs, row));
  const std::vector<std::int64_t> expected(answer.ids.begin(), answer.ids.end());
  if (sorted(ids) != sorted(expected)) {
    ++result.inside_bound;
  } else {
    ++result.equal_sets;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto slot =
          static_cast<std::size_t>(std::find(expected.begin(), expected.end(), ids[i]) - expected.begin());
      const double difference = std::fabs(answer.weights[slot] - static_cast<double>(weights[i]));
      const double size = std::max(std::fabs(answer.weights[slot]), 0x1p-126);
      result.largest_weight_difference = std::max(result.largest_weight_difference, difference / size);
    }
  }
}

}  // namespace

void Comparison::operator+=(const Comparison& other) {
  rows += other.rows;
  decided += other.decided;
  equal_sets += other.equal_sets;
  inside_bound += other.inside_bound;
  unexplained += other.unexplained;
  for (const auto& [kind, count] : other.explained) explained[kind] += count;
  largest_weight_difference = std::max(largest_weight_difference, other.largest_weight_difference);
  decided_by_logits += other.decided_by_logits;
  inputs_outside += other.inputs_outside;
  for (const auto& [rule, count] : other.wrong_rules) wrong_rules[rule] += count;
  unnoticed += other.unnoticed;
  for (const std::string& example : other.examples) {
    if (examples.size() < kMaxExamples) examples.push_back(example);
  }
}

Comparison compare(const RecordedRun& run) {
  std::vector<Reading> readings = readings_of(run);
  Recording recording = read_recording(run.file);
  const std::int64_t rows = recording.inputs.num_tokens;
  const std::int64_t columns = oracle::topk_columns(readings.front().spec);
  if (std::ssize(recording.ids) != rows * columns || std::ssize(recording.weights) != rows * columns ||
      std::ssize(recording.router_logits) != rows * oracle::gate_rows(readings.front().spec)) {
    throw FileError(run.file.string() + ": the shapes of the answer are not those of " + run.spec);
  }
  Comparison total;
  if (!recording.prepared_input.empty()) {
    total.inputs_outside = inputs_outside(readings.front().spec, recording, run.input_roundings);
    start_from_prepared_input(recording, readings);
  }
  const std::vector<WrongReading> wrong = wrong_readings(readings.back());
  std::mutex mutex;
  std::exception_ptr failure;
  std::atomic<std::int64_t> next{0};
  const auto work = [&] {
    Comparison own;
    try {
      for (std::int64_t row = next++; row < rows; row = next++) {
        compare_row(run, readings, recording, row, own);
        if (row % kRowsPerWrongReading != 0) continue;
        for (const auto& [rule, reading] : wrong) {
          own.wrong_rules[rule] += judge(reading, recording, row).objection.empty() ? 0 : 1;
        }
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
      next = rows;
    }
    const std::lock_guard lock(mutex);
    total += own;
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 1; i < std::max(1U, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
  // Most rows must contradict a wrong rule; a quarter is asked for, more than an accident and less than any rule gives.
  const std::int64_t tried = (rows + kRowsPerWrongReading - 1) / kRowsPerWrongReading;
  for (const auto& [rule, refused] : total.wrong_rules) {
    if (4 * refused >= tried) continue;
    total.unnoticed += 1;
    total.examples.push_back(fmt::format("wrong rule \"{}\" contradicts {} of {} rows", rule, refused, tried));
  }
  return total;
}

}  // namespace samebits::harness
