#include "oracle/spec/overlay.h"

#include <algorithm>
#include <optional>

#include "oracle/spec/field.h"
#include "oracle/spec/text.h"
#include "oracle/spec/validate.h"

namespace samebits::oracle::yaml {
namespace {

std::string labelled(const std::string& path, const std::string& label) {
  return label.empty() ? shown(path) : shown(path) + " (" + label + ")";
}

Position position_of(const Overlay& overlay, const Assignment& assignment) {
  if (assignment.line > 0) return {overlay.at.file, assignment.line, assignment.column};
  return {"--set " + shown(assignment.path) + "=" + shown(assignment.text), 0, 0};
}

YamlNode parse_value(const Position& at, const std::string& path, const Assignment& assignment) {
  try {
    return parse_document(assignment.text, "");
  } catch (const SpecError&) {
    throw SpecError(message(at, path, "found " + shown(assignment.text) + "; allowed: one YAML value; quote the text"));
  }
}

void apply(RouterSpec& spec, const Overlay& overlay) {
  for (const Assignment& assignment : *overlay.set) {
    const Position at = position_of(overlay, assignment);
    const std::string name = labelled(assignment.path, overlay.label);
    const Field* field = find_field(assignment.path);
    if (field == nullptr) throw SpecError(unknown_field(at, assignment.path, overlay.label));
    if (!field->can_be_overlaid()) {
      throw SpecError(message(at, name,
                              "found a field that describes the file; allowed: fields of the router; set it at the "
                              "top of the spec file"));
    }
    if (!field->read(spec, parse_value(at, name, assignment))) {
      throw SpecError(message(
          at, name,
          "found " + shown(assignment.text) + "; allowed: " + field->allowed + "; write one of the allowed values"));
    }
  }
}

struct Culprit {
  Position at;
  std::string label;
};

bool same_section(const std::string& a, const std::string& b) {
  return a.substr(0, a.find('.')) == b.substr(0, b.find('.'));
}

// The last assignment to the field itself, else to its section, else at all: what an overlay changed is nearer to the
// cause than the base, which is right by itself.
Culprit find_culprit(const std::string& path, const PositionMap& base_positions, const std::string& file,
                     const std::vector<Overlay>& overlays) {
  const auto last = [&overlays](auto matches) -> std::optional<Culprit> {
    for (auto overlay = overlays.rbegin(); overlay != overlays.rend(); ++overlay) {
      for (auto assignment = overlay->set->rbegin(); assignment != overlay->set->rend(); ++assignment) {
        if (matches(assignment->path)) return Culprit{position_of(*overlay, *assignment), overlay->label};
      }
    }
    return std::nullopt;
  };
  if (auto culprit = last([&path](const std::string& set) { return set == path; })) return *culprit;
  if (auto culprit = last([&path](const std::string& set) { return same_section(set, path); })) return *culprit;
  if (!overlays.empty()) {
    const Overlay& overlay = overlays.back();
    if (!overlay.set->empty()) return {position_of(overlay, overlay.set->back()), overlay.label};
    return {overlay.at, overlay.label};
  }
  for (const std::string& key : {path, path.substr(0, path.find('.'))}) {
    const auto found = base_positions.find(key);
    if (found != base_positions.end()) return {found->second, ""};
  }
  return {{file, base_positions.empty() ? 0 : 1, base_positions.empty() ? 0 : 1}, ""};
}

}  // namespace

std::string unknown_field(const Position& at, const std::string& path, const std::string& label) {
  const std::string guess = nearest(path, field_paths());
  const std::string advice = guess.empty() ? "remove it" : "did you mean " + guess + "?";
  return message(at, labelled(path, label),
                 "found an unknown field; allowed: the fields of the schema (docs/spec.md); " + advice);
}

RouterSpec apply_overlays(const RouterSpec& base, const PositionMap& base_positions, const std::string& file,
                          const std::vector<Overlay>& overlays) {
  RouterSpec spec = base;
  for (const Overlay& overlay : overlays) apply(spec, overlay);
  std::vector<std::string> messages;
  for (const Problem& problem : find_problems(spec)) {
    const Culprit culprit = find_culprit(problem.path, base_positions, file, overlays);
    messages.push_back(message(culprit.at, labelled(problem.path, culprit.label), problem.message));
  }
  if (!messages.empty()) throw SpecError(join(messages, "\n"));
  return spec;
}

}  // namespace samebits::oracle::yaml
