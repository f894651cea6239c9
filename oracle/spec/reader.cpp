// parse_spec() and read_spec_file(): YAML text to a checked SpecFile.
#include <algorithm>
#include <cctype>
#include <fstream>
#include <set>

#include "oracle/spec/codec.h"
#include "oracle/spec/field.h"
#include "oracle/spec/overlay.h"
#include "oracle/spec/spec_yaml.h"
#include "oracle/spec/text.h"

namespace samebits::oracle {
namespace {

using yaml::NodeKind;
using yaml::Position;
using yaml::YamlNode;

class Reader {
 public:
  Reader(const YamlNode& root, const std::string& file_name) : root_(root) { file_.file = file_name; }

  SpecFile read() {
    const YamlNode* variants = nullptr;
    const YamlNode* overrides = nullptr;
    for (std::size_t i = 0; i < root_.keys.size(); ++i) {
      const YamlNode& key = root_.keys[i];
      const YamlNode& value = root_.values[i];
      if (key.text == "variants") {
        variants = &value;
      } else if (key.text == "layer_overrides") {
        overrides = &value;
      } else {
        read_top_level(key, value);
      }
    }
    yaml::apply_overlays(file_.base, positions_, file_.file, {});
    if (variants != nullptr) read_variants(*variants);
    if (overrides != nullptr) read_overrides(*overrides);
    return std::move(file_);
  }

 private:
  Position at(const YamlNode& node) const { return {file_.file, node.line, node.column}; }

  [[noreturn]] void fail(const YamlNode& node, const std::string& field, const std::string& allowed,
                         const std::string& advice) const {
    throw SpecError(yaml::message(at(node), field,
                                  "found " + yaml::shown(flow_text(node)) + "; allowed: " + allowed + "; " + advice));
  }

  void read_top_level(const YamlNode& key, const YamlNode& value) {
    const std::vector<std::string> sections = yaml::section_names();
    if (std::find(sections.begin(), sections.end(), key.text) == sections.end()) {
      read_field(key, key.text, value);
      return;
    }
    if (value.kind != NodeKind::kMap) {
      fail(value, key.text, "a map of fields", "indent the fields of " + key.text + " below it");
    }
    positions_[key.text] = at(key);
    for (std::size_t i = 0; i < value.keys.size(); ++i) {
      read_field(value.keys[i], key.text + "." + value.keys[i].text, value.values[i]);
    }
  }

  void read_field(const YamlNode& key, const std::string& path, const YamlNode& value) {
    const yaml::Field* field = yaml::find_field(path);
    if (field == nullptr) throw SpecError(yaml::unknown_field(at(key), path, ""));
    if (key.text.find('.') != std::string::npos) {
      throw SpecError(yaml::message(
          at(key), path,
          "found a dotted path; allowed here: nested maps; write it as a field of " + field->section() + ":"));
    }
    if (!field->read(file_.base, value)) fail(value, path, field->allowed, "write one of the allowed values");
    positions_[path] = at(value);
  }

  std::vector<Assignment> read_assignments(const YamlNode& map, const std::string& owner) const {
    if (map.kind != NodeKind::kMap) {
      fail(map, owner, "a map of dotted path: value", "write lines such as selection.bias: bf16");
    }
    std::vector<Assignment> set;
    for (std::size_t i = 0; i < map.keys.size(); ++i) {
      const YamlNode& value = map.values[i];
      set.push_back({map.keys[i].text, flow_text(value), value.line, value.column});
      if (yaml::find_field(map.keys[i].text) == nullptr) {
        throw SpecError(yaml::unknown_field(at(map.keys[i]), map.keys[i].text, owner));
      }
    }
    return set;
  }

  void read_variants(const YamlNode& variants) {
    if (variants.kind != NodeKind::kMap) {
      fail(variants, "variants", "a map of name: {dotted path: value}", "indent the variants below it, or remove it");
    }
    for (std::size_t i = 0; i < variants.keys.size(); ++i) {
      const YamlNode& key = variants.keys[i];
      RouterSpec named;  // a variant's name follows the rule of the spec's name
      const yaml::Field& name_field = *yaml::find_field("name");
      if (!name_field.read(named, key)) fail(key, "variants", name_field.allowed, "choose such a name");
      const std::string label = "variant " + key.text;
      file_.variants.emplace_back(key.text, read_assignments(variants.values[i], label));
      yaml::apply_overlays(file_.base, positions_, file_.file, {{label, at(key), &file_.variants.back().second}});
    }
  }

