// resolve(): one RouterSpec from a spec file, a variant, a layer and the command line.
#include <algorithm>

#include "oracle/spec/codec.h"
#include "oracle/spec/overlay.h"
#include "oracle/spec/spec_yaml.h"
#include "oracle/spec/text.h"

namespace samebits::oracle {
namespace {

const std::vector<Assignment>& find_variant(const SpecFile& file, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [known, set] : file.variants) {
    if (known == name) return set;
    names.push_back(known);
  }
  const std::string guess = yaml::nearest(name, names);
  const std::string allowed = names.empty() ? "none, this file has no variants" : yaml::join(names, ", ");
  throw SpecError(yaml::message({file.file, 0, 0}, "variant",
                                "found " + yaml::shown(name) + "; allowed: " + allowed + "; " +
                                    (guess.empty() ? "choose one of these" : "did you mean " + guess + "?")));
}

// Layers of the model by number, and the named groups of the file.
std::vector<const LayerOverride*> find_overrides(const SpecFile& file, const std::string& layer) {
  std::vector<const LayerOverride*> found;
  std::vector<std::string> names;
  yaml::YamlNode text;
  text.kind = yaml::NodeKind::kScalar;
  text.text = layer;
  const auto number = yaml::Integer{}.decode(text);
  for (const LayerOverride& override : file.layer_overrides) {
    const bool has_number =
        number && std::find(override.layers.begin(), override.layers.end(), *number) != override.layers.end();
    if (has_number || (!override.name.empty() && override.name == layer)) found.push_back(&override);
    if (!override.name.empty() && std::find(names.begin(), names.end(), override.name) == names.end()) {
      names.push_back(override.name);
    }
  }
  const auto& num_layers = file.base.shape.num_layers;
  const bool is_a_layer = number && *number >= 0 && (!num_layers || *number < *num_layers);
  if (is_a_layer || !found.empty()) return found;

  const std::string guess = yaml::nearest(layer, names);
  names.insert(names.begin(), num_layers ? "0 .. " + std::to_string(*num_layers - 1) : "0 or more");
  throw SpecError(yaml::message(
      {file.file, 0, 0}, "layer",
      "found " + yaml::shown(layer) + "; allowed: " + yaml::join(names, ", ") + "; " +
          (guess.empty() ? "choose a layer of the model (layers count from 0)" : "did you mean " + guess + "?")));
}

}  // namespace

RouterSpec resolve(const SpecFile& file, const Resolution& resolution) {
  const yaml::Position in_file{file.file, 0, 0};
  std::vector<yaml::Overlay> overlays;
  if (resolution.layer) {
    for (const LayerOverride* override : find_overrides(file, *resolution.layer)) {
      overlays.push_back({"layer " + *resolution.layer, in_file, &override->set});
    }
  }
  if (resolution.variant) {
    overlays.push_back({"variant " + *resolution.variant, in_file, &find_variant(file, *resolution.variant)});
  }
  if (!resolution.set.empty()) overlays.push_back({"", in_file, &resolution.set});
  return yaml::apply_overlays(file.base, {}, file.file, overlays);
}

}  // namespace samebits::oracle
