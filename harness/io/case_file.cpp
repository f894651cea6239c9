#include "harness/io/case_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "harness/io/case_spec.h"
#include "harness/io/description_yaml.h"
#include "harness/io/dtype.h"
#include "harness/io/files.h"
#include "harness/io/tensor_text.h"
#include "harness/io/yaml_mapping.h"
#include "oracle/spec/spec_yaml.h"
#include "oracle/spec/validate.h"

namespace samebits::harness {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kMaxYamlBytes = 16'000'000;

std::string expected_yaml(const KnownAnswer& expected) {
  std::string text = "expected:\n";
  text += fmt::format("  source: {}\n  fault: {}\n", yaml_string(expected.source), yaml_string(expected.fault));
  if (expected.weight_tolerance != 0.0) text += fmt::format("  weight_tolerance: {}\n", expected.weight_tolerance);
  if (!expected.tolerance_reason.empty()) {
    text += fmt::format("  tolerance_reason: {}\n", yaml_string(expected.tolerance_reason));
  }
  text += expected.rows.empty() ? "  rows: []\n" : "  rows:\n";
  for (const ExpectedRow& row : expected.rows) {
    text += fmt::format("    - row: {}\n      topk_ids: [{}]\n", row.row, fmt::join(row.topk_ids, ", "));
    if (!row.topk_weights.empty()) text += fmt::format("      topk_weights: [{}]\n", fmt::join(row.topk_weights, ", "));
  }
  return text;
}

// No router gives an expert twice, but for id 0, which stands for all zero experts where they are remapped to it.
void require_distinct(const oracle::RouterSpec& spec, const std::vector<std::int64_t>& ids, const YamlValue& value) {
  const bool remapped = spec.special.zero_type == oracle::ZeroType::kIdentityRemappedToId0Weight0;
  std::set<std::int64_t> seen;
  for (const std::int64_t id : ids) {
    if (id < 0 || (id == 0 && remapped)) continue;
    if (!seen.insert(id).second) value.fail(fmt::format("found id {} twice; allowed: distinct ids, and -1", id));
  }
}

KnownAnswer expected_from_yaml(const YamlMapping& mapping, const properties::Case& c) {
  KnownAnswer expected;
  const std::int64_t columns = oracle::topk_columns(c.spec);
  expected.source = mapping.at("source").text();
  if (mapping.has("fault")) expected.fault = mapping.at("fault").text();
  if (mapping.has("weight_tolerance")) expected.weight_tolerance = mapping.at("weight_tolerance").real();
  if (expected.weight_tolerance < 0.0) mapping.at("weight_tolerance").wrong("0 or more");
  if (mapping.has("tolerance_reason")) expected.tolerance_reason = mapping.at("tolerance_reason").text();
  if (expected.weight_tolerance > 0.0 && expected.tolerance_reason.empty()) {
    mapping.at("weight_tolerance").fail("needs tolerance_reason: where the tolerance comes from");
  }
  for (const YamlValue& item : mapping.at("rows").items()) {
    const YamlMapping entry(item, {"row", "topk_ids", "topk_weights"});
    ExpectedRow row;
    row.row = entry.at("row").integer(0, c.description.num_tokens - 1);
    row.topk_ids = entry.at("topk_ids").integers(-1, oracle::gate_rows(c.spec) - 1);
    if (static_cast<std::int64_t>(row.topk_ids.size()) != columns)
      entry.at("topk_ids").wrong(fmt::format("{} ids", columns));
    require_distinct(c.spec, row.topk_ids, entry.at("topk_ids"));
    if (entry.has("topk_weights")) {
      for (const YamlValue& weight : entry.at("topk_weights").items()) row.topk_weights.push_back(weight.real());
      if (static_cast<std::int64_t>(row.topk_weights.size()) != columns) {
        entry.at("topk_weights").wrong(fmt::format("{} weights", columns));
      }
    }
    expected.rows.push_back(std::move(row));
  }
  return expected;
}

SafeTensor tensor_from_file(const YamlMapping& mapping, const std::string& name, const fs::path& folder,
                            std::map<std::string, SafeTensors>& files) {
  const YamlValue file = mapping.at("file");
  const std::string file_name = file.text();
  if (file_name.find('/') != std::string::npos || file_name == "." || file_name == ".." || file_name.empty()) {
    file.wrong("the name of a safetensors file in the same folder");
  }
  if (mapping.has("values") || mapping.has("nonzero")) file.fail("allowed is one of values, nonzero, file");
  auto found = files.find(file_name);
  if (found == files.end()) found = files.emplace(file_name, read_safetensors(folder / file_name)).first;
  const auto tensor = found->second.tensors.find(name);
  if (tensor == found->second.tensors.end()) file.fail(fmt::format("{} has no tensor {}", file_name, name));
  const DtypeInfo* dtype = find_dtype_word(mapping.at("dtype").text());
  if (dtype == nullptr || dtype->name != tensor->second.dtype) {
    mapping.at("dtype").wrong(fmt::format("{}; {} has {}", kDtypeWords, file_name, tensor->second.dtype));
  }
  if (mapping.at("shape").integers(0, INT64_MAX) != tensor->second.shape) {
    mapping.at("shape").fail(fmt::format("{} has [{}]", file_name, fmt::join(tensor->second.shape, ", ")));
  }
  return tensor->second;
}

using Tensors = std::map<std::string, SafeTensor>;

// `files` receives what was read, by the name of the file.
Tensors tensors_from_yaml(const YamlValue& value, const fs::path& folder, std::map<std::string, SafeTensors>& files) {
  const YamlMapping mapping(value, tensor_names());
  Tensors tensors;
  for (const auto& entry : value.node) {
    const std::string name = entry.first.Scalar();
    const YamlMapping tensor(mapping.at(name), {"dtype", "shape", "values", "nonzero", "file"});
    tensors.emplace(name,
                    tensor.has("file") ? tensor_from_file(tensor, name, folder, files) : tensor_from_yaml(tensor));
  }
  return tensors;
}

// The block size in which the padded form of the bookkeeping is asked for.
std::int32_t block_size(const properties::Case& c) {
  properties::Claims claims;
  claims.returns_bookkeeping = true;
  return properties::plan_runs(c, claims).front().block_size;
}

// The sizes of a case with data, for a program that reads its safetensors file alone.
std::map<std::string, std::string> size_metadata(const properties::Case& c) {
  const properties::CaseDescription& d = c.description;
  return {{"num_tokens", std::to_string(d.num_tokens)},
          {"num_experts", std::to_string(d.num_experts)},
          {"top_k", std::to_string(d.top_k)},
          {"zero_experts", std::to_string(d.zero_experts)},
          {"shared_in_gate", std::to_string(d.shared_in_gate)},
          {"vocab_size", std::to_string(d.vocab_size)},
          {"num_valid_rows", std::to_string(d.data->valid_rows())},
          {"block_size", std::to_string(block_size(c))}};
}

// Such a program would route another case than the one that is judged.
void check_size_metadata(const YamlValue& value, const std::map<std::string, SafeTensors>& files,
                         const properties::Case& c) {
  for (const auto& [file_name, content] : files) {
    for (const auto& [name, size] : size_metadata(c)) {
      const auto found = content.metadata.find(name);
      if (found == content.metadata.end() || found->second == size) continue;
      value.fail(fmt::format("{}: metadata {}: found \"{}\"; allowed: \"{}\", as in this file and its tensors",
                             file_name, name, found->second, size));
    }
  }
}

// Ids of a hash table that no router would be created with.
void check_table(const YamlValue& value, const properties::Case& c) {
  const std::vector<std::int32_t>& table = c.description.data->hash_table;
  const auto k = static_cast<std::size_t>(oracle::top_k(c.spec));
  const std::int64_t ranked = oracle::ranked_experts(c.spec);
  for (std::size_t place = 0; place < table.size(); ++place) {
    const auto row = table.begin() + static_cast<std::ptrdiff_t>(place / k * k);
    const auto here = table.begin() + static_cast<std::ptrdiff_t>(place);
    if (*here < 0 || *here >= ranked) {
      value.fail(fmt::format("hash_table: found id {} in row {}; allowed: 0 to {}", *here, place / k, ranked - 1));
    }
    if (std::find(row, here, *here) != here) {
      value.fail(fmt::format("hash_table: found id {} twice in row {}; allowed: distinct ids", *here, place / k));
    }
  }
}

// The tensors that the spec asks for, no others, and the shapes that from_tensors cannot know.
void check_tensors(const YamlValue& value, const Tensors& tensors, const properties::Case& c) {
  const oracle::RouterSpec& spec = c.spec;
  const bool full = !c.description.data->from_logits();
  const auto check = [&](const char* name, bool wanted, const std::string& why) {
    if (wanted != tensors.contains(name)) {
      value.fail(fmt::format("{} is {}; {}", name, wanted ? "missing" : "given", why));
    }
  };
  const auto check_shape = [&](const char* name, const std::vector<std::int64_t>& wanted) {
    const auto found = tensors.find(name);
    if (found == tensors.end() || found->second.shape == wanted) return;
    value.fail(fmt::format("{}: found shape [{}]; allowed: [{}]", name, fmt::join(found->second.shape, ", "),
                           fmt::join(wanted, ", ")));
  };
  const auto check_of_spec = [&](const char* name, const char* field, bool wanted) {
    check(name, wanted, fmt::format("the spec {} ({})", wanted ? "has it" : "has none", field));
  };
  // Finished logits have the linear bias and the input's scale in them already.
  const bool linear = spec.gate.linear_bias != oracle::BiasType::kNone;
  if (full || !linear) check_of_spec("linear_bias", "gate.linear_bias", linear);
  if (full) {
    check_of_spec("input_scale_vector", "gate.input_scale_vector", spec.gate.input_scale_vector);
  } else {
    check("input_scale_vector", false, "a case from logits has no hidden states to scale; leave it out");
  }
  const bool biased = spec.selection.bias != oracle::BiasType::kNone;
  check_of_spec("selection_bias", "selection.bias", biased);
  check_shape("selection_bias", selection_bias_shape(spec));
  if (!biased) check("row_class", false, "the spec has no selection.bias, so classes have no meaning; leave it out");
  check_of_spec("per_expert_scale", "weights.per_expert_scale", spec.weights.per_expert_scale);
  check_of_spec("global_scale", "weights.global_scale", spec.weights.global_scale);
  const bool hashed = spec.selection.method == oracle::SelectionMethod::kHashTable;
  check_of_spec("hash_table", "selection.method: hash_table", hashed);
  check_of_spec("token_ids", "selection.method: hash_table", hashed);
  if (!hashed) return;
  check_shape("hash_table", {c.description.vocab_size, oracle::top_k(spec)});
  check_table(value, c);
}

// An inline spec belongs to this one case, so sizes of the tensors that contradict it are a slip in one of the two;
// a description that states the size says which is meant.
void check_inline_sizes(const YamlMapping& root, const YamlMapping& description, const oracle::RouterSpec& spec,
                        const properties::CaseDescription& d) {
  if (!d.data || !root.at("spec").node.IsMap()) return;
  const auto check = [&](const char* field, const std::optional<std::int64_t>& stated, std::int64_t found) {
    if (!stated || *stated == found || description.has(field)) return;
    root.at("tensors").fail(fmt::format(
        "{} {}, but the inline spec has shape.{} {}; correct one of them, or state {}: {} in the description", field,
        found, field, *stated, field, found));
  };
  check("num_experts", spec.shape.num_experts, d.num_experts);
  if (d.stage == properties::Stage::kFull) check("hidden_size", spec.shape.hidden_size, d.hidden_size);
}

CaseFile parse_case(const std::string& text, const fs::path& path) {
  const std::string name = path.string();
  const YamlValue document = parse_yaml(text, name);
  const YamlMapping root(document,
                         {"samebits_case", "spec", "variant", "origin", "law", "description", "tensors", "expected"});
  root.at("samebits_case").integer(1, 1);
  CaseFile file;
  CaseSpec spec = case_spec_from_yaml(root, text, path);
  file.c.spec_name = std::move(spec.name);
  file.c.variant = std::move(spec.variant);
  file.layer = std::move(spec.layer);
  if (root.has("law")) file.law = root.at("law").text();

  std::optional<oracle::RouterInputs> data;
  Tensors tensors;
  std::map<std::string, SafeTensors> files;
  if (root.has("tensors")) {
    tensors = tensors_from_yaml(root.at("tensors"), path.parent_path(), files);
    try {
      data = from_tensors(tensors);
    } catch (const std::invalid_argument& error) {
      root.at("tensors").fail(error.what());
    }
  }
  const YamlMapping description(root.has("description")
                                    ? root.at("description")
                                    : YamlValue{name, "description", YAML::Node(YAML::NodeType::Map)},
                                description_fields());
  file.c.description = description_from_yaml(description, spec.spec, std::move(data));
  check_inline_sizes(root, description, spec.spec, file.c.description);
  file.c.spec = properties::apply_shape(spec.spec, file.c.description);
  file.full_spec = std::move(spec.spec);
  const std::vector<oracle::Problem> problems = oracle::find_problems(file.c.spec);
  if (!problems.empty()) {
    description.value().fail(fmt::format("with these sizes, {}: {}", problems.front().path, problems.front().message));
  }
  if (file.c.description.data) {
    check_tensors(root.at("tensors"), tensors, file.c);
    check_size_metadata(root.at("tensors"), files, file.c);
  }
  if (root.has("expected")) {
    file.expected = expected_from_yaml(
        YamlMapping(root.at("expected"), {"source", "fault", "rows", "weight_tolerance", "tolerance_reason"}), file.c);
  }
  return file;
}

// The YAML of a case; tensors that are not small, or all of them, go into `large`, in the file `large_name`.
std::string case_yaml(const CaseFile& file, const std::string& large_name, SafeTensors& large, bool all_large = false) {
  const properties::Case& c = file.c;
  const oracle::RouterSpec& full_spec = file.full_spec ? *file.full_spec : c.spec;
  std::string text = "samebits_case: 1\n" + case_spec_yaml(c, full_spec, file.layer);
  if (!file.law.empty()) text += fmt::format("law: {}\n", yaml_string(file.law));
  // Groups are compared with the spec that the file states.
  const bool full = properties::apply_shape(full_spec, c.description) == c.spec;
  text += "description:\n" + description_yaml(c.description, full ? full_spec : c.spec);
  if (c.description.data) {
    text += "tensors:\n";
    for (const auto& [name, tensor] : to_tensors(c.spec, *c.description.data)) {
      text += fmt::format("  {}:\n", name);
      if (!all_large && is_small(tensor)) {
        text += tensor_yaml(tensor, "    ");
        continue;
      }
      text += fmt::format("    dtype: {}\n    shape: [{}]\n    file: {}\n", find_dtype(tensor.dtype)->word,
                          fmt::join(tensor.shape, ", "), yaml_string(large_name));
      large.tensors.emplace(name, tensor);
    }
  }
  if (file.expected) text += expected_yaml(*file.expected);
  return text;
}

}  // namespace