  void read_overrides(const YamlNode& overrides) {
    if (overrides.kind != NodeKind::kSequence) {
      fail(overrides, "layer_overrides", "a list of {layers: [...], set: {dotted path: value}}",
           "begin each override with '- layers:', or remove it");
    }
    for (const YamlNode& item : overrides.values) read_override(item);
  }

  void read_override(const YamlNode& item) {
    const std::string form = "a map with layers and set";
    if (item.kind != NodeKind::kMap) fail(item, "layer_overrides", form, "write layers: [...] and set: {...}");
    LayerOverride override;
    const YamlNode* set = nullptr;
    for (std::size_t i = 0; i < item.keys.size(); ++i) {
      if (item.keys[i].text == "layers") {
        read_layers(item.values[i], override);
      } else if (item.keys[i].text == "set") {
        set = &item.values[i];
      } else {
        fail(item.keys[i], "layer_overrides", "layers, set", "remove it");
      }
    }
    if ((override.layers.empty() && override.name.empty()) || set == nullptr) {
      fail(item, "layer_overrides", form, "give both");
    }
    std::vector<std::string> layers;
    if (!override.name.empty()) layers.push_back(override.name);
    for (const std::int64_t layer : override.layers) layers.push_back(std::to_string(layer));
    const std::string label = "layer override for " + yaml::join(layers, ", ");
    override.set = read_assignments(*set, label);
    file_.layer_overrides.push_back(std::move(override));
    yaml::apply_overlays(file_.base, positions_, file_.file, {{label, at(item), &file_.layer_overrides.back().set}});
  }

  void read_layers(const YamlNode& layers, LayerOverride& override) const {
    const std::string field = "layer_overrides.layers";
    if (layers.kind == NodeKind::kScalar) {
      // A name that began otherwise could be taken for a number.
      const bool is_name = yaml::Name().valid(layers.text) && std::isalpha(static_cast<unsigned char>(layers.text[0]));
      if (!is_name) {
        fail(layers, field, "list of layer numbers, or a name that begins with a letter",
             "write layers: [0, 1, 2] or layers: draft");
      }
      override.name = layers.text;
      return;
    }
    RouterSpec holder;  // the same kind of list as hash.layers
    if (!yaml::find_field("hash.layers")->read(holder, layers) || holder.hash.layers.empty()) {
      fail(layers, field, "list of layer numbers, at least one, or a name", "write layers: [0, 1, 2] or layers: draft");
    }
    const auto& num_layers = file_.base.shape.num_layers;
    std::set<std::int64_t> seen;
    for (std::size_t i = 0; i < holder.hash.layers.size(); ++i) {
      const std::int64_t layer = holder.hash.layers[i];
      if (num_layers && layer >= *num_layers) {
        fail(layers.values[i], field, "0 .. " + std::to_string(*num_layers - 1),
             "name a layer of the model, or correct shape.num_layers");
      }
      if (!seen.insert(layer).second) fail(layers.values[i], field, "each layer once", "remove it");
    }
    override.layers = std::move(holder.hash.layers);
  }

  const YamlNode& root_;
  SpecFile file_;
  yaml::PositionMap positions_;
};

SpecError file_error(const std::string& file, const std::string& text) {
  return SpecError(yaml::message({file, 0, 0}, "file", text));
}

}  // namespace

SpecFile parse_spec(const std::string& yaml_text, const std::string& file_name) {
  const YamlNode root = yaml::parse_document(yaml_text, file_name);
  if (root.kind == NodeKind::kNull) {
    throw file_error(file_name, "found nothing in it; allowed: a map of fields; give at least name and shape");
  }
  if (root.kind != NodeKind::kMap) {
    throw SpecError(yaml::message(
        {file_name, root.line, root.column}, "file",
        "found " + yaml::shown(flow_text(root)) + "; allowed: a map of fields; begin with name: and shape:"));
  }
  return Reader(root, file_name).read();
}

SpecFile read_spec_file(const std::filesystem::path& path) {
  const std::string file = path.string();
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    throw file_error(file, "found no such file; allowed: a spec file in YAML; check the path");
  }
  if (error) throw file_error(file, "found " + error.message() + "; allowed: a readable file; check its permissions");
  if (std::filesystem::is_directory(status)) {
    throw file_error(file, "found a directory; allowed: a spec file in YAML; name one file");
  }
  std::ifstream stream(path, std::ios::binary);
  if (!stream)
    throw file_error(file, "found a file that cannot be opened; allowed: a readable file; check its permissions");
  // One byte past the limit is enough to know, also for a pipe or a device that never ends.
  std::string text(yaml::kLargestFile + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad())
    throw file_error(file, "found a file that cannot be read; allowed: a readable file; check the disk");
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return parse_spec(text, file);
}

}  // namespace samebits::oracle
