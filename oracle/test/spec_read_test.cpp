// Reading a spec file: values, and the message and position of every kind of error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "oracle/test/spec_testing.h"

namespace samebits::oracle {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(SpecRead, DefaultsAreThoseOfTheStruct) {
  RouterSpec expected;
  expected.name = "r";
  expected.shape.num_experts = 8;
  expected.shape.top_k = 2;
  EXPECT_TRUE(parse_spec(kMinimal, "f.yaml").base == expected);
}

TEST(SpecRead, EveryKindOfValue) {
  const RouterSpec spec = parse_spec(R"(spec_version: 1
name: r
family: "null"
sources: [one, 'two: 2']
notes: >-
  folded
  text
unverified: true
unverified_fields:
  shape: not read
shape: {hidden_size: 4096, num_experts: 8, top_k: 2, num_layers: null}
gate:
  input_norm: rmsnorm_unweighted
  input_norm_eps: 1.0e-6
  input_scale: rsqrt_hidden_size
logits: {temperature: 2, softcap: 30.}
selection: {bias_variants: [text, image], bias: fp32}
weights: {renormalize: l1, eps: 1e-20, eps_mode: add, routed_scaling_factor: +2.5}
hash: {layers: [0, 2], table_dtype: int64}
outputs: {pad_id: -7}
)",
                                     "f.yaml")
                              .base;
  EXPECT_EQ(spec.family, "null");
  EXPECT_THAT(spec.sources, testing::ElementsAre("one", "two: 2"));
  EXPECT_EQ(spec.notes, "folded text");
  EXPECT_TRUE(spec.unverified);
  EXPECT_EQ(spec.unverified_fields.at("shape"), "not read");
  EXPECT_EQ(spec.shape.hidden_size, 4096);
  EXPECT_EQ(spec.shape.num_layers, std::nullopt);
  EXPECT_EQ(spec.gate.input_norm, InputNorm::kRmsnormUnweighted);
  EXPECT_EQ(spec.gate.input_norm_eps, 1e-6);
  EXPECT_EQ(spec.gate.input_scale_kind, InputScale::kRsqrtHiddenSize);
  EXPECT_EQ(spec.logits.temperature, 2.0);
  EXPECT_EQ(spec.logits.softcap, 30.0);
  EXPECT_THAT(spec.selection.bias_variants, testing::ElementsAre("text", "image"));
  EXPECT_EQ(spec.weights.eps, 1e-20);
  EXPECT_EQ(spec.weights.routed_scaling_factor, 2.5);
  EXPECT_THAT(spec.hash.layers, testing::ElementsAre(0, 2));
  EXPECT_EQ(spec.hash.table_dtype, TableType::kInt64);
  EXPECT_EQ(spec.outputs.pad_id, -7);
}

TEST(SpecRead, WrongValueIsReportedAtItsLineAndColumn) {
  EXPECT_EQ(parse_error(kMinimal + "selection:\n  bias: fp16\n"),
            "f.yaml:6:9: selection.bias: found fp16; allowed: none | bf16 | fp32; write one of the allowed values");
}

TEST(SpecRead, UnknownFieldNamesTheNearestOne) {
  EXPECT_EQ(parse_error(kMinimal + "gate:\n  gem_dtype: bf16\n"),
            "f.yaml:6:3: gate.gem_dtype: found an unknown field; allowed: the fields of the schema (docs/spec.md); did "
            "you mean gate.gemm_dtype?");
  EXPECT_THAT(
      parse_error(kMinimal + "zebra_crossing_lamp: 1\n"),
      testing::AllOf(StartsWith("f.yaml:5:1: zebra_crossing_lamp: found an unknown field"), HasSubstr("remove")));
}

TEST(SpecRead, RepeatedKeyNamesBothLines) {
  EXPECT_EQ(parse_error(kMinimal + "name: again\n"),
            "f.yaml:5:1: name: found a second time (first on line 1); allowed: once; remove one of the two");
  EXPECT_THAT(parse_error(kMinimal + "variants:\n  v:\n    selection.bias: bf16\n    selection.bias: fp32\n"),
              StartsWith("f.yaml:8:5: selection.bias: found a second time (first on line 7)"));
}

