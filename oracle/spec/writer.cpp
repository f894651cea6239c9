// to_yaml(), schema() and equality, from the table of fields.
#include "oracle/spec/field.h"
#include "oracle/spec/spec_yaml.h"

namespace samebits::oracle {

std::string to_yaml(const RouterSpec& spec, bool all_fields) {
  const RouterSpec defaults;
  std::string text;
  std::string open_section;
  for (const yaml::Field& field : yaml::fields()) {
    const std::string value = field.write(spec);
    if (!all_fields && value == field.write(defaults)) continue;
    const std::string section = field.section();
    if (section.empty()) {
      text += field.path + ": " + value + "\n";
    } else {
      if (section != open_section) text += section + ":\n";
      text += "  " + field.path.substr(section.size() + 1) + ": " + value + "\n";
    }
    open_section = section;
  }
  return text;
}

const std::vector<FieldInfo>& schema() {
  static const std::vector<FieldInfo> table = [] {
    std::vector<FieldInfo> infos;
    const RouterSpec defaults;
    for (const yaml::Field& field : yaml::fields()) {
      infos.push_back({field.path, field.allowed, field.required ? "required" : field.write(defaults)});
    }
    return infos;
  }();
  return table;
}

bool operator==(const RouterSpec& a, const RouterSpec& b) {
  for (const yaml::Field& field : yaml::fields()) {
    if (field.write(a) != field.write(b)) return false;
  }
  return true;
}

}  // namespace samebits::oracle
