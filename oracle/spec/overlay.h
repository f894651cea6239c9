// Overlays: assignments that are applied to a base spec, and the check of what comes out.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "oracle/spec/message.h"
#include "oracle/spec/router_spec.h"
#include "oracle/spec/spec_yaml.h"

namespace samebits::oracle::yaml {

struct Overlay {
  std::string label;  // "variant bf16_bias"; "": the command line
  Position at;        // where the overlay begins
  const std::vector<Assignment>* set;
};

// Where the base gives its fields: dotted path, or name of a section, to position.
using PositionMap = std::map<std::string, Position>;

// Applies the overlays in order to `base`, then checks the result as a whole. Throws SpecError, with every problem on a
// line of its own. A problem is reported where the last overlay gives the field, or else something near it; without
// overlays, where the base does.
RouterSpec apply_overlays(const RouterSpec& base, const PositionMap& base_positions, const std::string& file,
                          const std::vector<Overlay>& overlays);

// One message: an unknown field, with the nearest known one.
std::string unknown_field(const Position& at, const std::string& path, const std::string& label);

}  // namespace samebits::oracle::yaml