TEST(SpecRead, DottedPathOutsideAnOverlayIsExplained) {
  EXPECT_THAT(parse_error(kMinimal + "gate.gemm_dtype: bf16\n"),
              testing::AllOf(StartsWith("f.yaml:5:1: gate.gemm_dtype: "), HasSubstr("nested maps")));
}

struct WrongType {
  const char* yaml;
  const char* starts_with;
};

void PrintTo(const WrongType& wrong, std::ostream* stream) {
  *stream << wrong.starts_with;
}

class SpecWrongType : public testing::TestWithParam<WrongType> {};

TEST_P(SpecWrongType, IsAnErrorAtTheValue) {
  EXPECT_THAT(parse_error(GetParam().yaml), StartsWith(GetParam().starts_with)) << GetParam().yaml;
}

INSTANTIATE_TEST_SUITE_P(
    All, SpecWrongType,
    testing::Values(
        WrongType{"name: r\nshape: {num_experts: .nan, top_k: 1}", "f.yaml:2:22: shape.num_experts: found .nan;"},
        WrongType{"name: r\nshape: {num_experts: -8, top_k: 1}", "f.yaml:2:22: shape.num_experts: found -8;"},
        WrongType{"name: r\nshape: {num_experts: 8.0, top_k: 1}", "f.yaml:2:22: shape.num_experts: found 8.0;"},
        WrongType{"name: r\nshape: {num_experts: '8', top_k: 1}", "f.yaml:2:22: shape.num_experts: found \"8\";"},
        WrongType{"name: r\nshape: {num_experts: 010, top_k: 1}", "f.yaml:2:22: shape.num_experts: found 010;"},
        WrongType{"name: r\nshape: {num_experts: 0x10, top_k: 1}", "f.yaml:2:22: shape.num_experts: found 0x10;"},
        WrongType{"name: r\nshape: {num_experts: 1e3, top_k: 1}", "f.yaml:2:22: shape.num_experts: found 1e3;"},
        WrongType{"name: r\nshape: {num_experts: eight, top_k: 1}", "f.yaml:2:22: shape.num_experts: found eight;"},
        WrongType{"name: r\nshape: {num_experts: 99999999999999999999, top_k: 1}",
                  "f.yaml:2:22: shape.num_experts: found 99999999999999999999;"},
        WrongType{"name: r\nshape: {num_experts: [8], top_k: 1}", "f.yaml:2:22: shape.num_experts: found [8];"},
        WrongType{"name: r\nshape: {num_experts: {a: 1}, top_k: 1}", "f.yaml:2:22: shape.num_experts: found {"},
        WrongType{"name: r\nshape: [8, 2]", "f.yaml:2:8: shape: found [8, 2]; allowed: a map of fields;"},
        WrongType{"name: r\nshape: 8", "f.yaml:2:8: shape: found 8; allowed: a map of fields;"},
        WrongType{"name: r\nshape:", "f.yaml:2:1: shape: found null; allowed: a map of fields;"},
        WrongType{"weights: {eps: nan}", "f.yaml:1:16: weights.eps: found nan;"},
        WrongType{"weights: {eps: .nan}", "f.yaml:1:16: weights.eps: found .nan;"},
        WrongType{"weights: {eps: .inf}", "f.yaml:1:16: weights.eps: found .inf;"},
        WrongType{"weights: {eps: -.inf}", "f.yaml:1:16: weights.eps: found -.inf;"},
        WrongType{"weights: {eps: inf}", "f.yaml:1:16: weights.eps: found inf;"},
        WrongType{"weights: {eps: 1e400}", "f.yaml:1:16: weights.eps: found 1e400;"},
        WrongType{"weights: {eps: 1e-400}", "f.yaml:1:16: weights.eps: found 1e-400;"},
        WrongType{"weights: {eps: 1e39}", "f.yaml:1:16: weights.eps: found 1e39;"},
        WrongType{"weights: {eps: 1e-46}", "f.yaml:1:16: weights.eps: found 1e-46;"},
        WrongType{"weights: {eps: -0.0}", "f.yaml:1:16: weights.eps: found -0.0;"},
        WrongType{"weights: {eps: 0x1p-3}", "f.yaml:1:16: weights.eps: found 0x1p-3;"},
        WrongType{"weights: {eps: '1'}", "f.yaml:1:16: weights.eps: found \"1\";"},
        WrongType{"weights: {eps: ++1}", "f.yaml:1:16: weights.eps: found "},
        WrongType{"weights: {eps: 1.2.3}", "f.yaml:1:16: weights.eps: found 1.2.3;"},
        WrongType{"weights: {eps: e5}", "f.yaml:1:16: weights.eps: found e5;"},
        WrongType{"weights: {eps: null}", "f.yaml:1:16: weights.eps: found null;"},
        WrongType{"weights: {routed_scaling_factor: -1}", "f.yaml:1:34: weights.routed_scaling_factor: found -1;"},
        WrongType{"weights: {per_expert_scale: yes}", "f.yaml:1:29: weights.per_expert_scale: found yes;"},
        WrongType{"weights: {per_expert_scale: 'true'}", "f.yaml:1:29: weights.per_expert_scale: found \"true\";"},
        WrongType{"logits: {temperature: 0}", "f.yaml:1:23: logits.temperature: found 0;"},
        WrongType{"logits: {softcap: -1}", "f.yaml:1:19: logits.softcap: found -1;"},
        WrongType{"gate: {input_scale: 0}", "f.yaml:1:21: gate.input_scale: found 0;"},
        WrongType{"gate: {input_norm_eps: 0}", "f.yaml:1:24: gate.input_norm_eps: found 0;"},
        WrongType{"sparsemixer: {jitter_eps: 0}", "f.yaml:1:27: sparsemixer.jitter_eps: found 0;"},
        WrongType{"hash: {layers: 3}", "f.yaml:1:16: hash.layers: found 3;"},
        WrongType{"hash: {layers: [-1]}", "f.yaml:1:16: hash.layers: found [-1];"},
        WrongType{"hash: {layers: [a]}", "f.yaml:1:16: hash.layers: found [a];"},
        WrongType{"selection: {tie_break: highest_index}", "f.yaml:1:24: selection.tie_break: found highest_index;"},
        WrongType{"spec_version: 2", "f.yaml:1:15: spec_version: found 2; allowed: 1;"},
        WrongType{"name: [r]", "f.yaml:1:7: name: found [r];"}, WrongType{"name:", "f.yaml:1:1: name: found null;"},
        WrongType{"name: a/b", "f.yaml:1:7: name: found a/b;"}, WrongType{"name: ''", "f.yaml:1:7: name: found \"\";"},
        WrongType{"name: .hidden", "f.yaml:1:7: name: found .hidden;"},
        WrongType{"sources: one", "f.yaml:1:10: sources: found one;"},
        WrongType{"sources: [[one]]", "f.yaml:1:10: sources: found [[one]];"},
        WrongType{"unverified_fields: [shape]", "f.yaml:1:20: unverified_fields: found [shape];"},
        WrongType{"unverified_fields: {shape: [1]}", "f.yaml:1:20: unverified_fields: found {"},
        WrongType{"capacity: 1.5", "f.yaml:1:11: capacity: found 1.5; allowed: none | batch_dependent;"}));

