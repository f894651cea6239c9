#include "harness/io/case_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>

#include "harness/io/spec_library.h"
#include "harness/test/io_same_case.h"
#include "harness/test/io_temp_folder.h"
#include "oracle/spec/spec_yaml.h"
#include "properties/generate.h"

namespace samebits::harness {
namespace {

using properties::Case;
using properties::CaseDescription;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr const char* kSpec = R"(spec_version: 1
name: tiny
shape: {hidden_size: 64, num_experts: 8, top_k: 2}
score: {func: sigmoid}
selection: {bias: fp32}
weights: {renormalize: l1, eps: 1e-20, eps_mode: add}
variants:
  bf16_bias: {selection.bias: bf16}
)";

oracle::RouterSpec tiny_spec() {
  return oracle::parse_spec(kSpec, "tiny.yaml").base;
}

Case generated(std::uint64_t index) {
  return properties::generate_case("tiny.yaml", "", tiny_spec(), 1, index, {});
}

TEST(CaseFile, GeneratedCasesReadBackTheSame) {
  const TempFolder folder;
  for (std::uint64_t index = 0; index < 60; ++index) {
    CaseFile file;
    file.c = generated(index);
    file.full_spec = tiny_spec();
    write_case_file(folder / "case.yaml", file);
    const CaseFile read = read_case_file(folder / "case.yaml");
    expect_same_case(file.c, read.c);
    EXPECT_TRUE(*read.full_spec == tiny_spec());
    EXPECT_FALSE(std::filesystem::exists(folder / "case.safetensors")) << "generated data are not written";
    EXPECT_EQ(case_hash(file.c), case_hash(read.c));
  }
}

TEST(CaseFile, ABuiltInSpecIsNamedAndNotCopied) {
  const TempFolder folder;
  CaseFile file;
  const oracle::RouterSpec spec = oracle::resolve(load_spec("qwen3-30b-a3b"), {});
  file.c = properties::generate_case("qwen3-30b-a3b", "", spec, 7, 3, {});
  write_case_file(folder / "case.yaml", file);
  EXPECT_THAT(content_of(folder / "case.yaml"), HasSubstr("spec: \"qwen3-30b-a3b\"\n"));
  const CaseFile read = read_case_file(folder / "case.yaml");
  expect_same_case(file.c, read.c);
  EXPECT_TRUE(*read.full_spec == spec);
}

TEST(CaseFile, TensorsOfAnySizeReadBackToTheBit) {
  const TempFolder folder;
  std::mt19937 random(5);
  for (int round = 0; round < 40; ++round) {
    CaseFile file;
    file.law = "selection";
    file.c.spec_name = "tiny.yaml";
    file.c.variant = round % 2 == 0 ? "" : "bf16_bias";
    CaseDescription& d = file.c.description;
    d.num_tokens = static_cast<std::int64_t>(random() % 5);
    d.num_experts = 2 + static_cast<std::int64_t>(random() % 30);
    d.top_k = 1;
    oracle::RouterInputs data;
    data.num_tokens = d.num_tokens;
    data.gate_rows = d.num_experts;
    const auto pattern = [&] { return static_cast<std::uint32_t>(random() % 3 == 0 ? random() : 0); };
    const auto fp32 = [&](std::vector<float>& values, std::int64_t size) {
      for (std::int64_t i = 0; i < size; ++i) values.push_back(std::bit_cast<float>(pattern()));
    };
    if (round % 3 == 0) {
      d.stage = properties::Stage::kFromLogits;
      fp32(data.router_logits, d.num_tokens * d.num_experts);
    } else {
      d.hidden_size = 1 + static_cast<std::int64_t>(random() % 40);
      data.hidden_size = d.hidden_size;
      for (std::int64_t i = 0; i < d.num_tokens * d.hidden_size; ++i) {
        data.hidden_states.push_back(static_cast<std::uint16_t>(pattern()));
      }
      if (round % 3 == 1) {
        fp32(data.gate_weight_fp32, d.num_experts * d.hidden_size);
      } else {
        for (std::int64_t i = 0; i < d.num_experts * d.hidden_size; ++i) {
          data.gate_weight_bf16.push_back(static_cast<std::uint16_t>(pattern()));
        }
      }
    }
    fp32(data.selection_bias, d.num_experts);
    if (round % 5 == 0) d.num_valid_rows = data.num_valid_rows = static_cast<std::int32_t>(random() % 9) - 2;
    d.data = std::move(data);
    file.c.spec = properties::apply_shape(tiny_spec(), d);
    write_case_file(folder / "case.yaml", file);
    const CaseFile read = read_case_file(folder / "case.yaml");
    expect_same_case(file.c, read.c);
    EXPECT_EQ(read.law, "selection");
    if (::testing::Test::HasFailure()) FAIL() << content_of(folder / "case.yaml");
  }
}

TEST(CaseFile, WithDataHoldsWhatTheDescriptionGenerates) {
  const TempFolder folder;
  for (std::uint64_t index = 0; index < 12; ++index) {
    CaseFile file;
    file.c = generated(index);
    write_case_file(folder / "case.yaml", file, /*with_data=*/true);
    const CaseFile read = read_case_file(folder / "case.yaml");
    ASSERT_TRUE(read.c.description.data);
    const oracle::RouterInputs inputs = properties::materialize(file.c);
    expect_same_inputs(inputs, properties::materialize(read.c));
    // Small tensors and those of zeros too, so that nobody needs the YAML.
    const SafeTensors data = read_safetensors(folder / "case.safetensors");
    EXPECT_EQ(data.tensors.count("gate_weight"), inputs.from_logits() ? 0u : 1u);
    EXPECT_EQ(data.tensors.count("router_logits"), inputs.from_logits() ? 1u : 0u);
    EXPECT_EQ(data.tensors.count("selection_bias"), inputs.selection_bias.empty() ? 0u : 1u);
    EXPECT_EQ(data.metadata.at("num_valid_rows"), std::to_string(inputs.valid_rows()));
    EXPECT_EQ(data.metadata.at("top_k"), std::to_string(file.c.description.top_k));
  }
}

TEST(CaseFile, KnownAnswersReadBackTheSame) {
  const TempFolder folder;
  CaseFile file;
  file.c = generated(0);
  file.c.description.num_tokens = 3;
  KnownAnswer expected;
  expected.source = "a \"quoted\" source: # not a comment\n\\";
  expected.fault = "";
  expected.weight_tolerance = 1e-3;
  expected.tolerance_reason = "three digits";
  expected.rows = {{2, {}, {}}};
  for (std::int64_t column = 0; column < file.c.description.top_k; ++column) {
    expected.rows[0].topk_ids.push_back(column);
    expected.rows[0].topk_weights.push_back(1.0 / 3.0);
  }
  file.expected = expected;
  write_case_file(folder / "case.yaml", file);
  const CaseFile read = read_case_file(folder / "case.yaml");
  ASSERT_TRUE(read.expected);
  EXPECT_EQ(read.expected->source, expected.source);
  EXPECT_EQ(read.expected->weight_tolerance, expected.weight_tolerance);
  EXPECT_EQ(read.expected->tolerance_reason, expected.tolerance_reason);
  ASSERT_EQ(read.expected->rows.size(), 1u);
  EXPECT_EQ(read.expected->rows[0].topk_ids, expected.rows[0].topk_ids);
  EXPECT_EQ(read.expected->rows[0].topk_weights, expected.rows[0].topk_weights);
}

std::string error_of(const std::filesystem::path& path) {
  try {
    read_case_file(path);
  } catch (const FileError& error) {
    return error.what();
  }
  return "no error";
}

// One good case; each lie replaces one piece of its text.
constexpr const char* kGood = R"(samebits_case: 1
spec:
  spec_version: 1
  name: tiny
  shape: {hidden_size: 4, num_experts: 4, top_k: 2}
  score: {func: sigmoid}
  selection: {bias: fp32}
description:
  num_tokens: 2
  plants:
    - {tensor: hidden_states, row: 0, column: all, bits: 0x7fc00000}
  keep_rows: [0, 3]
tensors:
  hidden_states:
    dtype: bf16
    shape: [2, 4]
    values:
      - [1, 0, 0.5, -0.0]
      - [0x7fff, .inf, 2, 3]
  gate_weight:
    dtype: fp32
    shape: [4, 4]
    nonzero:
      - [0, 1, 2.5]
      - [3, 3, 0x7fc00001]
  selection_bias:
    dtype: fp32
    shape: [4]
    values: [8.13, 8.03, 8, .nan]
expected:
  source: "here"
  rows:
    - row: 0
      topk_ids: [0, 1]
)";

