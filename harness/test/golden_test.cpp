// The oracle against routers that nobody of this project wrote (fixtures/golden/README.md).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "harness/io/safetensors.h"
#include "harness/io/spec_library.h"
#include "harness/witness/row_certificate.h"
#include "oracle/exact/logit_bounds.h"
#include "oracle/reference/answer.h"
#include "oracle/spec/spec_yaml.h"

namespace samebits::harness {
namespace {

using oracle::Assignment;
using oracle::RouterInputs;
using oracle::RouterSpec;
using oracle::RowAnswer;

// Weights are compared relative to the recorded ones. Both sides follow the same formula, so what remains is fp32
// rounding, above all that of the recorded logits: a sequential fp32 sum of H = 512 products whose partial sums grow to
// an rms of 2 has a standard deviation of about 2^-24/sqrt(3) * sqrt(512) * 1.4 = 1.1e-6, a softmax weight is off by
// the same relative amount, and the largest of the 10,000 weights lies near 4.5 standard deviations. Twice that.
constexpr double kWeightTolerance = 1e-5;
// Rows of one router, of 96, that the error bound may leave open.
constexpr int kMinDecided = 90;
// Rows of one router that must contradict a wrong rule: well over an accident, and under what any of them reaches.
constexpr int kMinContradicted = 30;

struct WrongRule {
  std::string rule;
  std::vector<Assignment> set;
};

struct RecordedRouter {
  std::string name;
  oracle::SpecFile spec_file;
  std::vector<Assignment> set;
  std::vector<WrongRule> wrong;
  RouterInputs inputs;
  std::vector<std::int64_t> ids;  // [T, K]
  std::vector<float> weights;     // [T, K]

