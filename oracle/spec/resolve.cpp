// resolve(): one RouterSpec from a spec file, a variant, a layer and the command line.
#include <algorithm>

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

void check_layer(const SpecFile& file, std::int64_t layer) {
  const auto& num_layers = file.base.shape.num_layers;
  if (layer >= 0 && (!num_layers || layer < *num_layers)) return;
  const std::string allowed = num_layers ? "0 .. " + std::to_string(*num_layers - 1) : "0 or more";
  throw SpecError(yaml::message({file.file, 0, 0}, "layer",
                                "found " + std::to_string(layer) + "; allowed: " + allowed +
                                    "; choose a layer of the model (layers count from 0)"));
}

}  // namespace

RouterSpec resolve(const SpecFile& file, const Resolution& resolution) {
  const yaml::Position in_file{file.file, 0, 0};
  std::vector<yaml::Overlay> overlays;
  if (resolution.layer) {
    check_layer(file, *resolution.layer);
    for (const LayerOverride& override : file.layer_overrides) {
      const bool applies =
          std::find(override.layers.begin(), override.layers.end(), *resolution.layer) != override.layers.end();
      if (applies) overlays.push_back({"layer " + std::to_string(*resolution.layer), in_file, &override.set});
    }
  }
  if (resolution.variant) {
    overlays.push_back({"variant " + *resolution.variant, in_file, &find_variant(file, *resolution.variant)});
  }
  if (!resolution.set.empty()) overlays.push_back({"", in_file, &resolution.set});
  return yaml::apply_overlays(file.base, {}, file.file, overlays);
}

}  // namespace samebits::oracle
