// Case and result files of routers with hash tables, row classes, learned scales, zero experts and shared experts in
// the gate: every size and tensor there and back, and damaged ones refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>

#include "harness/backend/backend.h"
#include "harness/io/case_file.h"
#include "harness/io/spec_library.h"
#include "harness/test/io_same_case.h"
#include "harness/test/io_temp_folder.h"
#include "oracle/spec/spec_yaml.h"
#include "properties/generate.h"

namespace samebits::harness {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

struct Router {
  const char* name;
  std::optional<std::string> layer = std::nullopt;
};
// Together they have every tensor and every size.
const Router kRouters[] = {
    {"deepseek-v4-flash", "0"}, {"deepseek-v4.1-flash"}, {"gemma-4-26b-a4b"}, {"grok-2"}, {"inkling"},
    {"intern-s1-pro"},          {"longcat-flash"},       {"phi-3.5-moe"}};

oracle::RouterSpec small_spec(const Router& router) {
  oracle::Resolution resolution;
  resolution.layer = router.layer;
  resolution.set = {{"shape.hidden_size", "24"}};
  return oracle::resolve(load_spec(router.name), resolution);
}

properties::Case generated(const Router& router, std::uint64_t index) {
  return properties::generate_case(router.name, "", small_spec(router), 3, index, {});
}

TEST(CaseTensors, DescriptionsReadBackTheSame) {
  const TempFolder folder;
  for (const Router& router : kRouters) {
    for (std::uint64_t index = 0; index < 40; ++index) {
      CaseFile file;
      file.c = generated(router, index);
      file.full_spec = small_spec(router);
      write_case_file(folder / "case.yaml", file);
      const CaseFile read = read_case_file(folder / "case.yaml");
      expect_same_case(file.c, read.c);
      EXPECT_EQ(case_hash(file.c), case_hash(read.c));
      if (::testing::Test::HasFailure()) FAIL() << content_of(folder / "case.yaml");
    }
  }
}

TEST(CaseTensors, EveryTensorIsWrittenAndReadToTheBit) {
  const TempFolder folder;
  std::set<std::string> seen;
  for (const Router& router : kRouters) {
    for (std::uint64_t index = 0; index < 24; ++index) {
      CaseFile file;
      file.c = generated(router, index);
      write_case_file(folder / "case.yaml", file, /*with_data=*/true);
      const CaseFile read = read_case_file(folder / "case.yaml");
      expect_same_inputs(properties::materialize(file.c), properties::materialize(read.c));
      const SafeTensors data = read_safetensors(folder / "case.safetensors");
      for (const auto& [name, tensor] : data.tensors) seen.insert(name + " " + tensor.dtype);
      EXPECT_EQ(data.metadata.at("zero_experts"), std::to_string(file.c.description.zero_experts));
      EXPECT_EQ(data.metadata.at("shared_in_gate"), std::to_string(file.c.description.shared_in_gate));
      EXPECT_EQ(data.metadata.at("vocab_size"), std::to_string(file.c.description.vocab_size));
      if (::testing::Test::HasFailure()) FAIL() << content_of(folder / "case.yaml");
    }
  }
  for (const char* tensor : {"hidden_states BF16", "gate_weight BF16", "gate_weight F32", "router_logits F32",
                             "input_scale_vector F32", "selection_bias F32", "per_expert_scale F32", "global_scale F32",
                             "hash_table I32", "token_ids I64", "token_ids I32", "row_class I32"}) {
    EXPECT_TRUE(seen.contains(tensor)) << tensor << " was in none of the files";
  }
}

constexpr const char* kTable = R"(samebits_case: 1
spec:
  spec_version: 1
  name: table
  shape: {hidden_size: 2, num_experts: 3, top_k: 2}
  score: {func: sigmoid}
  selection: {method: hash_table}
  weights: {per_expert_scale: true, global_scale: true}
  hash: {vocab_size: 100, table_dtype: int64}
tensors:
  router_logits: {dtype: fp32, shape: [3, 3], values: [[1, 2, 3], [4, 5, 6], [7, 8, 9]]}
  per_expert_scale: {dtype: fp32, shape: [3], values: [1, 2, 3]}
  global_scale: {dtype: fp32, shape: [1], values: [0.5]}
  hash_table: {dtype: int32, shape: [4, 2], values: [[0, 1], [1, 2], [2, 0], [2, 1]]}
  token_ids: {dtype: int64, shape: [3], values: [3, -1, 9223372036854775807]}
expected:
  source: "here"
  rows:
    - row: 1
      topk_ids: [-1, -1]
)";

constexpr const char* kClasses = R"(samebits_case: 1
spec:
  spec_version: 1
  name: classes
  shape: {hidden_size: 2, num_experts: 3, top_k: 1}
  score: {func: sigmoid}
  gate: {input_scale_vector: true}
  selection: {bias: fp32, bias_variants: [text, image]}
  special: {shared_experts: 1, shared_mode: in_gate, zero_experts: 2, zero_type: identity}