TEST(SpecRead, RequiredFieldsAreAskedFor) {
  EXPECT_THAT(parse_error("shape: {num_experts: 8, top_k: 2}\n"), StartsWith("f.yaml:1:1: name: found nothing;"));
  EXPECT_THAT(parse_error("name: r\nshape: {top_k: 2}\n"), StartsWith("f.yaml:2:1: shape.num_experts: found nothing;"));
  EXPECT_THAT(parse_error("name: r\nshape: {num_experts: 2}\n"), StartsWith("f.yaml:2:1: shape.top_k: found nothing;"));
  EXPECT_THAT(parse_error("name: r\n"), HasSubstr("\nf.yaml:1:1: shape.top_k: found nothing;"));
}

TEST(SpecRead, MalformedYamlIsReportedWithItsPosition) {
  EXPECT_THAT(parse_error("name: r\nshape: {num_experts: 8"), StartsWith("f.yaml:2:"));
  EXPECT_THAT(parse_error("name: r\n\tshape: 1\n"), StartsWith("f.yaml:2:"));
  EXPECT_THAT(parse_error("name: 'r\n"), StartsWith("f.yaml:"));
  EXPECT_THAT(parse_error("name: r\n- a\n"), StartsWith("f.yaml:2:"));
}

TEST(SpecRead, RefusedForms) {
  EXPECT_EQ(parse_error("[1, 2]"),
            "f.yaml:1:1: file: found [1, 2]; allowed: a map of fields; begin with name: and shape:");
  EXPECT_THAT(parse_error("name"), StartsWith("f.yaml:1:1: file: found name;"));
  EXPECT_THAT(parse_error(""), StartsWith("f.yaml: file: found nothing in it;"));
  EXPECT_THAT(parse_error("# only a comment\n"), StartsWith("f.yaml: file: found nothing in it;"));
  EXPECT_THAT(parse_error(kMinimal + "---\nname: s\n"), StartsWith("f.yaml:5:1: YAML: found a second document;"));
  EXPECT_THAT(parse_error("name: &a r\n"), StartsWith("f.yaml:1:7: YAML: found an anchor or alias"));
  EXPECT_THAT(parse_error("name: *a\n"), StartsWith("f.yaml:1:7: YAML: found "));
  EXPECT_THAT(parse_error("name: !!str r\n"), StartsWith("f.yaml:1:7: YAML: found the tag "));
  EXPECT_THAT(parse_error("? [a]\n: b\n"), StartsWith("f.yaml:1:3: YAML: found [a] as a key;"));
  EXPECT_THAT(parse_error("~: b\n"), StartsWith("f.yaml:1:1: YAML: found null as a key;"));
  EXPECT_THAT(parse_error(std::string("name: r\nfam\0ily: x\n", 18)),
              StartsWith("f.yaml:2:4: YAML: found the control character \\x00;"));
  EXPECT_THAT(parse_error("name: r\x04\n"), StartsWith("f.yaml:1:8: YAML: found the control character \\x04;"));
}