CaseFile read_case_file(const fs::path& path) {
  return read_case_text(read_file(path, kMaxYamlBytes), path);
}

CaseFile read_case_text(const std::string& text, const fs::path& path) {
  return with_yaml_errors(path.string(), [&] { return parse_case(text, path); });
}

void write_case_file(const fs::path& path, const CaseFile& file, bool with_data) {
  CaseFile copy = file;
  properties::CaseDescription& description = copy.c.description;
  if (with_data && !description.data) {
    description.data = properties::materialize(copy.c);
    description.plants.clear();  // they and the selections are in the tensors now
    description.keep_rows.clear();
    description.keep_experts.clear();
    description.keep_columns.clear();
    description.generated_hidden_size = 0;
  }
  const fs::path large_path = fs::path(path).replace_extension(".safetensors");
  SafeTensors large;
  const std::string text = case_yaml(copy, large_path.filename().string(), large, with_data);
  if (with_data) large.metadata = size_metadata(copy.c);  // a program need not read YAML
  // The description last: where it is seen, its data are there.
  if (!large.tensors.empty()) write_safetensors(large_path, large);
  write_file(path, text);
}

std::uint64_t case_hash(const properties::Case& c) {
  SafeTensors large;
  CaseFile file;
  file.c = c;
  std::uint64_t hash = content_hash(case_yaml(file, "data", large));
  for (const auto& [name, tensor] : large.tensors) {
    hash = content_hash({reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()}, hash);
  }
  return hash;
}

std::vector<fs::path> list_case_files(const fs::path& file_or_folder) {
  std::error_code error;
  if (!fs::is_directory(file_or_folder, error)) return {file_or_folder};
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(file_or_folder, error)) {
    const bool hidden = entry.path().filename().string().starts_with(".");
    if (!hidden && entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  if (error) throw FileError(fmt::format("{}: {}", file_or_folder.string(), error.message()));
  if (files.empty()) throw FileError(fmt::format("{}: no case files (*.yaml) in this folder", file_or_folder.string()));
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace samebits::harness
