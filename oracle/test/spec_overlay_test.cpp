// Variants, layer overrides and --set: order, checks and positions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "oracle/spec/validate.h"
#include "oracle/test/spec_testing.h"

namespace samebits::oracle {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

SpecFile layered() {
  return parse_spec(kMinimal + R"(weights: {routed_scaling_factor: 1.0}
layer_overrides:
- layers: [3, 4]
  set:
    weights.routed_scaling_factor: 2.0
    shape.num_experts: 16
- layers: [4]
  set: {weights.routed_scaling_factor: 3.0}
- layers: draft
  set: {weights.routed_scaling_factor: 7.0}
variants:
  v:
    weights.routed_scaling_factor: 4.0
    selection.bias_variants: [a, "b"]
  same: {}
)",
                    "f.yaml");
}

double scale(const Resolution& resolution) {
  return resolve(layered(), resolution).weights.routed_scaling_factor;
}

TEST(SpecOverlay, LaterOnesWin) {
  const Assignment set{"weights.routed_scaling_factor", "5.0"};
  const Assignment set_again{"weights.routed_scaling_factor", "6.0"};
  EXPECT_EQ(scale({}), 1.0);
  EXPECT_EQ(scale({.layer = "2"}), 1.0);
  EXPECT_EQ(scale({.layer = "3"}), 2.0);
  EXPECT_EQ(scale({.layer = "4"}), 3.0);
  EXPECT_EQ(scale({.layer = "draft"}), 7.0);
  EXPECT_EQ(scale({.variant = "v", .layer = "draft"}), 4.0);
  EXPECT_EQ(scale({.variant = "v", .layer = "4"}), 4.0);
  EXPECT_EQ(scale({.variant = "v", .layer = "4", .set = {set}}), 5.0);
  EXPECT_EQ(scale({.set = {set, set_again}}), 6.0);
  EXPECT_EQ(num_experts(resolve(layered(), {.variant = "v", .layer = "4"})), 16);
  EXPECT_TRUE(resolve(layered(), {.variant = "same"}) == layered().base);
}

TEST(SpecOverlay, FileKeepsOrderAndPositions) {
  const SpecFile file = layered();
  ASSERT_EQ(file.variants.size(), 2u);
  EXPECT_EQ(file.variants[0].first, "v");
  const Assignment& list = file.variants[0].second[1];
  EXPECT_EQ(list.path, "selection.bias_variants");
  EXPECT_EQ(list.text, "[a, \"b\"]");
  EXPECT_EQ(list.line, 18);
  EXPECT_EQ(list.column, 30);
  ASSERT_EQ(file.layer_overrides.size(), 3u);
  EXPECT_THAT(file.layer_overrides[0].layers, testing::ElementsAre(3, 4));
  EXPECT_EQ(file.layer_overrides[0].name, "");
  EXPECT_THAT(file.layer_overrides[2].layers, testing::IsEmpty());
  EXPECT_EQ(file.layer_overrides[2].name, "draft");
}

TEST(SpecOverlay, WrongValueInAVariantNamesTheVariantAndTheLine) {
  EXPECT_EQ(
      parse_error(kMinimal + "variants:\n  v:\n    selection.bias: bf17\n"),
      "f.yaml:7:21: selection.bias (variant v): found bf17; allowed: none | bf16 | fp32; write one of the allowed "
      "values");
}

TEST(SpecOverlay, UnknownFieldInAVariant) {
  EXPECT_THAT(parse_error(kMinimal + "variants:\n  v:\n    selection.bais: bf16\n"),
              testing::AllOf(StartsWith("f.yaml:7:5: selection.bais (variant v): found an unknown field;"),
                             HasSubstr("did you mean selection.bias?")));
  EXPECT_THAT(parse_error(kMinimal + "variants:\n  v:\n    selection: {bias: bf16}\n"),
              StartsWith("f.yaml:7:5: selection (variant v): found an unknown field;"));
}

TEST(SpecOverlay, RuleBrokenByAVariantPointsAtItsAssignment) {
  EXPECT_THAT(parse_error(kMinimal + "variants:\n  v:\n    weights.dtype: bf16\n    shape.top_k: 9\n"),
              StartsWith("f.yaml:8:18: shape.top_k (variant v): found 9; allowed: 1 .. 8"));
}

