// RouterSpec <-> YAML. A spec file holds the non-default fields of one published router, its named variants and its
// layer overrides; resolve() turns it into one RouterSpec.
#pragma once

#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "oracle/spec/router_spec.h"

namespace samebits::oracle {

// Every line of a message has the form FILE:LINE:COLUMN: FIELD: found ...; allowed: ...; what to do. Without a position
// in the file, LINE and COLUMN are left out; for the command line, FILE is "--set PATH=TEXT".
class SpecError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// `path` is a dotted path of the schema ("selection.bias"), `text` its YAML value ("bf16").
struct Assignment {
  std::string path;
  std::string text;
  int line = 0;  // 1-based position in the file; 0: given on the command line
  int column = 0;
};

// Layers of the model by number, or a group of other layers by a name, such as those of a draft model.
struct LayerOverride {
  std::vector<std::int64_t> layers;  // empty: `name` is set
  std::string name;
  std::vector<Assignment> set;
};

struct SpecFile {
  std::string file;  // as given, used in messages
  RouterSpec base;
  std::vector<std::pair<std::string, std::vector<Assignment>>> variants;  // in file order
  std::vector<LayerOverride> layer_overrides;
};

// Reads and validates a spec file: the base, and every variant and override applied to it.
SpecFile read_spec_file(const std::filesystem::path& path);
SpecFile parse_spec(const std::string& yaml, const std::string& file_name);

struct Resolution {
  std::optional<std::string> variant = std::nullopt;
  std::optional<std::string> layer = std::nullopt;  // a number, counted from 0, or a name of the file
  std::vector<Assignment> set = {};                 // from --set, applied last
};
// Base, then the layer's overrides, then the variant, then `set`; validated as a whole.
RouterSpec resolve(const SpecFile& file, const Resolution& resolution);

// The resolved spec as YAML with non-default fields only, or with all fields. parse_spec(to_yaml(s)).base == s.
std::string to_yaml(const RouterSpec& spec, bool all_fields = false);

// All dotted paths of the schema, in schema order, with the allowed values as text (for messages and `show`).
struct FieldInfo {
  std::string path;
  std::string allowed;
  std::string default_text;
};
const std::vector<FieldInfo>& schema();

bool operator==(const RouterSpec& a, const RouterSpec& b);

}  // namespace samebits::oracle
