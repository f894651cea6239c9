// YAML text as a tree with positions. The subset that spec files need: one document of maps, sequences and scalars;
// no tags, no anchors and no aliases, so the size of the tree is bounded by the size of the text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace samebits::oracle::yaml {

enum class NodeKind { kNull, kScalar, kSequence, kMap };

struct YamlNode {
  NodeKind kind = NodeKind::kNull;
  std::string text;     // of a scalar
  bool quoted = false;  // a quoted scalar is a string, whatever it looks like
  int line = 0;         // 1-based
  int column = 0;
  std::vector<YamlNode> keys;    // of a map: scalars, all different, keys[i] for values[i]
  std::vector<YamlNode> values;  // of a map or a sequence
};

inline constexpr std::size_t kLargestFile = std::size_t{1} << 20;  // bytes
inline constexpr std::size_t kDeepestNesting = 16;

// Throws SpecError with the position. Text without any content gives a null node.
YamlNode parse_document(const std::string& text, const std::string& file_name);

// One line of YAML that parses to the same tree.
std::string flow_text(const YamlNode& node);

// A string as a YAML scalar: plain where that is unambiguous, else in double quotes.
std::string scalar_text(std::string_view text);

}  // namespace samebits::oracle::yaml