struct Lie {
  const char* found;
  const char* replacement;
  const char* message;  // regular expression for all after FILE
};

constexpr Lie kLies[] = {
    {"samebits_case: 1", "samebits_case: 2", ":1:16: samebits_case: found \"2\".*"},
    {"samebits_case: 1\n", "", ".*\"samebits_case\" is missing.*"},
    {"description:", "descriptoin:", ":8:1: .*unknown field \"descriptoin\"; did you mean description.*"},
    {"spec_version: 1", "spec_version: 9", ":.*spec_version.*"},
    {"top_k: 2}", "top_k: 5}", ":.*top_k.*"},
    {"num_tokens: 2", "num_tokens: 3", ":9:15: description.num_tokens: found \"3\".*2, as the tensors have"},
    {"num_tokens: 2", "num_tokens: two", ":9:15: description.num_tokens: found \"two\"; allowed: an integer.*"},
    {"num_tokens: 2", "num_tokens: -1", ":9:15: .*found \"-1\".*"},
    {"num_tokens: 2", "num_tokens: 99999999999999999999", ":9:15: .*allowed: an integer.*"},
    {"num_tokens: 2", "num_tokens: [2]", ":9:15: .*found a list.*"},
    {"num_tokens: 2", "num_token: 2", ":9:3: .*did you mean num_tokens.*"},
    {"num_tokens: 2", "num_tokens: 2\n  num_tokens: 2", ":10:3: .*twice.*"},
    {"num_tokens: 2", "top_k: 5", ":.*with these sizes, .*"},
    {"num_tokens: 2", "stage: from_logits", ":9:10: description.stage: .*full, as the tensors are"},
    {"num_tokens: 2", "stage: half", ":9:10: .*full, from_logits.*"},
    {"num_tokens: 2", "hidden: gaussian", ":9:11: .*normal, small_integer.*"},
    {"num_tokens: 2", "bias_offset: 1e99", ":9:16: .*range of fp32.*"},
    {"tensor: hidden_states, row", "tensor: hidden, row", ":11:16: .*hidden_states, gate_weight.*"},
    {"column: all, bits", "column: some, bits", ":11:47: .*"},
    {"bits: 0x7fc00000", "bits: nan", ":11:.*0x and 8 digits"},
    {"keep_rows: [0, 3]", "keep_rows: [0]", ":12:14: .*1 positions.*"},
    {"tensors:", "tensors:\n  logits: {dtype: fp32}", ":14:3: tensors: unknown field \"logits\".*"},
    {"dtype: bf16", "dtype: fp8", ":15:12: .*bf16, fp32.*"},
    {"shape: [2, 4]", "shape: [2, 5]", ":18:9: .*found 4 values; the shape has 5"},
    {"shape: [2, 4]", "shape: [3, 4]", ":18:7: .*found 2 rows; the shape has 3"},
    {"shape: [2, 4]", "shape: [2, 2, 2]", ":16:12: .*one or two sizes"},
    {"shape: [2, 4]", "shape: [2147483648, 2147483648]", ":16:13: .*"},
    {"shape: [4, 4]", "shape: [60000, 60000]", ":22:12: .*more than .* elements"},
    {"shape: [4, 4]", "shape: [4, 3]", ":25:1[0-9]: .*"},
    {"shape: [4, 4]", "shape: [4, 5]", ":14:3: tensors: gate_weight: hidden_size is 5; the other tensors have 4"},
    {"shape: [4]", "shape: [3]", ":29:13: .*found 4 values.*"},
    {"[1, 0, 0.5, -0.0]", "[1, 0, 0.881, 0]",
     ":18:16: .*found \"0.881\"; allowed: a decimal that is a bf16 value exactly.*"},
    {"[1, 0, 0.5, -0.0]", "[1, 0, ~, 0]", ":18:16: .*found nothing.*"},
    {"[0, 1, 2.5]", "[0, 2.5]", ":24:9: .*\\[row, column, value\\]"},
    {"[0, 1, 2.5]", "[0, 4, 2.5]", ":24:13: .*from 0 to 3.*"},
    {"[0, 1, 2.5]", "[3, 3, 2.5]", ":25:9: .*given before.*"},
    {"    nonzero:", "    values: []\n    nonzero:", ".*needs one of values, nonzero.*"},
    {"  selection_bias:", "  linear_bias:", ":14:3: tensors: .*linear_bias is given.*"},
    {"dtype: fp32\n    shape: [4]\n    values: [8.13, 8.03, 8, .nan]",
     "dtype: fp32\n    shape: [4]\n    file: ../x.safetensors", ":29:11: .*same folder"},
    {"dtype: fp32\n    shape: [4]\n    values: [8.13, 8.03, 8, .nan]",
     "dtype: fp32\n    shape: [4]\n    file: x.safetensors", ".*/x.safetensors: no such file"},
    {"row: 0\n", "row: 2\n", ":33:12: .*from 0 to 1.*"},
    {"topk_ids: [0, 1]", "topk_ids: [0, 1, 2]", ":34:17: .*2 ids"},
    {"topk_ids: [0, 1]", "topk_ids: [1, 1]", ":34:17: .*found id 1 twice; allowed: distinct ids, and -1"},
    {"topk_ids: [0, 1]", "topk_ids: [-1, -1]", "no error"},
    {"topk_ids: [0, 1]", "topk_ids: [0, 4]", ":34:21: .*from -1 to 3.*"},
    {"source: \"here\"", "source: \"here\"\n  weight_tolerance: 0.1", ".*needs tolerance_reason.*"},
    {"spec:\n", "spec: &a\n", "no error"},
    {"selection: {bias: fp32}", "selection: {bias: none}",
     ":.*selection_bias is given; the spec has none \\(selection.bias\\)"},
    {"selection: {bias: fp32}", "selection: {bais: fp32}", ":.*:7:.*"},
    {"expected:", "variant: other\nexpected:", ".*other.*"},
    {"expected:", "\t- [\n", ":.*"},
};

