// The spec inside a case file: a name where that says it all, else the whole of it.
#pragma once

#include <filesystem>
#include <string>

#include "harness/io/yaml_mapping.h"
#include "oracle/spec/router_spec.h"
#include "properties/case.h"

namespace samebits::harness {

struct CaseSpec {
  std::string name;         // for REPRO lines
  std::string variant;      // empty: none
  std::string layer;        // from which an inline spec came; empty: none
  oracle::RouterSpec spec;  // before the sizes of the case
};

// Lines "spec: ...", "variant: ..." or "origin: ..."; `full_spec` with the sizes of the case applied is c.spec. `layer`
// may be empty.
std::string case_spec_yaml(const properties::Case& c, const oracle::RouterSpec& full_spec, const std::string& layer);
// `text` is the whole file, so that errors in an inline spec name its own lines.
CaseSpec case_spec_from_yaml(const YamlMapping& root, const std::string& text, const std::filesystem::path& path);

}  // namespace samebits::harness
