#include "harness/io/description_yaml.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <utility>

#include "harness/io/float_text.h"

namespace samebits::harness {
namespace {

using properties::BiasFamily;
using properties::CaseDescription;
using properties::HiddenFamily;
using properties::LogitsFamily;
using properties::Plant;
using properties::RowClassFamily;
using properties::ScaleFamily;
using properties::Stage;
using properties::TensorId;
using properties::TokenFamily;
using properties::WeightFamily;

// Limits of what one case may ask for: they bound memory, and are far above any router.
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;
constexpr std::int64_t kMaxHiddenSize = std::int64_t{1} << 20;
constexpr std::int64_t kMaxExperts = std::int64_t{1} << 16;
constexpr std::int64_t kMaxTopK = 1024;
constexpr std::int64_t kMaxVocabSize = std::int64_t{1} << 24;

template <class Enum>
struct Word {
  Enum value;
  const char* text;
};

constexpr Word<Stage> kStages[] = {{Stage::kFull, "full"}, {Stage::kFromLogits, "from_logits"}};
constexpr Word<HiddenFamily> kHiddenFamilies[] = {
    {HiddenFamily::kNormal, "normal"},
    {HiddenFamily::kSmallInteger, "small_integer"},
    {HiddenFamily::kOrderSensitive, "order_sensitive"},
    {HiddenFamily::kWideExponent, "wide_exponent"},
    {HiddenFamily::kSubnormal, "subnormal"},
    {HiddenFamily::kUnitRows, "unit_rows"},
    {HiddenFamily::kFewTerms, "few_terms"},
    {HiddenFamily::kZero, "zero"},
};
constexpr Word<WeightFamily> kWeightFamilies[] = {
    {WeightFamily::kNormal, "normal"},
    {WeightFamily::kSmallInteger, "small_integer"},
    {WeightFamily::kOrderSensitive, "order_sensitive"},
    {WeightFamily::kWideExponent, "wide_exponent"},
    {WeightFamily::kDuplicateRows, "duplicate_rows"},
    {WeightFamily::kLogits, "logits"},
    {WeightFamily::kZero, "zero"},
};
constexpr Word<BiasFamily> kBiasFamilies[] = {
    {BiasFamily::kZero, "zero"},
    {BiasFamily::kNormal, "normal"},
    {BiasFamily::kUniform, "uniform"},
    {BiasFamily::kStepped, "stepped"},
    {BiasFamily::kFewDistinct, "few_distinct"},
};
constexpr Word<LogitsFamily> kLogitsFamilies[] = {
    {LogitsFamily::kNormal, "normal"},
    {LogitsFamily::kAllEqual, "all_equal"},
    {LogitsFamily::kFewDistinct, "few_distinct"},
    {LogitsFamily::kUlpSteps, "ulp_steps"},
    {LogitsFamily::kSparse, "sparse"},
    {LogitsFamily::kSaturated, "saturated"},
    {LogitsFamily::kSignedZero, "signed_zero"},
    {LogitsFamily::kScoreZones, "score_zones"},
};
constexpr Word<ScaleFamily> kScaleFamilies[] = {
    {ScaleFamily::kUnit, "unit"},
    {ScaleFamily::kNormal, "normal"},
    {ScaleFamily::kWideExponent, "wide_exponent"},
};
constexpr Word<TokenFamily> kTokenFamilies[] = {{TokenFamily::kUniform, "uniform"}, {TokenFamily::kEdges, "edges"}};
constexpr Word<RowClassFamily> kRowClassFamilies[] = {
    {RowClassFamily::kAbsent, "absent"},
    {RowClassFamily::kMixed, "mixed"},
    {RowClassFamily::kEdges, "edges"},
};
constexpr Word<oracle::FloatType> kFloatTypes[] = {{oracle::FloatType::kFp32, "fp32"},
                                                   {oracle::FloatType::kBf16, "bf16"}};
constexpr Word<TensorId> kTensorIds[] = {
    {TensorId::kHiddenStates, "hidden_states"},
    {TensorId::kGateWeight, "gate_weight"},
    {TensorId::kLinearBias, "linear_bias"},
    {TensorId::kSelectionBias, "selection_bias"},
    {TensorId::kRouterLogits, "router_logits"},
    {TensorId::kInputScaleVector, "input_scale_vector"},
    {TensorId::kPerExpertScale, "per_expert_scale"},
    {TensorId::kGlobalScale, "global_scale"},
    {TensorId::kTokenIds, "token_ids"},
    {TensorId::kRowClass, "row_class"},
};

template <class Enum, std::size_t size>
const char* word(const Word<Enum> (&words)[size], Enum value) {
  for (const Word<Enum>& entry : words) {
    if (entry.value == value) return entry.text;
  }
  throw std::invalid_argument(fmt::format("a description with the unknown value {}", static_cast<int>(value)));
}

template <class Enum, std::size_t size>
Enum parse_word(const Word<Enum> (&words)[size], const YamlValue& value) {
  std::vector<std::string> names;
  for (const Word<Enum>& entry : words) {
    if (value.node.IsScalar() && value.node.Scalar() == entry.text) return entry.value;
    names.emplace_back(entry.text);
  }
  value.wrong(fmt::format("{}", fmt::join(names, ", ")));
}

float parse_float(const YamlValue& value) {
  const auto number = parse_fp32(value.scalar(std::string(kFp32Allowed)));
  if (!number) value.wrong(std::string(kFp32Allowed));
  return *number;
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

std::string place_text(std::int64_t position) {
  return position < 0 ? "all" : fmt::format("{}", position);
}

std::int64_t parse_place(const YamlValue& value) {
  if (value.node.IsScalar() && value.node.Scalar() == "all") return -1;
  return value.integer(0, kMaxElements);
}

Plant parse_plant(const YamlValue& value) {
  const YamlMapping mapping(value, {"tensor", "row", "column", "bits"});
  Plant plant{};
  plant.tensor = parse_word(kTensorIds, mapping.at("tensor"));
  plant.row = parse_place(mapping.at("row"));
  plant.column = parse_place(mapping.at("column"));
  const YamlValue bits = mapping.at("bits");
  const auto number = parse_hex(bits.scalar("0x and 8 digits"), 8);
  if (!number) bits.wrong("0x and 8 digits");
  plant.bits = static_cast<std::uint32_t>(*number);
  return plant;
}

// Rows of the hash table that the spec selects by; 0: it selects by another method.
std::int64_t table_rows(const oracle::RouterSpec& spec) {
  return spec.selection.method == oracle::SelectionMethod::kHashTable ? spec.hash.vocab_size.value_or(0) : 0;
}

void check_kept(const YamlMapping& mapping, const char* field, const std::vector<std::int64_t>& kept,
                std::int64_t size) {
  if (kept.empty() || static_cast<std::int64_t>(kept.size()) == size) return;
  mapping.at(field).fail(fmt::format("found {} positions; the size after selection is {}", kept.size(), size));
}

}  // namespace

const char* to_text(Stage stage) {
  return word(kStages, stage);
}
const char* to_text(TensorId tensor) {
  return word(kTensorIds, tensor);
}

std::vector<std::string> description_families(const CaseDescription& d, const oracle::RouterSpec& spec) {
  if (d.data) return {};
  std::vector<std::string> families;
  const auto put = [&](const char* tensor, const char* family) {
    families.push_back(fmt::format("{} {}", tensor, family));
  };
  put("stage", to_text(d.stage));
  if (d.stage == Stage::kFull) {
    put("hidden", word(kHiddenFamilies, d.hidden));
    put("weight", word(kWeightFamilies, d.weight));
  }
  if (d.stage == Stage::kFromLogits || d.weight == WeightFamily::kLogits) {
    put("logits", word(kLogitsFamilies, d.logits));
  }
  if (spec.gate.linear_bias != oracle::BiasType::kNone) put("linear_bias", word(kBiasFamilies, d.linear_bias));
  if (spec.selection.bias != oracle::BiasType::kNone) put("selection_bias", word(kBiasFamilies, d.selection_bias));
  if (table_rows(spec) > 0) put("token_ids", word(kTokenFamilies, d.tokens));
  if (!d.plants.empty()) put("values", "planted");
  return families;
}

const std::vector<std::string>& description_fields() {
  static const std::vector<std::string> fields = {"seed",          "index",
                                                  "hazard",        "stage",
                                                  "num_tokens",    "hidden_size",
                                                  "num_experts",   "top_k",
                                                  "n_group",       "topk_group",
                                                  "zero_experts",  "shared_in_gate",
                                                  "vocab_size",    "num_valid_rows",
                                                  "data_key",      "hidden",
                                                  "weight",        "gate_weight_dtype",
                                                  "linear_bias",   "selection_bias",
                                                  "bias_offset",   "bias_spread",
                                                  "logits",        "logits_offset",
                                                  "logits_spread", "scales",
                                                  "tokens",        "token_ids_int32",
                                                  "row_classes",   "plants",
                                                  "keep_rows",     "keep_experts",
                                                  "keep_columns",  "generated_hidden_size"};
  return fields;
}

std::string description_yaml(const CaseDescription& description, const oracle::RouterSpec& spec) {
  const CaseDescription standard;
  std::string text;
  const auto put = [&](const char* field, const auto& value) { text += fmt::format("  {}: {}\n", field, value); };
  const auto put_list = [&](const char* field, const std::vector<std::int64_t>& list) {
    if (!list.empty()) text += fmt::format("  {}: [{}]\n", field, fmt::join(list, ", "));
  };
  const auto put_float = [&](const char* field, float value, float normal) {
    if (!same_bits(value, normal)) put(field, fp32_text(value));
  };
  if (description.seed != standard.seed) put("seed", description.seed);
  if (description.index != standard.index) put("index", description.index);
  if (description.hazard != standard.hazard) put("hazard", yaml_string(description.hazard));
  if (description.stage != standard.stage) put("stage", to_text(description.stage));
  put("num_tokens", description.num_tokens);
  if (description.stage == Stage::kFull) put("hidden_size", description.hidden_size);
  put("num_experts", description.num_experts);
  put("top_k", description.top_k);
  if (description.n_group != spec.selection.n_group) put("n_group", description.n_group);
  if (description.topk_group != spec.selection.topk_group) put("topk_group", description.topk_group);
  if (description.zero_experts != spec.special.zero_experts) put("zero_experts", description.zero_experts);
  if (description.shared_in_gate != oracle::shared_in_gate(spec)) put("shared_in_gate", description.shared_in_gate);
  if (description.vocab_size != table_rows(spec)) put("vocab_size", description.vocab_size);
  if (description.num_valid_rows) put("num_valid_rows", *description.num_valid_rows);
  if (description.data_key != standard.data_key) put("data_key", fmt::format("0x{:016x}", description.data_key));
  if (description.hidden != standard.hidden) put("hidden", word(kHiddenFamilies, description.hidden));
  if (description.weight != standard.weight) put("weight", word(kWeightFamilies, description.weight));
  if (description.gate_weight_dtype != standard.gate_weight_dtype) {
    put("gate_weight_dtype", word(kFloatTypes, description.gate_weight_dtype));
  }
  if (description.linear_bias != standard.linear_bias) put("linear_bias", word(kBiasFamilies, description.linear_bias));
  if (description.selection_bias != standard.selection_bias) {
    put("selection_bias", word(kBiasFamilies, description.selection_bias));
  }
  put_float("bias_offset", description.bias_offset, standard.bias_offset);
  put_float("bias_spread", description.bias_spread, standard.bias_spread);
  if (description.logits != standard.logits) put("logits", word(kLogitsFamilies, description.logits));
  put_float("logits_offset", description.logits_offset, standard.logits_offset);
  put_float("logits_spread", description.logits_spread, standard.logits_spread);
  if (description.scales != standard.scales) put("scales", word(kScaleFamilies, description.scales));
  if (description.tokens != standard.tokens) put("tokens", word(kTokenFamilies, description.tokens));
  if (description.token_ids_int32 != standard.token_ids_int32) put("token_ids_int32", description.token_ids_int32);
  if (description.row_classes != standard.row_classes) {
    put("row_classes", word(kRowClassFamilies, description.row_classes));
  }
  if (!description.plants.empty()) text += "  plants:\n";
  for (const Plant& plant : description.plants) {
    text += fmt::format("    - {{tensor: {}, row: {}, column: {}, bits: 0x{:08x}}}\n", to_text(plant.tensor),
                        place_text(plant.row), place_text(plant.column), plant.bits);
  }
  put_list("keep_rows", description.keep_rows);
  put_list("keep_experts", description.keep_experts);
  put_list("keep_columns", description.keep_columns);
  if (description.generated_hidden_size != standard.generated_hidden_size) {
    put("generated_hidden_size", description.generated_hidden_size);
  }
  return text;
}

CaseDescription description_from_yaml(const YamlMapping& mapping, const oracle::RouterSpec& spec,
                                      std::optional<oracle::RouterInputs> data) {
  CaseDescription d;
  const auto read = [&](const char* field, auto parse) {
    if (mapping.has(field)) parse(mapping.at(field));
  };
  const auto read_size = [&](const char* field, std::int64_t& size, std::int64_t least, std::int64_t most) {
    read(field, [&](const YamlValue& value) { size = value.integer(least, most); });
  };
  const auto read_family = [&](const char* field, const auto& words, auto& family) {
    read(field, [&](const YamlValue& value) { family = parse_word(words, value); });
  };
  const auto read_float = [&](const char* field, float& number) {
    read(field, [&](const YamlValue& value) { number = parse_float(value); });
  };
  const auto read_kept = [&](const char* field, std::vector<std::int64_t>& kept) {
    read(field, [&](const YamlValue& value) { kept = value.integers(0, kMaxElements); });
  };
  read("seed", [&](const YamlValue& value) { d.seed = value.unsigned_integer(); });
  read("index", [&](const YamlValue& value) { d.index = value.unsigned_integer(); });
  read("hazard", [&](const YamlValue& value) { d.hazard = value.text(); });
  if (data && data->from_logits()) d.stage = Stage::kFromLogits;
  read_family("stage", kStages, d.stage);
  if (d.stage == Stage::kFull) d.hidden_size = spec.shape.hidden_size.value_or(1);
  d.num_experts = spec.shape.num_experts.value_or(1);
  d.zero_experts = spec.special.zero_experts;
  d.shared_in_gate = oracle::shared_in_gate(spec);
  d.vocab_size = table_rows(spec);
  read_size("zero_experts", d.zero_experts, 0, kMaxExperts);
  read_size("shared_in_gate", d.shared_in_gate, 0, kMaxExperts);
  if (data) {
    if (data->from_logits() != (d.stage == Stage::kFromLogits)) {
      mapping.at("stage").wrong(fmt::format("{}, as the tensors are", data->from_logits() ? "from_logits" : "full"));
    }
    d.num_tokens = data->num_tokens;
    d.hidden_size = data->hidden_size;
    d.num_experts = data->gate_rows - d.zero_experts - d.shared_in_gate;
    if (d.num_experts < 1) {
      mapping.value().fail(
          fmt::format("the tensors have {} gate rows; {} zero experts and {} shared experts in the gate "
                      "leave no routed expert",
                      data->gate_rows, d.zero_experts, d.shared_in_gate));
    }
    d.token_ids_int32 = data->token_ids_int32;
  }
  d.top_k = spec.shape.top_k.value_or(1);
  d.n_group = spec.selection.n_group;
  d.topk_group = spec.selection.topk_group;
  read_size("num_tokens", d.num_tokens, 0, kMaxTokens);
  if (mapping.has("hidden_size") && d.stage == Stage::kFromLogits) {
    mapping.at("hidden_size").fail("a case from logits has no hidden_size; leave it out");
  }
  read_size("hidden_size", d.hidden_size, 1, kMaxHiddenSize);
  read_size("num_experts", d.num_experts, 1, kMaxExperts);
  read_size("top_k", d.top_k, 1, kMaxTopK);
  if (data && !data->hash_table.empty()) {
    d.vocab_size = static_cast<std::int64_t>(data->hash_table.size()) / d.top_k;
  }
  read_size("vocab_size", d.vocab_size, 0, kMaxVocabSize);
  read_size("n_group", d.n_group, 1, kMaxExperts);
  read_size("topk_group", d.topk_group, 1, kMaxExperts);
  read("num_valid_rows", [&](const YamlValue& value) {
    d.num_valid_rows = static_cast<std::int32_t>(value.integer(INT32_MIN, INT32_MAX));
  });
  read("data_key", [&](const YamlValue& value) { d.data_key = value.unsigned_integer(); });
  read_family("hidden", kHiddenFamilies, d.hidden);
  read_family("weight", kWeightFamilies, d.weight);
  read_family("gate_weight_dtype", kFloatTypes, d.gate_weight_dtype);
  read_family("linear_bias", kBiasFamilies, d.linear_bias);
  read_family("selection_bias", kBiasFamilies, d.selection_bias);
  read_float("bias_offset", d.bias_offset);
  read_float("bias_spread", d.bias_spread);
  read_family("logits", kLogitsFamilies, d.logits);
  read_float("logits_offset", d.logits_offset);
  read_float("logits_spread", d.logits_spread);
  read_family("scales", kScaleFamilies, d.scales);
  read_family("tokens", kTokenFamilies, d.tokens);
  read("token_ids_int32", [&](const YamlValue& value) { d.token_ids_int32 = value.boolean(); });
  read_family("row_classes", kRowClassFamilies, d.row_classes);
  read("plants", [&](const YamlValue& value) {
    for (const YamlValue& item : value.items()) d.plants.push_back(parse_plant(item));
  });
  read_kept("keep_rows", d.keep_rows);
  read_kept("keep_experts", d.keep_experts);
  read_kept("keep_columns", d.keep_columns);
  read_size("generated_hidden_size", d.generated_hidden_size, 0, kMaxHiddenSize);

  if (data) {
    const auto check_size = [&](const char* field, std::int64_t given, std::int64_t found) {
      if (given != found) mapping.at(field).wrong(fmt::format("{}, as the tensors have", found));
    };
    check_size("num_tokens", d.num_tokens, data->num_tokens);
    check_size("hidden_size", d.hidden_size, data->hidden_size);
    check_size("num_experts", d.num_experts, data->gate_rows - d.zero_experts - d.shared_in_gate);
    if (d.token_ids_int32 != data->token_ids_int32) {
      mapping.at("token_ids_int32").wrong(fmt::format("{}, as the tensors are", data->token_ids_int32));
    }
    data->num_valid_rows = d.num_valid_rows;
    d.data = std::move(data);
  }
  check_kept(mapping, "keep_rows", d.keep_rows, d.num_tokens);
  const std::int64_t gate_rows = d.num_experts + d.zero_experts + d.shared_in_gate;
  check_kept(mapping, "keep_experts", d.keep_experts, gate_rows);
  check_kept(mapping, "keep_columns", d.keep_columns, d.hidden_size);
  const std::int64_t width = std::max(d.hidden_size, gate_rows);
  if (d.num_tokens * width > kMaxElements || gate_rows * d.hidden_size > kMaxElements ||
      d.vocab_size * d.top_k > kMaxElements) {
    mapping.value().fail(
        fmt::format("num_tokens {}, hidden_size {}, gate rows {}, vocab_size {}: a tensor of more than "
                    "{} elements",
                    d.num_tokens, d.hidden_size, gate_rows, d.vocab_size, kMaxElements));
  }
  return d;
}

}  // namespace samebits::harness
