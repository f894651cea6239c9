// Rows that an engine wrote down, as rows of cases.
#include "harness/io/captured_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "harness/io/spec_library.h"
#include "harness/test/cli_child.h"
#include "oracle/spec/spec_yaml.h"
#include "oracle/tensors/bf16.h"
#include "properties/generate.h"

namespace samebits::harness {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
constexpr std::int64_t kRows = 7, kHidden = 64, kExperts = 8;

template <class Element>
SafeTensor tensor(const char* dtype, std::vector<std::int64_t> shape, const std::vector<Element>& values) {
  SafeTensor made{dtype, std::move(shape), std::vector<std::byte>(values.size() * sizeof(Element))};
  std::memcpy(made.bytes.data(), values.data(), made.bytes.size());
  return made;
}

class CapturedRowsTest : public SmallSpec {
 protected:
  // Row r is r + 1 everywhere.
  static SafeTensors rows(std::int64_t hidden = kHidden) {
    std::vector<std::uint16_t> values;
    for (std::int64_t r = 0; r < kRows; ++r)
      values.insert(values.end(), static_cast<std::size_t>(hidden), oracle::fp32_to_bf16(static_cast<float>(r + 1)));
    return {{{"hidden_states", tensor("BF16", {kRows, hidden}, values)}}, {}};
  }
  std::filesystem::path write(const SafeTensors& content) const {
    write_safetensors(folder_ / "rows.safetensors", content);
    return folder_ / "rows.safetensors";
  }
  oracle::RouterSpec spec() const { return oracle::resolve(load_spec((folder_ / "small.yaml").string()), {}); }
  properties::Case random_case(std::uint64_t index) const {
    properties::GenerateOptions options;
    options.logits_stage = false;
    return properties::generate_case("small", "", spec(), 1, 1000 + index, options);
  }
  void expect_error(const SafeTensors& content, const char* part) const {
    try {
      const CapturedRows captured(write(content), spec());
      ADD_FAILURE() << "no error; expected: " << part;
    } catch (const FileError& error) {
      EXPECT_THAT(error.what(), HasSubstr(part));
    }
  }
};

TEST_F(CapturedRowsTest, AreTheRowsOfCasesInEveryOrder) {
  SafeTensors content = rows();
  const std::vector<float> bias = {0.5f, 0.25f, 0.125f, 1, 2, 3, 4, 5};
  content.tensors["selection_bias"] = tensor("F32", {kExperts}, bias);
  content.tensors["gate_weight"] = tensor("F32", {kExperts, kHidden}, std::vector<float>(kExperts * kHidden, 0.1f));
  const CapturedRows captured(write(content), spec());
  std::set<std::pair<std::uint16_t, std::uint16_t>> neighbours;
  std::int64_t put = 0;
  for (std::uint64_t index = 0; index < 200; ++index) {
    properties::Case c = random_case(index);
    const auto generated = c.description;
    if (!captured.put_into(c)) continue;
    ++put;
    const oracle::RouterInputs inputs = properties::materialize(c);
    EXPECT_EQ(c.description.hazard, "captured_rows");
    EXPECT_EQ(inputs.num_tokens, generated.num_tokens);
    EXPECT_EQ(inputs.num_valid_rows, generated.num_valid_rows);
    EXPECT_EQ(inputs.selection_bias, bias);
    EXPECT_EQ(inputs.gate_weight_fp32, std::vector<float>(kExperts * kHidden, 0.1f));
    EXPECT_TRUE(inputs.gate_weight_bf16.empty());
    std::uint16_t last = 0;
    for (std::int64_t t = 0; t < inputs.num_tokens; ++t) {
      const auto* row = inputs.hidden_states.data() + t * kHidden;
      EXPECT_EQ(std::vector<std::uint16_t>(row, row + kHidden), std::vector<std::uint16_t>(kHidden, row[0]));
      const float value = oracle::bf16_to_fp32(row[0]);
      EXPECT_TRUE(value >= 1 && value <= kRows && value == static_cast<float>(static_cast<int>(value))) << value;
      if (t > 0) neighbours.emplace(last, row[0]);
      last = row[0];
    }
    properties::Case again = random_case(index);
    ASSERT_TRUE(captured.put_into(again));
    EXPECT_EQ(again.description.data->hidden_states, inputs.hidden_states);
  }
  EXPECT_GT(put, 150);
  EXPECT_EQ(neighbours.size(), kRows * kRows);  // each row came after each
}

TEST_F(CapturedRowsTest, StayOutOfCasesOfOtherSizes) {
  const CapturedRows captured(write(rows()), spec());
  properties::GenerateOptions options;
  options.full_stage = false;
  properties::Case c = properties::generate_case("small", "", spec(), 1, 1000, options);
  EXPECT_FALSE(captured.put_into(c));
  options = {};
  options.logits_stage = false;
  oracle::RouterSpec wider = spec();
  wider.shape.hidden_size = kHidden + 8;
  c = properties::generate_case("small", "", wider, 1, 1000, options);
  EXPECT_FALSE(captured.put_into(c));
  EXPECT_FALSE(c.description.data);
}

TEST_F(CapturedRowsTest, FilesThatDoNotFitAreRefused) {
  expect_error(rows(63), "hidden_states: found BF16 [7, 63]; allowed is BF16 [N, 64]");
  SafeTensors content = rows();
  content.tensors["hidden_states"] = tensor("F32", {1, kHidden}, std::vector<float>(kHidden));
  expect_error(content, "found F32 [1, 64]");
  expect_error({}, "found no tensor hidden_states");
  content = rows();
  content.tensors["gate_weights"] = content.tensors["hidden_states"];
  expect_error(content, "found tensor gate_weights; allowed are hidden_states, gate_weight");
  content = rows();
  content.tensors["linear_bias"] = tensor("F32", {kExperts}, std::vector<float>(kExperts));
  expect_error(content, "linear_bias: found one; the spec has none");
  content = rows();
  content.tensors["selection_bias"] = tensor("F32", {kExperts - 1}, std::vector<float>(kExperts - 1));
  expect_error(content, "selection_bias: shape [7]; the spec needs [8]");
  content.tensors["selection_bias"] = tensor("BF16", {kExperts}, std::vector<std::uint16_t>(kExperts));
  expect_error(content, "selection_bias: dtype BF16; allowed: F32");
}

TEST_F(CapturedRowsTest, AFuzzRunTakesThem) {
  write(rows());
  const std::vector<std::string> fuzz = {"fuzz",       "--spec",           "small.yaml", "--cases", "60",
                                         "--json",     "r.json",           "--progress", "none",    "--no-known-cases",
                                         "--captured", "rows.safetensors", "--backend"};
  std::vector<std::string> right = fuzz;
  right.push_back("cpu");
  const ChildResult passed = run(right);
  EXPECT_EQ(passed.exit_code, 0) << passed.out << passed.err;
  const auto report = nlohmann::json::parse(content_of(folder_ / "r.json"));
  EXPECT_GT(report["hazards"].value("captured_rows", 0), 10);
  EXPECT_THAT(report["hazards_not_met"].dump(), Not(HasSubstr("captured_rows")));

  // Directed cases come first: so few cases have none of the rows, and the report says so.
  std::vector<std::string> few = right;
  few[4] = "3";
  const ChildResult none = run(few);
  const auto report_of_few = nlohmann::json::parse(content_of(folder_ / "r.json"));
  EXPECT_THAT(report_of_few["hazards_not_met"].dump(), HasSubstr("captured_rows")) << none.out;

  const ChildResult wrong = run({"fuzz", "--captured", "rows.safetensors", "--all-specs", "--backend", "cpu"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--captured: the rows are of one spec"));
}

}  // namespace
}  // namespace samebits::harness
