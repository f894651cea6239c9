#include "harness/witness/index.h"

#include <cstdint>
#include <string>

#include "harness/io/files.h"
#include "harness/io/yaml_mapping.h"

namespace samebits::harness {
namespace {

constexpr std::uint64_t kMaxIndexBytes = 16'000'000;
constexpr std::int64_t kMaxRoundings = 1000;

std::vector<oracle::Assignment> assignments(const YamlMapping& mapping) {
  std::vector<oracle::Assignment> result;
  if (!mapping.has("set")) return result;
  const YamlValue set = mapping.at("set");
  if (!set.node.IsMap()) set.wrong("a mapping of fields of the spec");
  for (const auto& entry : set.node) {
    const YamlValue value{set.file, set.field, entry.second};
    result.push_back({entry.first.as<std::string>(), value.text()});
  }
  return result;
}

int roundings(const YamlMapping& mapping, const char* field) {
  return mapping.has(field) ? static_cast<int>(mapping.at(field).integer(0, kMaxRoundings)) : 0;
}

Difference difference_of(const YamlValue& value) {
  const YamlMapping mapping(value, {"kind", "set", "score_roundings", "key_roundings", "group_roundings",
                                    "threshold_roundings", "weight_roundings", "log_roundings"});
  return {mapping.at("kind").text(),
          assignments(mapping),
          {.score = roundings(mapping, "score_roundings"),
           .key = roundings(mapping, "key_roundings"),
           .group = roundings(mapping, "group_roundings"),
           .threshold = roundings(mapping, "threshold_roundings"),
           .weight = roundings(mapping, "weight_roundings"),
           .log = roundings(mapping, "log_roundings")}};
}

RecordedRun run_of(const YamlValue& value, const std::filesystem::path& folder) {
  const YamlMapping mapping(value, {"name", "dtype", "file", "spec", "layer", "variant", "set", "wrong_rules",
                                    "input_roundings", "differences"});
  RecordedRun run;
  run.name = mapping.at("name").text();
  run.dtype = mapping.at("dtype").text();
  run.file = folder / mapping.at("file").text();
  run.spec = mapping.at("spec").text();
  if (mapping.has("layer")) run.resolution.layer = mapping.at("layer").text();
  if (mapping.has("variant")) run.resolution.variant = mapping.at("variant").text();
  run.resolution.set = assignments(mapping);
  if (mapping.has("wrong_rules")) run.try_wrong_rules = mapping.at("wrong_rules").boolean();
  run.input_roundings = roundings(mapping, "input_roundings");
  if (!mapping.has("differences")) return run;
  for (const YamlValue& item : mapping.at("differences").items()) run.differences.push_back(difference_of(item));
  return run;
}

}  // namespace

std::vector<RecordedRun> read_index(const std::filesystem::path& path) {
  const std::string name = path.string();
  return with_yaml_errors(name, [&] {
    const YamlMapping root(parse_yaml(read_file(path, kMaxIndexBytes), name), {"runs"});
    const std::vector<YamlValue> items = root.at("runs").items();
    if (items.empty())
      root.at("runs").fail("found an empty list; allowed: one run or more, as fixtures/golden/live.py records them");
    std::vector<RecordedRun> runs;
    for (const YamlValue& item : items) runs.push_back(run_of(item, path.parent_path()));
    return runs;
  });
}

}  // namespace samebits::harness