TEST(CaseFile, LiesAreRefusedWithLineColumnAndWhatIsAllowed) {
  const TempFolder folder;
  ASSERT_EQ(error_of(folder.write("case.yaml", kGood)), "no error");
  for (const Lie& lie : kLies) {
    std::string text = kGood;
    const std::size_t place = text.find(lie.found);
    ASSERT_NE(place, std::string::npos) << lie.found;
    text.replace(place, std::strlen(lie.found), lie.replacement);
    const std::filesystem::path path = folder.write("case.yaml", text);
    std::string error = error_of(path);
    if (error.starts_with(path.string())) error.erase(0, path.string().size());
    EXPECT_THAT(error, MatchesRegex(std::string(lie.message) + "(\n.*)*")) << lie.replacement;
  }
}

TEST(CaseFile, TensorsMayNotContradictTheInlineSpec) {
  const TempFolder folder;
  const std::string tensors = "tensors:\n  router_logits: {dtype: fp32, shape: [1, 3], values: [[1, 2, 3]]}\n";
  const std::string spec = "samebits_case: 1\nspec:\n  name: x\n  shape: {hidden_size: 4, num_experts: 4, top_k: 1}\n";
  folder.write("case.yaml", spec + tensors);
  const std::string error = error_of(folder / "case.yaml");
  EXPECT_THAT(error, HasSubstr("case.yaml:6:3: "));
  EXPECT_THAT(error, HasSubstr("num_experts 3, but the inline spec has shape.num_experts 4"));
  // Said by the description, fewer experts are meant.
  folder.write("case.yaml", spec + "description: {num_experts: 3}\n" + tensors);
  EXPECT_EQ(error_of(folder / "case.yaml"), "no error");
}