tensors:
  hidden_states: {dtype: bf16, shape: [2, 2], values: [[1, 2], [3, 4]]}
  gate_weight: {dtype: fp32, shape: [6, 2], nonzero: [[0, 0, 1]]}
  input_scale_vector: {dtype: fp32, shape: [2], values: [1, 2]}
  selection_bias: {dtype: fp32, shape: [2, 5], values: [[1, 2, 3, 4, 5], [5, 4, 3, 2, 1]]}
  row_class: {dtype: int32, shape: [2], values: [1, -2147483648]}
expected:
  source: "here"
  rows:
    - row: 0
      topk_ids: [0, 5]
)";

TEST(CaseTensors, SizesAreThoseOfTheTensors) {
  const TempFolder folder;
  const properties::Case table = read_case_file(folder.write("case.yaml", kTable)).c;
  EXPECT_EQ(table.description.vocab_size, 4) << "the spec's 100 is that of the published router";
  EXPECT_EQ(table.spec.hash.vocab_size, 4);
  EXPECT_FALSE(table.description.token_ids_int32);
  EXPECT_EQ(table.description.data->token_ids, (std::vector<std::int64_t>{3, -1, INT64_MAX}));
  EXPECT_EQ(table.description.data->hash_table, (std::vector<std::int32_t>{0, 1, 1, 2, 2, 0, 2, 1}));
  EXPECT_EQ(table.description.data->per_expert_scale, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(table.description.data->global_scale, std::vector<float>{0.5f});
  const properties::Case classes = read_case_file(folder.write("case.yaml", kClasses)).c;
  EXPECT_EQ(classes.description.num_experts, 3);
  EXPECT_EQ(classes.description.zero_experts, 2);
  EXPECT_EQ(classes.description.shared_in_gate, 1);
  EXPECT_EQ(oracle::topk_columns(classes.spec), 2);
  EXPECT_EQ(classes.description.data->row_class, (std::vector<std::int32_t>{1, INT32_MIN}));
  EXPECT_EQ(classes.description.data->input_scale_vector, (std::vector<float>{1, 2}));
  for (const auto& c : {table, classes}) {
    CaseFile file;
    file.c = c;
    write_case_file(folder / "again.yaml", file);
    expect_same_case(read_case_file(folder / "again.yaml").c, c);
  }
}

struct Lie {
  const char* text;
  const char* found;
  const char* replacement;
  const char* message;  // regular expression
};

const Lie kLies[] = {
    {kTable, "[2, 0]", "[2, 3]", ".*:11:3: tensors: hash_table: found id 3 in row 2; allowed: 0 to 2"},
    {kTable, "[2, 0]", "[2, -1]", ".*hash_table: found id -1 in row 2; allowed: 0 to 2"},
    {kTable, "[2, 0]", "[2, 2]", ".*hash_table: found id 2 twice in row 2; allowed: distinct ids"},
    {kTable, "[2, 0]", "[2, 0.5]", ".*:14:.*found \"0.5\"; allowed: an integer from -2147483648 to 2147483647"},
    {kTable, "shape: [4, 2], values: [[0, 1], [1, 2], [2, 0], [2, 1]]", "shape: [4, 1], values: [[0], [1], [2], [2]]",
     ".*hash_table: found shape \\[4, 1\\]; allowed: \\[2, 2\\]"},
    {kTable, "  hash_table: {dtype: int32", "  hash_table: {dtype: int64", ".*hash_table: dtype I64; allowed: I32"},
    {kTable, "shape: [3], values: [3, -1, 9223372036854775807]", "shape: [2], values: [3, -1]",
     ".*token_ids: num_tokens is 2; the other tensors have 3"},
    {kTable, "token_ids: {dtype: int64", "token_ids: {dtype: int32", ".*allowed: an integer from -2147483648.*"},
    {kTable, "token_ids: {dtype: int64", "row_class: {dtype: int64", ".*row_class: dtype I64; allowed: I32"},
    {kTable, "  token_ids: {dtype: int64, shape: [3], values: [3, -1, 9223372036854775807]}\n", "",
     ".*token_ids is missing; the spec has it \\(selection.method: hash_table\\)"},
    {kTable, "  global_scale: {dtype: fp32, shape: [1], values: [0.5]}\n", "",
     ".*global_scale is missing; the spec has it \\(weights.global_scale\\)"},
    {kTable, "shape: [1], values: [0.5]", "shape: [2], values: [1, 2]", ".*global_scale: length is 2.*"},
    {kTable, "per_expert_scale: true, ", "", ".*per_expert_scale is given; the spec has none.*"},
    {kTable, "shape: [3], values: [1, 2, 3]", "shape: [2], values: [1, 2]",
     ".*per_expert_scale: gate rows is 2; the other tensors have 3"},
    {kTable, "tensors:", "description: {vocab_size: 5}\ntensors:",
     ".*hash_table: found shape \\[4, 2\\]; allowed: "
     "\\[5, 2\\]"},
    {kTable, "tensors:", "description: {token_ids_int32: true}\ntensors:",
     ".*token_ids_int32: found \"true\"; allowed: false, as the tensors are"},
    {kTable, "tensors:", "description: {vocab_size: -1}\ntensors:", ".*vocab_size: found \"-1\".*"},
    {kTable, "tensors:", "description: {zero_experts: 3}\ntensors:", ".*3 gate rows; 3 zero experts.*"},
    {kTable, "tensors:", "tensors:\n  input_scale_vector: {dtype: fp32, shape: [0], nonzero: []}",
     ".*a case from logits has no hidden states to scale; leave it out"},
    {kTable, "topk_ids: [-1, -1]", "topk_ids: [0, 3]", ".*from -1 to 2.*"},
    {kClasses, "shape: [2, 5], values: [[1, 2, 3, 4, 5], [5, 4, 3, 2, 1]]", "shape: [5], values: [1, 2, 3, 4, 5]",
     ".*selection_bias: found shape \\[5\\]; allowed: \\[2, 5\\]"},
    {kClasses, "bias: fp32, bias_variants: [text, image]", "bias_variants: [text, image]",
     ".*selection_bias is given.*"},
    {kClasses, "shape: [6, 2]", "shape: [2, 2]",
     ".*2 gate rows; 2 zero experts and 1 shared experts in the gate leave "
     "no routed expert"},
    {kClasses, "  input_scale_vector: {dtype: fp32, shape: [2], values: [1, 2]}\n", "",
     ".*input_scale_vector is missing.*"},
    {kClasses, "shape: [2], values: [1, 2]", "shape: [1], values: [1]", ".*input_scale_vector: hidden_size is 1.*"},
    {kClasses, "tensors:", "description: {row_classes: some}\ntensors:", ".*absent, mixed, edges"},
    {kClasses, "tensors:", "description: {scales: large}\ntensors:", ".*unit, normal, wide_exponent"},
    {kClasses, "tensors:", "description: {tokens: none}\ntensors:", ".*uniform, edges"},
    {kClasses, "topk_ids: [0, 5]", "topk_ids: [0]", ".*2 ids"},
    {kClasses, "topk_ids: [0, 5]", "topk_ids: [0, 6]", ".*from -1 to 5.*"},
};

TEST(CaseTensors, LiesAreRefused) {
  const TempFolder folder;
  for (const Lie& lie : kLies) {
    std::string text = lie.text;
    const std::size_t place = text.find(lie.found);
    ASSERT_NE(place, std::string::npos) << lie.found;
    text.replace(place, std::string(lie.found).size(), lie.replacement);
    std::string error = "no error";
    try {
      read_case_file(folder.write("case.yaml", text));
    } catch (const FileError& refused) {
      error = refused.what();
    }
    EXPECT_THAT(error, MatchesRegex(std::string(lie.message) + "(\n.*)*")) << lie.replacement;
  }
}

TEST(CaseTensors, ResultsHaveTheColumnsAndIdsOfSharedExperts) {
  const TempFolder folder;
  const properties::Case c = generated({"inkling"}, 2);
  ResultFile file;
  const auto subject = open_backend({"cpu", {}, {}});
  file.claims = subject->claims();
  file.runs = subject->run(c, properties::materialize(c), properties::plan_runs(c, file.claims));
  write_result_file(folder / "r.safetensors", file, c);
  const ResultFile read = read_result_file(folder / "r.safetensors", c);
  ASSERT_EQ(read.runs.size(), file.runs.size());
  for (std::size_t i = 0; i < read.runs.size(); ++i) {
    const oracle::RouterOutputs &written = file.runs[i].result.outputs, &back = read.runs[i].result.outputs;
    const bool refused = file.runs[i].request.misuse != properties::Misuse::kNone;
    EXPECT_EQ(back.top_k, refused ? 0 : oracle::topk_columns(c.spec));
    EXPECT_EQ(back.topk_ids, written.topk_ids);
    EXPECT_TRUE(same_bits(back.topk_weights, written.topk_weights));
    EXPECT_TRUE(back.bookkeeping == written.bookkeeping);
  }
  SafeTensors content = read_safetensors(folder / "r.safetensors");
  SafeTensor& ids = content.tensors.at("main/topk_ids");
  ids.shape[1] = oracle::top_k(c.spec);
  ids.bytes.resize(static_cast<std::size_t>(ids.shape[0] * ids.shape[1] * 8));
  write_safetensors(folder / "r.safetensors", content);
  try {
    read_result_file(folder / "r.safetensors", c);
    FAIL() << "no error";
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("tensor main/topk_ids: shape ["));
  }
}

}  // namespace
}  // namespace samebits::harness
