#include "harness/cli/fuzz_targets.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/io/known_cases.h"
#include "harness/io/spec_library.h"

namespace samebits::harness {
namespace {

FuzzTarget target_of(const std::string& name, const std::optional<std::string>& layer, const SpecOptions& changes) {
  SpecOptions options = changes;
  options.spec = name;
  options.layer = layer;
  FuzzTarget target;
  target.spec = resolve_spec(options);
  try {
    require_runnable(name, target.spec.spec);
  } catch (const UsageError& error) {
    target.refused = error.what();
  }
  assume_hidden_size(target.spec);
  return target;
}

}  // namespace

std::vector<FuzzTarget> all_targets(const SpecOptions& changes) {
  std::vector<FuzzTarget> targets;
  for (const BuiltinSpec& builtin : builtin_specs()) {
    const std::string name(builtin.name);
    const std::size_t first = targets.size();
    targets.push_back(target_of(name, std::nullopt, changes));
    for (const oracle::LayerOverride& layer : load_spec(name).layer_overrides) {
      const std::string label = layer.layers.empty() ? layer.name : std::to_string(layer.layers.front());
      FuzzTarget target = target_of(name, label, changes);
      const bool known = std::any_of(targets.begin() + static_cast<std::ptrdiff_t>(first), targets.end(),
                                     [&](const FuzzTarget& t) { return same_method(t.spec.spec, target.spec.spec); });
      if (!known) targets.push_back(std::move(target));
    }
  }
  return targets;
}

std::string all_specs_text(const std::vector<FuzzTarget>& targets) {
  const auto refused =
      std::count_if(targets.begin(), targets.end(), [](const FuzzTarget& t) { return !t.refused.empty(); });
  return fmt::format("all specs ({}; {} more cannot be run)", targets.size() - static_cast<std::size_t>(refused),
                     refused);
}

}  // namespace samebits::harness