TEST(SpecRead, DeepNestingIsRefusedNotFollowed) {
  EXPECT_THAT(parse_error("notes: " + std::string(100000, '[')), HasSubstr("found more than 16 nested levels"));
  EXPECT_THAT(parse_error("notes: " + std::string(100000, '{')), StartsWith("f.yaml:1:"));
}

TEST(SpecRead, AliasBombIsRefused) {
  EXPECT_THAT(parse_error("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"), HasSubstr("anchor or alias"));
}

TEST(SpecRead, TextOfOneMebibyteIsTheLimit) {
  std::string text = kMinimal + "notes: ";
  text += std::string((std::size_t{1} << 20) - text.size(), 'x');
  EXPECT_EQ(parse_error(text), "");
  EXPECT_THAT(parse_error(text + "x"), StartsWith("f.yaml: file: found more than 1048576 bytes;"));
}

TEST(SpecRead, LongValuesAreCutInMessages) {
  EXPECT_LT(parse_error("name: r\nfamily: [" + std::string(100000, 'x') + "]\n").size(), 200u);
}

TEST(SpecReadFile, SaysWhatIsWrongWithTheFile) {
  const auto error_of = [](const std::filesystem::path& path) -> std::string {
    try {
      read_spec_file(path);
    } catch (const SpecError& error) {
      return error.what();
    }
    return "";
  };
  const auto folder = std::filesystem::path(testing::TempDir()) / "samebits_spec_read_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  EXPECT_EQ(error_of(folder / "none.yaml"), (folder / "none.yaml").string() +
                                                ": file: found no such file; allowed: a spec file in YAML; check the "
                                                "path");
  EXPECT_THAT(error_of(folder / "none" / "none.yaml"), HasSubstr("found no such file"));
  EXPECT_THAT(error_of(folder), HasSubstr("found a directory"));
  std::ofstream(folder / "empty.yaml").close();
  EXPECT_THAT(error_of(folder / "empty.yaml"), HasSubstr("found nothing in it"));
  std::filesystem::create_symlink(folder / "loop.yaml", folder / "loop.yaml");
  EXPECT_THAT(error_of(folder / "loop.yaml"), HasSubstr("allowed: a readable file"));
  std::ofstream(folder / "big.yaml") << std::string((std::size_t{1} << 20) + 1, '#');
  EXPECT_THAT(error_of(folder / "big.yaml"), HasSubstr("found more than 1048576 bytes"));
  EXPECT_THAT(error_of("/dev/zero"), HasSubstr("found more than 1048576 bytes"));
  std::ofstream(folder / "good.yaml") << kMinimal;
  EXPECT_EQ(read_spec_file(folder / "good.yaml").file, (folder / "good.yaml").string());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace samebits::oracle