TEST(SpecOverlay, RuleBrokenThroughAnotherFieldPointsNearby) {
  EXPECT_THAT(parse_error(kMinimal + "variants:\n  v:\n    score.dtype: bf16\n    weights.eps_mode: add\n"),
              StartsWith("f.yaml:8:23: weights.eps (variant v): found 0.0; allowed: number > 0"));
}

TEST(SpecOverlay, RuleBrokenByAnOverride) {
  EXPECT_THAT(parse_error(kMinimal + "layer_overrides:\n- layers: [0]\n  set: {selection.method: hash_table}\n"),
              StartsWith("f.yaml:7:"));
  EXPECT_THAT(parse_error(kMinimal + "layer_overrides:\n- layers: [0, 1]\n  set: {shape.top_k: 9}\n"),
              StartsWith("f.yaml:7:22: shape.top_k (layer override for 0, 1): found 9;"));
}

TEST(SpecOverlay, WrongForms) {
  const auto error = [](const std::string& text) { return parse_error(kMinimal + text); };
  EXPECT_THAT(error("variants: [v]\n"), StartsWith("f.yaml:5:11: variants: found [v];"));
  EXPECT_THAT(error("variants:\n"), StartsWith("f.yaml:5:1: variants: found null;"));
  EXPECT_THAT(error("variants: {v: [1]}\n"), StartsWith("f.yaml:5:15: variant v: found [1];"));
  EXPECT_THAT(error("variants: {a/b: {}}\n"), StartsWith("f.yaml:5:12: variants: found "));
  EXPECT_THAT(error("variants: {v: {name: s}}\n"),
              HasSubstr("name (variant v): found a field that describes the file;"));
  EXPECT_THAT(error("layer_overrides: {}\n"), StartsWith("f.yaml:5:18: layer_overrides: found {};"));
  EXPECT_THAT(error("layer_overrides: [1]\n"), StartsWith("f.yaml:5:19: layer_overrides: found 1;"));
  EXPECT_THAT(error("layer_overrides: [{layers: [1]}]\n"), HasSubstr("allowed: a map with layers and set; give both"));
  EXPECT_THAT(error("layer_overrides: [{set: {}}]\n"), HasSubstr("allowed: a map with layers and set; give both"));
  EXPECT_THAT(error("layer_overrides: [{layers: draft, set: {shape.top_k: 9}}]\n"),
              HasSubstr("shape.top_k (layer override for draft): found 9;"));
  EXPECT_THAT(error("layer_overrides: [{layers: [], set: {}}]\n"), HasSubstr("layer_overrides.layers: found []"));
  for (const char* layers : {"3", "-draft", "3rd", "\"\"", "a b", "null", "{}"}) {
    EXPECT_THAT(error("layer_overrides: [{layers: " + std::string(layers) + ", set: {}}]\n"),
                HasSubstr("layer_overrides.layers: found "))
        << layers;
  }
  EXPECT_EQ(error("layer_overrides: [{layers: draft, set: {}}]\n"), "");
  EXPECT_THAT(error("layer_overrides: [{layers: [1, 1], set: {}}]\n"),
              HasSubstr("layers: found 1; allowed: each layer once"));
  EXPECT_THAT(error("layer_overrides: [{layers: [1], sets: {}}]\n"), HasSubstr("layer_overrides: found sets;"));
  EXPECT_THAT(parse_error("name: r\nshape: {num_experts: 8, top_k: 2, num_layers: 4}\n"
                          "layer_overrides: [{layers: [4], set: {}}]\n"),
              StartsWith("f.yaml:3:29: layer_overrides.layers: found 4; allowed: 0 .. 3;"));
}

TEST(SpecResolve, UnknownVariantListsTheKnownOnes) {
  EXPECT_EQ(resolve_error(layered(), {.variant = "sane"}),
            "f.yaml: variant: found sane; allowed: v, same; did you mean same?");
  EXPECT_THAT(resolve_error(parse_spec(kMinimal, "f.yaml"), {.variant = "v"}), HasSubstr("this file has no variants"));
}

