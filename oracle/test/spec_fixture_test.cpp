// The built-in specs, writing, equality, and the documented schema.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "oracle/spec/validate.h"
#include "oracle/test/spec_testing.h"

namespace samebits::oracle {
namespace {

// No right answer exists for a row of these: "" for the base, else a variant.
const std::set<std::pair<std::string, std::string>> kRefused = {
    {"nllb-moe-54b", ""}, {"switch-base-128", ""}, {"hunyuan-a13b", "official_easy_path"}};

// The built-in routers, without the ending of the file name.
const char* const kNames[] = {"a.x-k1",
                              "arctic",
                              "aria",
                              "dbrx",
                              "deepseek-r1",
                              "deepseek-v2",
                              "deepseek-v2-lite",
                              "deepseek-v3",
                              "deepseek-v3.2-exp",
                              "deepseek-v4-flash",
                              "deepseek-v4-flash-vision-exp",
                              "deepseek-v4-pro",
                              "deepseek-v4.1-flash",
                              "dots.llm1",
                              "ernie-4.5-21b-a3b",
                              "ernie-4.5-300b-a47b",
                              "flex-olmo-7x7b",
                              "gemma-4-26b-a4b",
                              "glm-4.5",
                              "glm-4.5-air",
                              "glm-4.7-flash",
                              "glm-5",
                              "glm-5.2",
                              "glm-5.3-flash",
                              "gpt-oss-120b",
                              "gpt-oss-20b",
                              "granite-3.0-1b-a400m",
                              "granite-3.0-3b-a800m",
                              "granite-4.0-h-small",
                              "grok-1",
                              "grok-2",
                              "hunyuan-a13b",
                              "hy3",
                              "inkling",
                              "inkling-small",
                              "intern-s1-pro",
                              "jamba-v0.1",
                              "jetmoe-8b",
                              "joyai-llm-flash",
                              "k-exaone-236b",
                              "kimi-k2",
                              "kimi-k2.5",
                              "kimi-k3",
                              "kimi-linear-48b-a3b",
                              "laguna-xs.2",
                              "lfm2-8b-a1b",
                              "ling-1t",
                              "ling-flash-2.0",
                              "ling-mini-2.0",
                              "llama-4-maverick",
                              "llama-4-scout",
                              "longcat-flash",
                              "mellum2-12b-a2.5b",
                              "mimo-v2-flash",
                              "minimax-m1",
                              "minimax-m2",
                              "minimax-m3",
                              "mistral-4",
                              "mixtral-8x22b",
                              "mixtral-8x7b",
                              "moonlight-16b-a3b",
                              "nemotron-3-nano-30b-a3b",
                              "nemotron-3-super-120b-a12b",
                              "nemotron-3-ultra-550b-a55b",
                              "nllb-moe-54b",
                              "olmoe-1b-7b",
                              "phi-3.5-moe",
                              "privacy-filter",
                              "qwen1.5-moe-a2.7b",
                              "qwen2-57b-a14b",
                              "qwen3-235b-a22b",
                              "qwen3-30b-a3b",
                              "qwen3-coder-480b-a35b",
                              "qwen3-next-80b-a3b",
                              "qwen3.5-35b-a3b",
                              "qwen3.5-397b-a17b",
                              "sarvam-105b",
                              "sarvam-30b",
                              "skywork-moe",
                              "solar-open-100b",
                              "step-3",
                              "step-3.5-flash",
                              "switch-base-128",
                              "trinity-mini",
                              "xverse-moe-a4.2b"};

void expect_round_trip(const RouterSpec& spec) {
  EXPECT_TRUE(parse_spec(to_yaml(spec), "written").base == spec) << to_yaml(spec);
  EXPECT_TRUE(parse_spec(to_yaml(spec, true), "written").base == spec) << to_yaml(spec, true);
}

TEST(SpecFixtures, AreAllThere) {
  std::vector<std::string> names;
  for (const auto& path : fixtures()) names.push_back(path.stem().string());
  EXPECT_THAT(names, testing::UnorderedElementsAreArray(kNames));
}

// Calls `check(spec, variant, layer)` for the base, each variant and each layer that has overrides, by number or name.
template <class Check>
void for_each_resolution(const SpecFile& file, const Check& check) {
  std::vector<std::optional<std::string>> variants = {std::nullopt};
  for (const auto& [variant, set] : file.variants) variants.push_back(variant);
  for (const auto& variant : variants) check(resolve(file, {.variant = variant}), variant.value_or(""), "");
  for (const LayerOverride& override : file.layer_overrides) {
    std::vector<std::string> layers;
    if (!override.name.empty()) layers.push_back(override.name);
    for (const std::int64_t layer : override.layers) layers.push_back(std::to_string(layer));
    for (const std::string& layer : layers) check(resolve(file, {.layer = layer}), "", layer);
  }
}

TEST(SpecFixtures, ResolveInEveryVariantAndLayerAndRoundTrip) {
  for (const auto& path : fixtures()) {
    SCOPED_TRACE(path.string());
    const SpecFile file = read_spec_file(path);
    EXPECT_EQ(file.base.name, path.stem().string());
    EXPECT_FALSE(file.base.family.empty());
    EXPECT_THAT(file.base.sources, testing::Not(testing::IsEmpty()));
    EXPECT_THAT(file.base.sources, testing::Each(testing::Not(testing::IsEmpty())));
    EXPECT_EQ(file.base.unverified, !file.base.unverified_fields.empty());
    for_each_resolution(file, [&file](const RouterSpec& spec, const std::string& variant, const std::string& layer) {
      SCOPED_TRACE("variant " + variant + " layer " + layer);
      EXPECT_EQ(spec == file.base, variant.empty() && layer.empty());
      expect_round_trip(spec);
    });
  }
}

TEST(SpecFixtures, UnverifiedFieldsAreFieldsOrSectionsWithAReason) {
  std::set<std::string> paths;
  for (const FieldInfo& field : schema()) {
    paths.insert(field.path);
    paths.insert(field.path.substr(0, field.path.find('.')));
  }
  for (const auto& path : fixtures()) {
    for (const auto& [field, reason] : read_spec_file(path).base.unverified_fields) {
      EXPECT_EQ(paths.count(field), 1u) << path << " " << field;
      EXPECT_FALSE(reason.empty()) << path << " " << field;
    }
  }
}

TEST(SpecFixtures, AnUnknownHiddenSizeIsSaidToBeUnverified) {
  for (const auto& path : fixtures()) {
    const RouterSpec base = read_spec_file(path).base;
    EXPECT_TRUE(base.shape.hidden_size || base.unverified_fields.contains("shape")) << path;
  }
}

TEST(SpecFixtures, RunUnlessTheyHaveACapacity) {
  std::set<std::pair<std::string, std::string>> refused;
  for (const auto& path : fixtures()) {
    const SpecFile file = read_spec_file(path);
    for_each_resolution(file, [&](const RouterSpec& spec, const std::string& variant, const std::string&) {
      const std::string reason = unsupported_reason(spec).value_or("");
      if (reason.empty()) return;
      EXPECT_THAT(reason, testing::StartsWith("refused by design: capacity: batch_dependent")) << path << variant;
      refused.emplace(file.base.name, variant);
    });
  }
  EXPECT_EQ(refused, kRefused);
}

// What few routers have, so that a spec that loses it is noticed.
TEST(SpecFixtures, HaveTheRareFeaturesOfTheirRouters) {
  const std::pair<std::vector<std::string>, bool (*)(const RouterSpec&)> features[] = {
      {{"phi-3.5-moe"}, [](const RouterSpec& s) { return s.selection.method == SelectionMethod::kSparsemixer; }},
      {{"intern-s1-pro"}, [](const RouterSpec& s) { return s.selection.topk_scope == TopkScope::kPerGroup; }},
      {{"deepseek-v2", "mistral-4"}, [](const RouterSpec& s) { return s.selection.group_mask == GroupMask::kZero; }},
      {{"deepseek-v2"}, [](const RouterSpec& s) { return s.selection.group_score == GroupScore::kMax; }},
      {{"deepseek-v4-flash-vision-exp", "deepseek-v4.1-flash"},
       [](const RouterSpec& s) { return s.selection.bias_variants.size() == 2; }},
      {{"deepseek-v4-flash-vision-exp", "deepseek-v4-flash", "deepseek-v4-pro"},
       [](const RouterSpec& s) {
         return s.hash.layers == std::vector<std::int64_t>{0, 1, 2};
       }},
      {{"grok-2"}, [](const RouterSpec& s) { return s.logits.softcap == 30.0; }},
      {{"gpt-oss-120b", "gpt-oss-20b", "privacy-filter"},
       [](const RouterSpec& s) { return s.gate.linear_bias == BiasType::kBf16; }},
      {{"gemma-4-26b-a4b"},
       [](const RouterSpec& s) {
         return s.gate.input_scale_vector && prepares_input(s) && s.weights.per_expert_scale;
       }},
      {{"inkling-small", "inkling"},
       [](const RouterSpec& s) { return shared_in_gate(s) == 2 && s.weights.global_scale && topk_columns(s) == 8; }},
      {{"inkling-small", "inkling"},
       [](const RouterSpec& s) { return s.weights.renormalize == Renormalize::kLogSpaceL1; }},
      {{"longcat-flash"}, [](const RouterSpec& s) { return ranked_experts(s) == 768 && num_experts(s) == 512; }},
      {{"kimi-linear-48b-a3b"}, [](const RouterSpec& s) { return s.weights.source == WeightSource::kBiasedScore; }},
      {{"laguna-xs.2", "minimax-m3"},
       [](const RouterSpec& s) { return s.weights.scale_stage == ScaleStage::kOnExpertOutput; }},
      {{"llama-4-maverick", "llama-4-scout"},
       [](const RouterSpec& s) { return s.weights.apply_to == ApplyTo::kExpertInput; }},
  };
  for (const auto& [names, has_it] : features) {
    std::vector<std::string> found;
    for (const auto& path : fixtures()) {
      const RouterSpec base = read_spec_file(path).base;
      if (has_it(base)) found.push_back(base.name);
    }
    EXPECT_EQ(found, names);
  }
}

TEST(SpecFixtures, LayersWithATableAreOverridden) {
  for (const auto& path : fixtures()) {
    const SpecFile file = read_spec_file(path);
    for (std::int64_t layer = 0; layer < file.base.shape.num_layers.value_or(0); ++layer) {
      const bool listed =
          std::find(file.base.hash.layers.begin(), file.base.hash.layers.end(), layer) != file.base.hash.layers.end();
      const RouterSpec spec = resolve(file, {.layer = std::to_string(layer)});
      EXPECT_EQ(spec.selection.method == SelectionMethod::kHashTable, listed) << path << " " << layer;
    }
  }
}

TEST(SpecFixtures, GiveOnlyWhatDiffersFromTheDefault) {
  const std::vector<FieldInfo>& fields = schema();
  for (const auto& path : fixtures()) {
    const RouterSpec base = read_spec_file(path).base;
    const std::string text = read_text(path);
    const std::string end = text.substr(0, text.find("\nlayer_overrides:"));
    const std::string given = end.substr(0, end.find("\nvariants:"));
    // Every default line that the full form has and the short form has not must be absent from the file.
    std::string section;
    std::istringstream lines(given);
    for (std::string line; std::getline(lines, line);) {
      if (line.empty() || line[0] == '-') continue;
      if (line[0] != ' ') section = line.substr(0, line.find(':'));
      for (const FieldInfo& field : fields) {
        const std::size_t point = field.path.find('.');
        if (point == std::string::npos || field.path.substr(0, point) != section) continue;
        EXPECT_NE(line, "  " + field.path.substr(point + 1) + ": " + field.default_text) << path;
      }
    }
  }
}

TEST(SpecFixtures, GlmFlashIsThePublishedRouter) {
  const RouterSpec spec = read_spec_file(fixture("glm-5.3-flash")).base;
  EXPECT_EQ(hidden_size(spec), 4096);
  EXPECT_EQ(num_experts(spec), 288);
  EXPECT_EQ(top_k(spec), 8);
  EXPECT_EQ(spec.score.func, ScoreFunc::kSigmoid);
  EXPECT_EQ(spec.selection.bias, BiasType::kFp32);
  EXPECT_EQ(spec.weights.renormalize, Renormalize::kL1);
  EXPECT_EQ(spec.weights.eps_mode, EpsMode::kAdd);
  EXPECT_EQ(spec.weights.eps, 1e-20);
  EXPECT_EQ(spec.weights.routed_scaling_factor, 2.5);
}

TEST(SpecWriter, WritesOnlyWhatDiffersUnlessAllIsAsked) {
  const RouterSpec spec = parse_spec(kMinimal + "weights: {eps: 1e-20, eps_mode: add}\n", "f.yaml").base;
  EXPECT_EQ(to_yaml(spec), "name: r\nshape:\n  num_experts: 8\n  top_k: 2\nweights:\n  eps: 1e-20\n  eps_mode: add\n");
  const std::string all = to_yaml(spec, true);
  for (const FieldInfo& field : schema()) {
    const std::size_t point = field.path.find('.');
    const std::string key = point == std::string::npos ? "\n" + field.path : "\n  " + field.path.substr(point + 1);
    EXPECT_THAT("\n" + all, testing::HasSubstr(key + ": ")) << field.path;
  }
}

TEST(SpecWriter, TextRoundTripsWhateverItHolds) {
  RouterSpec spec = parse_spec(kMinimal, "f.yaml").base;
  for (const char* text :
       {"",       " ",      "null",      "~",    "true",   "no",    "1",  "-1", ".5", "a: b", "a #b", "- a", "[a]",
        "{a: b}", "'a'",    "\"a\"",     "a\\b", "a\nb\n", "\ttab", "*a", "&a", "!a", "%a",   "@a",   "`a",  "---",
        "...",    "é ∑ 好", "trailing ", "a,b",  "?",      "? a",   ":",  "|",  ">-", "0x10", "1e3"}) {
    spec.notes = text;
    spec.family = text;
    spec.sources = {text, text};
    spec.unverified_fields = {{text, text}, {"b", text}};
    const RouterSpec read = parse_spec(to_yaml(spec), "written").base;
    EXPECT_EQ(read.notes, spec.notes);
    EXPECT_EQ(read.sources, spec.sources);
    EXPECT_EQ(read.unverified_fields, spec.unverified_fields);
    EXPECT_TRUE(read == spec);
  }
}

TEST(SpecWriter, NumbersRoundTripToTheBit) {
  RouterSpec spec = parse_spec(kMinimal, "f.yaml").base;
  for (const double value : {1.0, 0.1, 1.0 / 3.0, 2.827, 1e-20, 6.103515625e-05, 1.1920928955078125e-07, 16.0, 1e38,
                             1.401298464324817e-45, 123456789.125}) {
    spec.weights.routed_scaling_factor = value;
    EXPECT_EQ(parse_spec(to_yaml(spec), "written").base.weights.routed_scaling_factor, value);
  }
}

TEST(SpecEquality, SeesEveryField) {
  // One value that is allowed and not the default, for each field.
  const std::vector<std::pair<std::string, std::string>> other = {{"shape.hidden_size", "64"},
                                                                  {"shape.num_experts", "16"},
                                                                  {"shape.top_k", "3"},
                                                                  {"shape.num_layers", "4"},
                                                                  {"shape.num_moe_layers", "4"},
                                                                  {"gate.gemm_dtype", "bf16"},
                                                                  {"gate.logits_dtype", "bf16"},
                                                                  {"gate.linear_bias", "bf16"},
                                                                  {"gate.input_norm_eps", "1e-6"},
                                                                  {"gate.input_scale_vector", "true"},
                                                                  {"gate.input_scale", "2.0"},
                                                                  {"gate.input_scale", "rsqrt_hidden_size"},
                                                                  {"gate.input_scale", "rsqrt_hidden_size_bf16"},
                                                                  {"logits.temperature", "2.0"},
                                                                  {"logits.softcap", "30.0"},
                                                                  {"score.func", "sigmoid"},
                                                                  {"score.dtype", "bf16"},
                                                                  {"selection.rank_by", "logit"},
                                                                  {"selection.bias", "fp32"},
                                                                  {"selection.bias_variants", "[image]"},
                                                                  {"selection.sort", "by_index"},
                                                                  {"weights.renormalize", "l1"},
                                                                  {"weights.routed_scaling_factor", "2.5"},
                                                                  {"weights.scale_stage", "before_divide"},
                                                                  {"weights.per_expert_scale", "true"},
                                                                  {"weights.global_scale", "true"},
                                                                  {"weights.dtype", "bf16"},
                                                                  {"weights.apply_to", "expert_input"},
                                                                  {"special.shared_experts", "1"},
                                                                  {"hash.layers", "[0]"},
                                                                  {"hash.vocab_size", "10"},
                                                                  {"hash.table_dtype", "int32"},
                                                                  {"sparsemixer.jitter_eps", "0.01"},
                                                                  {"capacity", "batch_dependent"},
                                                                  {"outputs.ids_dtype", "int32"},
                                                                  {"outputs.pad_id", "-2"},
                                                                  {"outputs.reference_sort", "unsorted"}};
  const SpecFile file = parse_spec(kMinimal, "f.yaml");
  for (const auto& [path, text] : other) {
    const RouterSpec changed = resolve(file, {.set = {{path, text}}});
    EXPECT_FALSE(changed == file.base) << path;
    expect_round_trip(changed);
  }
}

// The rows of the tables of docs/spec.md: | `field` | `allowed` | `default` | meaning |.
std::vector<FieldInfo> documented_fields(const std::string& text) {
  std::vector<FieldInfo> fields;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `")) continue;
    std::vector<std::string> cells(1);
    for (std::size_t i = 1; i < line.size(); ++i) {
      if (line[i] == '\\' && i + 1 < line.size() && line[i + 1] == '|') {
        cells.back() += line[++i];
      } else if (line[i] == '|') {
        cells.emplace_back();
      } else {
        cells.back() += line[i];
      }
    }
    const auto code = [&cells](std::size_t i) {
      return cells[i].size() < 4 ? "" : cells[i].substr(2, cells[i].size() - 4);
    };
    EXPECT_EQ(cells.size(), 5u) << line;
    EXPECT_GT(cells[3].size(), 4u) << line;
    fields.push_back({code(0), code(1), code(2)});
  }
  return fields;
}

TEST(SpecSchema, IsTheDocumentedOne) {
  const auto path = std::filesystem::path(SAMEBITS_FIXTURES_DIR) / ".." / "docs" / "spec.md";
  const std::vector<FieldInfo> documented = documented_fields(read_text(path));
  const std::vector<FieldInfo>& actual = schema();
  ASSERT_EQ(documented.size(), actual.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(documented[i].path, actual[i].path);
    EXPECT_EQ(documented[i].allowed, actual[i].allowed) << actual[i].path;
    EXPECT_EQ(documented[i].default_text, actual[i].default_text) << actual[i].path;
  }
}

}  // namespace
}  // namespace samebits::oracle
