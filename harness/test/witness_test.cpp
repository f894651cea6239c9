// The comparison of recorded routers accepts an honest one and refuses each kind of fault.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "harness/io/safetensors.h"
#include "harness/io/spec_library.h"
#include "harness/io/tensor_text.h"
#include "harness/test/io_temp_folder.h"
#include "harness/witness/compare.h"
#include "harness/witness/index.h"
#include "harness/witness/row_certificate.h"
#include "oracle/exact/logit_bounds.h"
#include "oracle/reference/answer.h"
#include "oracle/tensors/bf16.h"

namespace samebits::harness {
namespace {

constexpr std::int64_t kRows = 16;
constexpr std::int64_t kHidden = 64;
constexpr std::int64_t kExperts = 32;
constexpr std::int64_t kTopK = 4;

struct Recorded {
  oracle::RouterInputs inputs;
  std::vector<float> logits, weights;
  std::vector<std::int64_t> ids;
};

RecordedRun run_of(const std::filesystem::path& file) {
  RecordedRun run;
  run.name = "a sigmoid router";
  run.dtype = "fp32";
  run.file = file;
  run.spec = "glm-5.3-flash";
  run.resolution.set = {{"shape.hidden_size", std::to_string(kHidden)},
                        {"shape.num_experts", std::to_string(kExperts)},
                        {"shape.top_k", std::to_string(kTopK)},
                        {"weights.routed_scaling_factor", "2.5"}};
  return run;
}

// Sums in fp32 from left to right, and the steps of the reference behind them.
Recorded honest_router() {
  Recorded result;
  result.inputs.num_tokens = kRows;
  result.inputs.hidden_size = kHidden;
  result.inputs.gate_rows = kExperts;
  std::uint32_t state = 1;
  const auto next = [&state] {
    state = state * 1664525U + 1013904223U;
    return static_cast<float>(state >> 16) / 32768.0F - 1.0F;
  };
  for (int i = 0; i < kRows * kHidden; ++i) result.inputs.hidden_states.push_back(oracle::fp32_to_bf16(next()));
  for (int i = 0; i < kExperts * kHidden; ++i) result.inputs.gate_weight_fp32.push_back(next() / 4);
  for (int i = 0; i < kExperts; ++i) result.inputs.selection_bias.push_back(next() / 2);

  const oracle::RouterSpec spec = oracle::resolve(load_spec("glm-5.3-flash"), run_of("").resolution);
  for (std::int64_t row = 0; row < kRows; ++row) {
    std::vector<float> logits(kExperts);
    for (std::size_t e = 0; e < kExperts; ++e) {
      for (std::size_t h = 0; h < kHidden; ++h) {
        const std::uint16_t x = result.inputs.hidden_states[static_cast<std::size_t>(row) * kHidden + h];
        logits[e] += oracle::bf16_to_fp32(x) * result.inputs.gate_weight_fp32[e * kHidden + h];
      }
    }
    const auto answer =
        oracle::route_row(spec, std::span<const float>(logits), oracle::row_constants(spec, result.inputs, row));
    result.logits.insert(result.logits.end(), logits.begin(), logits.end());
    result.ids.insert(result.ids.end(), answer.ids.begin(), answer.ids.end());
    result.weights.insert(result.weights.end(), answer.weights.begin(), answer.weights.end());
  }
  return result;
}

template <class T>
SafeTensor tensor(const char* dtype, std::int64_t columns, const std::vector<T>& values) {
  SafeTensor result{dtype, {kRows, columns}, std::vector<std::byte>(values.size() * sizeof(T))};
  std::memcpy(result.bytes.data(), values.data(), result.bytes.size());
  return result;
}

Comparison comparison(const Recorded& recorded, std::vector<Difference> differences = {}) {
  const TempFolder folder;
  RecordedRun run = run_of(folder / "run.safetensors");
  run.differences = std::move(differences);
  SafeTensors file;
  const oracle::RouterSpec spec = oracle::resolve(load_spec(run.spec), run.resolution);
  for (auto& [name, value] : to_tensors(spec, recorded.inputs)) file.tensors[name] = value;
  file.tensors["router_logits"] = tensor("F32", kExperts, recorded.logits);
  file.tensors["topk_ids"] = tensor("I64", kTopK, recorded.ids);
  file.tensors["topk_weights"] = tensor("F32", kTopK, recorded.weights);
  write_safetensors(run.file, file);
  return compare(run);
}

TEST(Witness, AcceptsAnHonestRouterAndNoticesWrongRules) {
  const Comparison result = comparison(honest_router());
  EXPECT_EQ(result.rows, kRows);
  EXPECT_EQ(result.equal_sets, kRows);
  EXPECT_EQ(result.decided_by_logits, kRows);
  EXPECT_EQ(result.unexplained, 0) << result.examples.front();
  EXPECT_EQ(result.wrong_rules.size(), 3u);  // no bias, not renormalised, no scale
  EXPECT_EQ(result.unnoticed, 0);
}

TEST(Witness, RefusesAnotherExpert) {
  Recorded recorded = honest_router();
  std::int64_t other = 0;
  while (std::count(recorded.ids.begin(), recorded.ids.begin() + kTopK, other) != 0) ++other;
  recorded.ids[0] = other;
  EXPECT_EQ(comparison(recorded).unexplained, 1);
}

TEST(Witness, RefusesAWeightUntilADifferenceExplainsIt) {
  Recorded recorded = honest_router();
  recorded.weights[0] *= 1.01F;
  EXPECT_EQ(comparison(recorded).unexplained, 1);
  const std::vector<Difference> differences = {{"one rounding", {}, {.weight = 1}}, {"four", {}, {.weight = 3}}};
  const Comparison result = comparison(recorded, differences);
  EXPECT_EQ(result.unexplained, 0);
  EXPECT_EQ(result.explained, (std::map<std::string, std::int64_t>{{"four", 1}}));
}

TEST(Witness, RefusesALogitOutsideItsBound) {
  Recorded recorded = honest_router();
  recorded.logits[5] += 0.01F;
  EXPECT_EQ(comparison(recorded).unexplained, 1);
}

TEST(Witness, NamesAWrongRuleThatTheRowsCannotContradict) {
  Recorded recorded = honest_router();
  std::fill(recorded.inputs.hidden_states.begin(), recorded.inputs.hidden_states.end(), std::uint16_t{0});
  std::fill(recorded.inputs.selection_bias.begin(), recorded.inputs.selection_bias.end(), 0.0F);
  std::fill(recorded.logits.begin(), recorded.logits.end(), 0.0F);
  std::fill(recorded.weights.begin(), recorded.weights.end(), 2.5F / kTopK);
  const Comparison result = comparison(recorded);
  EXPECT_EQ(result.unexplained, 0);
  EXPECT_EQ(result.unnoticed, 1);
  EXPECT_EQ(result.wrong_rules.at("no bias"), 0);
}

// A learned scale may be negative; roundings of logarithms then widen the bounds of the weight all the same.
TEST(Witness, RoundedLogarithmsWidenNegativeWeights) {
  Reading reading;
  reading.spec = oracle::resolve(load_spec("inkling"), {.set = {{"shape.num_experts", "8"}, {"shape.top_k", "2"}}});
  reading.roundings.log = 1;
  oracle::RouterInputs inputs;
  inputs.num_tokens = 1;
  inputs.gate_rows = oracle::gate_rows(reading.spec);
  for (int e = 0; e < inputs.gate_rows; ++e) inputs.router_logits.push_back(0.25F * static_cast<float>(e) - 3.0F);
  inputs.selection_bias.assign(8, 0.0F);
  inputs.global_scale = {-1.0F};
  const auto answer = oracle::route_row(reading.spec, std::span<const float>(inputs.router_logits),
                                        oracle::row_constants(reading.spec, inputs, 0));
  const std::vector<std::int64_t> ids(answer.ids.begin(), answer.ids.end());
  std::vector<float> weights = answer.weights;
  ASSERT_LT(weights[0], 0.0F);
  const auto bounds = oracle::logit_bounds(reading.spec, inputs, 0, oracle::Arithmetic::kFp32AnyOrder);
  const RowCertificate certificate(reading, inputs, 0, bounds, true);
  EXPECT_EQ(certificate.objection(ids, weights), "");
  weights[0] *= 1.01F;
  EXPECT_EQ(certificate.objection(ids, weights), "");
  weights[0] *= 1.2F;
  EXPECT_NE(certificate.objection(ids, weights), "");
}

// Every entry of the table names a spec, a variant and fields that exist.
TEST(Witness, TableOfLiveBlocksResolves) {
  const YAML::Node table = YAML::LoadFile(std::filesystem::path(SAMEBITS_FIXTURES_DIR) / "golden" / "live.yaml");
  const auto assignments = [](const YAML::Node& map) {
    std::vector<oracle::Assignment> result;
    for (const auto& entry : map) result.push_back({entry.first.as<std::string>(), entry.second.as<std::string>()});
    return result;
  };
  int resolved = 0;
  for (const YAML::Node& model : table["models"]) {
    for (const YAML::Node& name : model["specs"]) {
      const auto text = name.as<std::string>();
      const std::size_t at = text.find('@');
      const oracle::SpecFile file = load_spec(text.substr(0, at));
      oracle::Resolution resolution;
      if (at != std::string::npos) resolution.layer = text.substr(at + 1);
      if (model["variant"]) resolution.variant = model["variant"].as<std::string>();
      resolution.set = assignments(model["set"]);
      EXPECT_NO_THROW(oracle::resolve(file, resolution)) << text;
      for (const YAML::Node& difference : model["bf16"]) {
        const auto more = assignments(difference["set"]);
        resolution.set.insert(resolution.set.end(), more.begin(), more.end());
        EXPECT_NO_THROW(oracle::resolve(file, resolution)) << text << ": " << difference["kind"];
      }
      ++resolved;
    }
  }
  EXPECT_GE(resolved, 81);
}

class WitnessIndex : public testing::Test {
 protected:
  std::string error_of(const std::string& text) const {
    try {
      read_index(folder_.write("index.yaml", text));
    } catch (const FileError& error) {
      return error.what();
    }
    return "no error";
  }
  TempFolder folder_;
};

TEST_F(WitnessIndex, RunsAreReadWithTheirDifferences) {
  const std::vector<RecordedRun> runs = read_index(folder_.write(
      "index.yaml",
      "runs:\n- name: a 64\n  dtype: bf16\n  file: a.safetensors\n  spec: qwen3-30b-a3b\n  variant: fp32_router\n"
      "  set: {shape.hidden_size: 64}\n  wrong_rules: false\n  input_roundings: 2\n"
      "  differences:\n  - kind: rounded\n    set: {score.dtype: bf16}\n    key_roundings: 1\n"));
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].name, "a 64");
  EXPECT_EQ(runs[0].file, folder_ / "a.safetensors");
  EXPECT_EQ(runs[0].resolution.variant, "fp32_router");
  EXPECT_EQ(runs[0].resolution.set.size(), 1u);
  EXPECT_FALSE(runs[0].try_wrong_rules);
  EXPECT_EQ(runs[0].input_roundings, 2);
  ASSERT_EQ(runs[0].differences.size(), 1u);
  EXPECT_EQ(runs[0].differences[0].kind, "rounded");
  EXPECT_EQ(runs[0].differences[0].roundings.key, 1);
}

TEST_F(WitnessIndex, LiesAreRefused) {
  using testing::HasSubstr;
  EXPECT_THROW(read_index(folder_ / "missing.yaml"), FileError);
  EXPECT_THAT(error_of(""), HasSubstr("allowed: a mapping with runs"));
  EXPECT_THAT(error_of("other: []\n"), HasSubstr("unknown field \"other\""));
  EXPECT_THAT(error_of("runs: 7\n"), HasSubstr("runs: found \"7\"; allowed: a list"));
  EXPECT_THAT(error_of("runs: []\n"), HasSubstr("found an empty list; allowed: one run or more"));
  EXPECT_THAT(error_of("runs:\n- name: a\n"), HasSubstr("field \"dtype\" is missing"));
  EXPECT_THAT(error_of("runs:\n- {name: a, dtype: fp32, file: f, spec: s, input_roundings: -1}\n"),
              HasSubstr("allowed: an integer from 0"));
}

}  // namespace
}  // namespace samebits::harness