  RouterSpec spec(const std::vector<Assignment>& more = {}) const {
    oracle::Resolution resolution;
    resolution.set = set;
    resolution.set.insert(resolution.set.end(), more.begin(), more.end());
    return oracle::resolve(spec_file, resolution);
  }
};

std::vector<Assignment> read_assignments(const YAML::Node& map) {
  std::vector<Assignment> assignments;
  for (const auto& entry : map) assignments.push_back({entry.first.as<std::string>(), entry.second.as<std::string>()});
  return assignments;
}

template <class T>
std::vector<T> values(const SafeTensors& file, const YAML::Node& name, const std::string& dtype) {
  const SafeTensor& tensor = file.tensors.at(name.as<std::string>());
  if (tensor.dtype != dtype) throw std::runtime_error(name.as<std::string>() + " is " + tensor.dtype);
  std::vector<T> result(tensor.bytes.size() / sizeof(T));
  std::memcpy(result.data(), tensor.bytes.data(), tensor.bytes.size());
  return result;
}

std::vector<RecordedRouter> read_recorded_routers() {
  const std::filesystem::path folder = std::filesystem::path(SAMEBITS_FIXTURES_DIR) / "golden";
  const YAML::Node index = YAML::LoadFile(folder / "transformers-5.17.yaml");
  const SafeTensors file = read_safetensors(folder / index["tensors"].as<std::string>());
  const std::vector<Assignment> set_for_all = read_assignments(index["set_for_all"]);

  std::vector<RecordedRouter> routers;
  for (const YAML::Node& node : index["routers"]) {
    RecordedRouter router;
    router.name = node["name"].as<std::string>();
    router.spec_file = load_spec(node["spec"].as<std::string>());
    router.set = set_for_all;
    for (const Assignment& assignment : read_assignments(node["set"])) router.set.push_back(assignment);
    for (const YAML::Node& wrong : node["wrong"]) {
      router.wrong.push_back({wrong["rule"].as<std::string>(), read_assignments(wrong["set"])});
    }
    const YAML::Node tensors = node["tensors"];
    const RouterSpec spec = router.spec();
    router.inputs.hidden_size = oracle::hidden_size(spec);
    router.inputs.gate_rows = oracle::num_experts(spec);
    router.inputs.num_tokens = index["rows"].as<std::int64_t>();
    router.inputs.hidden_states = values<std::uint16_t>(file, tensors["hidden_states"], "BF16");
    router.inputs.gate_weight_fp32 = values<float>(file, tensors["gate_weight"], "F32");
    if (tensors["selection_bias"]) router.inputs.selection_bias = values<float>(file, tensors["selection_bias"], "F32");
    router.ids = values<std::int64_t>(file, tensors["topk_ids"], "I64");
    router.weights = values<float>(file, tensors["topk_weights"], "F32");
    routers.push_back(std::move(router));
  }
  return routers;
}

RowAnswer<double> route(const RouterSpec& spec, const RecordedRouter& router, const std::vector<double>& logits) {
  const bool biased = spec.selection.bias != oracle::BiasType::kNone;
  return oracle::route_row(
      spec, std::span<const double>(logits),
      {.selection_bias = biased ? std::span<const float>(router.inputs.selection_bias) : std::span<const float>()});
}

// The largest relative difference of the weights, expert by expert; infinite when the sets differ.
double weight_difference(const RowAnswer<double>& answer, const std::int64_t* ids, const float* weights) {
  double worst = 0.0;
  for (std::size_t slot = 0; slot < answer.ids.size(); ++slot) {
    const auto end = ids + answer.ids.size();
    const auto found = std::find(ids, end, answer.ids[slot]);
    if (found == end) return std::numeric_limits<double>::infinity();
    const double recorded = static_cast<double>(weights[found - ids]);
    worst = std::max(worst, std::fabs(answer.weights[slot] - recorded) / std::fabs(recorded));
  }
  return worst;
}

struct Comparison {
  int decided = 0;
  int other_sets = 0;         // decided rows
  int other_weights = 0;      // decided rows with the same set
  double worst_weight = 0.0;  // relative, decided rows with the same set
  int contradicted() const { return other_sets + other_weights; }
};

struct RowLogits {
  std::vector<double> logits;
  bool decided;  // every fp32 router that follows the spec makes this choice
};

std::vector<RowLogits> logits_of(const RecordedRouter& router) {
  const RouterSpec spec = router.spec();
  std::vector<RowLogits> rows;
  for (std::int64_t row = 0; row < router.inputs.num_tokens; ++row) {
    std::vector<double> logits = oracle::logits_fp64(spec, router.inputs, row);
    const RowAnswer<double> answer = route(spec, router, logits);
    const std::vector<std::int64_t> ids(answer.ids.begin(), answer.ids.end());
    // Recorded on a CPU: every addition rounds to nearest.
    const oracle::Arithmetic arithmetic(oracle::Arithmetic::kFp32Depth, router.inputs.hidden_size + 1);
    const RowCertificate certificate({spec, {}}, router.inputs, row,
                                     oracle::logit_bounds(spec, router.inputs, row, arithmetic), false);
    rows.push_back({std::move(logits), certificate.decides(ids)});
  }
  return rows;
}

Comparison compare(const RouterSpec& spec, const RecordedRouter& router, const std::vector<RowLogits>& rows) {
  Comparison result;
  const std::int64_t k = oracle::top_k(spec);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (!rows[row].decided) continue;
    ++result.decided;
    const RowAnswer<double> answer = route(spec, router, rows[row].logits);
    const std::size_t first = row * static_cast<std::size_t>(k);
    const double difference = weight_difference(answer, &router.ids[first], &router.weights[first]);
    if (std::isinf(difference)) {
      ++result.other_sets;
      continue;
    }
    result.worst_weight = std::max(result.worst_weight, difference);
    if (!(difference <= kWeightTolerance)) ++result.other_weights;
  }
  return result;
}

TEST(Golden, RecordedRoutersChooseAsTheReference) {
  const std::vector<RecordedRouter> routers = read_recorded_routers();
  ASSERT_EQ(routers.size(), 21u);
  for (const RecordedRouter& router : routers) {
    SCOPED_TRACE(router.name);
    const Comparison result = compare(router.spec(), router, logits_of(router));
    std::printf("%-18s decided %d of %d rows, other sets %d, other weights %d, largest difference %.1e\n",
                router.name.c_str(), result.decided, static_cast<int>(router.inputs.num_tokens), result.other_sets,
                result.other_weights, result.worst_weight);
    EXPECT_GE(result.decided, kMinDecided);
    EXPECT_EQ(result.other_sets, 0);
    EXPECT_EQ(result.other_weights, 0);
  }
}

// The same comparison must reject a wrong reading of each router, or it shows nothing.
TEST(Golden, WrongRulesContradictTheRecords) {
  for (const RecordedRouter& router : read_recorded_routers()) {
    const std::vector<RowLogits> rows = logits_of(router);
    EXPECT_FALSE(router.wrong.empty()) << router.name;
    for (const WrongRule& wrong : router.wrong) {
      SCOPED_TRACE(router.name + ": " + wrong.rule);
      const Comparison result = compare(router.spec(wrong.set), router, rows);
      std::printf("%-18s %-28s contradicted by %d of %d rows (%d sets, %d weights)\n", router.name.c_str(),
                  wrong.rule.c_str(), result.contradicted(), result.decided, result.other_sets, result.other_weights);
      EXPECT_GE(result.contradicted(), kMinContradicted);
    }
  }
}

}  // namespace
}  // namespace samebits::harness