TEST(CaseFile, OtherRootsAreRefused) {
  const TempFolder folder;
  for (const char* text : {"", "1", "[]", "~", "samebits_case: 1", "a: *b", "{", "%YAML 9\n---\na", "? [x]\n: 1"}) {
    EXPECT_NE(error_of(folder.write("case.yaml", text)), "no error") << text;
  }
  std::string deep = "samebits_case: ";
  deep.append(100000, '[');
  EXPECT_NE(error_of(folder.write("case.yaml", deep)), "no error");
}

TEST(CaseFile, AnUnknownSpecNamesTheNearest) {
  const TempFolder folder;
  const auto path = folder.write("case.yaml", "samebits_case: 1\nspec: glm-5.3-flsh\n");
  EXPECT_THAT(error_of(path), HasSubstr(":2:7: spec: "));
  EXPECT_THAT(error_of(path), HasSubstr("glm-5.3-flash"));
}

TEST(CaseFile, ASpecFileIsFoundRelativeToTheCase) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "specs");
  folder.write("specs/tiny.yaml", kSpec);
  const auto path = folder.write("case.yaml",
                                 "samebits_case: 1\nspec: specs/tiny.yaml\nvariant: bf16_bias\n"
                                 "description: {num_tokens: 2}\n");
  const CaseFile file = read_case_file(path);
  EXPECT_EQ(file.c.description.num_experts, 8);
  EXPECT_EQ(file.c.spec.selection.bias, oracle::BiasType::kBf16);
}

