#include "harness/witness/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/io/safetensors.h"
#include "harness/io/spec_library.h"
#include "harness/io/tensor_text.h"
#include "harness/witness/row_certificate.h"
#include "oracle/emulate/prepared_input.h"
#include "oracle/exact/logit_bounds.h"
#include "oracle/reference/answer.h"
#include "oracle/tensors/bf16.h"
#include "properties/for_each_row.h"

namespace samebits::harness {
namespace {

using oracle::LogitBounds;
using oracle::RouterInputs;
using oracle::RouterSpec;

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

// Reading i has the first i differences of the run.
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
    sum.threshold += difference.roundings.threshold;
    sum.weight += difference.roundings.weight;
    sum.log += difference.roundings.log;
    readings.push_back({oracle::resolve(file, resolution), sum});
  }
  return readings;
}

// fp32 sums in any order whose additions round to nearest: the recordings are made on CPUs. A term meets at most as
// many roundings as there are terms, a linear bias among them.
oracle::Arithmetic arithmetic_of(const oracle::RouterInputs& inputs) {
  return {oracle::Arithmetic::kFp32Depth, inputs.hidden_size + 1};
}

// The published router rounds the prepared row `roundings` times, the oracle once. The norm in fp32 adds H squares, and
// has a division, a root and two products; gamma_n, halved by the root, stays below (H + 8) 2^-24.
bool input_outside(const RouterSpec& spec, const Recording& recording, int roundings, std::int64_t row) {
  const auto hidden_size = static_cast<std::size_t>(recording.inputs.hidden_size);
  const double relative =
      std::pow(1.0 + kBf16Rounding, roundings + 1) - 1.0 + static_cast<double>(hidden_size + 8) * 0x1p-24;
  const std::vector<std::uint16_t> expected = oracle::prepared_input(spec, recording.inputs, row);
  const float* prepared = &recording.prepared_input[static_cast<std::size_t>(row) * hidden_size];
  for (std::size_t i = 0; i < hidden_size; ++i) {
    const auto value = static_cast<double>(oracle::bf16_to_fp32(expected[i]));
    if (!(std::fabs(static_cast<double>(prepared[i]) - value) <= relative * std::fabs(value) + 0x1p-133)) return true;
  }
  return false;
}

void compare_inputs(const Reading& reading, const Recording& recording, int roundings, Comparison& result) {
  const std::vector<WrongReading> wrong = wrong_preparations(reading);
  for (std::int64_t row = 0; row < recording.inputs.num_tokens; ++row) {
    result.inputs_outside += input_outside(reading.spec, recording, roundings, row) ? 1 : 0;
    if (row % kRowsPerWrongReading != 0) continue;
    for (const auto& [rule, other] : wrong) {
      result.wrong_rules[rule] += input_outside(other.spec, recording, roundings, row) ? 1 : 0;
    }
  }
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
  LogitBounds bounds = oracle::logit_bounds(reading.spec, recording.inputs, row, arithmetic_of(recording.inputs));
  const RowCertificate certificate(reading, recording.inputs, row, bounds, false);
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
  const RowCertificate by_logits(reading, recording.inputs, row, bounds, true);
  verdict.objection = by_logits.objection(answer.ids, answer.weights);
  if (!verdict.objection.empty()) verdict.objection += ", from the router's own logits";
  verdict.decided_by_logits = by_logits.decides(answer.ids);
  return verdict;
}

void compare_row(const RecordedRun& run, const std::vector<Reading>& readings, const Recording& recording,
                 std::int64_t row, Comparison& result) {
  const auto [ids, weights, logits] = answer_of(readings.front().spec, recording, row);
  ++result.rows;

  std::size_t accepted = 0;
  Verdict verdict = judge(readings[0], recording, row);
  while (!verdict.objection.empty() && ++accepted < readings.size()) {
    verdict = judge(readings[accepted], recording, row);
  }
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
    compare_inputs(readings.front(), recording, run.input_roundings, total);
    start_from_prepared_input(recording, readings);
  }
  const std::vector<WrongReading> wrong =
      run.try_wrong_rules ? wrong_readings(readings.back()) : std::vector<WrongReading>{};
  std::vector<Comparison> parts(static_cast<std::size_t>(rows));
  properties::for_each_row(rows, [&](std::int64_t row) {
    Comparison& own = parts[static_cast<std::size_t>(row)];
    compare_row(run, readings, recording, row, own);
    if (row % kRowsPerWrongReading != 0) return;
    for (const auto& [rule, reading] : wrong) {
      own.wrong_rules[rule] += judge(reading, recording, row).objection.empty() ? 0 : 1;
    }
  });
  for (const Comparison& own : parts) total += own;
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