TEST(SpecResolve, LayerMustExist) {
  EXPECT_THAT(resolve_error(layered(), {.layer = "-1"}),
              StartsWith("f.yaml: layer: found -1; allowed: 0 or more, draft;"));
  EXPECT_EQ(resolve_error(layered(), {.layer = "graft"}),
            "f.yaml: layer: found graft; allowed: 0 or more, draft; did you mean draft?");
  for (const char* layer : {"", "03", "1.0", "1e1", "0x1", " 3", "draft ", "99999999999999999999"}) {
    EXPECT_THAT(resolve_error(layered(), {.layer = layer}), HasSubstr("; allowed: 0 or more, draft; ")) << layer;
  }
  const SpecFile file = read_spec_file(fixture("deepseek-v4-flash"));
  EXPECT_THAT(resolve_error(file, {.layer = "43"}), HasSubstr("layer: found 43; allowed: 0 .. 42;"));
  EXPECT_THAT(resolve_error(file, {.layer = "draft"}), HasSubstr("layer: found draft; allowed: 0 .. 42;"));
}

TEST(SpecResolve, DraftLayersAreALayerByName) {
  const SpecFile file = read_spec_file(fixture("deepseek-v4.1-flash"));
  const RouterSpec draft = resolve(file, {.variant = "bf16_bias", .layer = "draft"});
  EXPECT_EQ(num_experts(draft), 128);
  EXPECT_EQ(top_k(draft), 3);
  EXPECT_EQ(draft.selection.bias, BiasType::kBf16);
  EXPECT_EQ(num_experts(resolve(file, {.layer = "39"})), 384);
}

TEST(SpecResolve, ErrorsOfTheCommandLineNameTheAssignment) {
  const SpecFile file = parse_spec(kMinimal, "f.yaml");
  const auto error = [&file](const char* path, const char* text) {
    return resolve_error(file, {.set = {{path, text}}});
  };
  EXPECT_EQ(
      error("shape.top_k", "9"),
      "--set shape.top_k=9: shape.top_k: found 9; allowed: 1 .. 8 (shape.num_experts); choose no more experts than "
      "there are");
  EXPECT_THAT(error("shape.topk", "2"), HasSubstr("did you mean shape.top_k?"));
  EXPECT_THAT(error("", "2"), HasSubstr("found an unknown field"));
  EXPECT_THAT(error("weights.eps", "nan"), HasSubstr("weights.eps: found nan; allowed: number >= 0"));
  EXPECT_THAT(error("weights.eps", ""), HasSubstr("weights.eps: found ; allowed: number >= 0"));
  EXPECT_THAT(error("weights.eps", "[1"), HasSubstr("allowed: one YAML value"));
  EXPECT_THAT(error("weights.eps", "--- 1\n--- 2"), HasSubstr("allowed: one YAML value"));
  EXPECT_THAT(error("weights.eps", "1\x01"), HasSubstr("found 1\\x01; allowed: one YAML value"));
  EXPECT_THAT(error("name", "s"), HasSubstr("found a field that describes the file"));
}

TEST(SpecResolve, CombinationsAreCheckedAsAWhole) {
  const SpecFile file = read_spec_file(fixture("deepseek-v4-flash"));
  EXPECT_EQ(resolve_error(file, {.variant = "bf16_bias"}), "");
  EXPECT_EQ(resolve_error(file, {.layer = "0"}), "");
  EXPECT_THAT(resolve_error(file, {.variant = "bf16_bias", .layer = "0"}),
              HasSubstr("selection.bias (variant bf16_bias): found bf16; allowed: none when selection.method is "
                        "hash_table"));
}

TEST(SpecResolve, HashLayersAreLayersWithATable) {
  const SpecFile file = read_spec_file(fixture("deepseek-v4-flash"));
  EXPECT_TRUE(resolve(file, {.layer = "3"}) == file.base);
  for (const char* layer : {"0", "1", "2"}) {
    const RouterSpec spec = resolve(file, {.layer = layer});
    EXPECT_EQ(spec.selection.method, SelectionMethod::kHashTable);
    EXPECT_EQ(spec.selection.bias, BiasType::kNone);
    EXPECT_EQ(unsupported_reason(spec), std::nullopt);
  }
}

}  // namespace
}  // namespace samebits::oracle