TEST(CaseFile, TheTensorFileMayNotLie) {
  const TempFolder folder;
  CaseFile file;
  file.c.spec_name = "tiny.yaml";
  file.c.description = {};
  file.c.description.stage = properties::Stage::kFromLogits;
  file.c.description.num_tokens = 20;
  file.c.description.num_experts = 8;
  file.c.description.top_k = 2;
  oracle::RouterInputs data;
  data.num_tokens = 20;
  data.gate_rows = 8;
  data.router_logits.assign(160, 1.0f);
  data.selection_bias.assign(8, 0.0f);
  file.c.description.data = data;
  file.c.spec = properties::apply_shape(tiny_spec(), file.c.description);
  write_case_file(folder / "case.yaml", file);
  ASSERT_EQ(error_of(folder / "case.yaml"), "no error");

  SafeTensors tensors = read_safetensors(folder / "case.safetensors");
  tensors.tensors.at("router_logits").shape = {16, 10};
  write_safetensors(folder / "case.safetensors", tensors);
  EXPECT_THAT(error_of(folder / "case.yaml"), HasSubstr("case.safetensors has [16, 10]"));
  tensors.tensors.clear();
  write_safetensors(folder / "case.safetensors", tensors);
  EXPECT_THAT(error_of(folder / "case.yaml"), HasSubstr("no tensor router_logits"));
}

TEST(CaseFile, SizesInTheMetadataMayNotContradictTheCase) {
  const TempFolder folder;
  CaseFile file;
  file.c = generated(3);
  write_case_file(folder / "case.yaml", file, /*with_data=*/true);
  const SafeTensors written = read_safetensors(folder / "case.safetensors");
  EXPECT_EQ(written.metadata.size(), 8u);
  for (const auto& [name, size] : written.metadata) {
    for (const std::string& other : {size + "0", std::string("-1"), std::string()}) {
      SafeTensors content = written;
      content.metadata[name] = other;
      write_safetensors(folder / "case.safetensors", content);
      EXPECT_THAT(error_of(folder / "case.yaml"),
                  AllOf(HasSubstr("case.safetensors: metadata " + name + ": found \"" + other + "\""),
                        HasSubstr("allowed: \"" + size + "\"")));
    }
  }
  SafeTensors foreign = written;
  foreign.metadata = {{"format", "pt"}};
  write_safetensors(folder / "case.safetensors", foreign);
  EXPECT_EQ(error_of(folder / "case.yaml"), "no error");
}

// Deterministic: the same mutations in every run.
TEST(CaseFile, MutatedFilesAreReadOrRefusedAndNothingElse) {
  const TempFolder folder;
  const std::string good = kGood;
  std::mt19937 random(2);
  int refused = 0;
  constexpr int kRounds = 800;
  for (int round = 0; round < kRounds; ++round) {
    std::string bad = good;
    const std::uint64_t changes = 1 + random() % 3;
    for (std::uint64_t change = 0; change < changes; ++change) {
      const std::size_t place = random() % bad.size();
      switch (random() % 4) {
        case 0:
          bad[place] = static_cast<char>(random());
          break;
        case 1:
          bad.erase(place, 1 + random() % 8);
          break;
        case 2:
          bad.insert(place, 1, "0123456789[]{},:\"'-#&*!|> \n\t~."[random() % 31]);
          break;
        default:
          bad.insert(place, bad.substr(random() % bad.size(), random() % 30));
      }
    }
    if (error_of(folder.write("case.yaml", bad)) != "no error") ++refused;
  }
  EXPECT_GT(refused, kRounds / 2);
}

TEST(CaseFile, TheFixturesAreReadable) {
  const auto files = list_case_files(std::string(SAMEBITS_FIXTURES_DIR) + "/cases");
  EXPECT_GE(files.size(), 10u);
  for (const auto& path : files) {
    EXPECT_EQ(error_of(path), "no error");
  }
}

TEST(CaseFile, FoldersListTheirCasesInNameOrder) {
  const TempFolder folder;
  for (const char* name : {"b.yaml", "a.yaml", ".hidden.yaml", "c.safetensors"}) folder.write(name, "");
  EXPECT_EQ(list_case_files(folder.path()), (std::vector<std::filesystem::path>{folder / "a.yaml", folder / "b.yaml"}));
  EXPECT_EQ(list_case_files(folder / "b.yaml"), std::vector<std::filesystem::path>{folder / "b.yaml"});
  const TempFolder empty;
  EXPECT_THROW(list_case_files(empty.path()), FileError);
}

}  // namespace
}  // namespace samebits::harness
