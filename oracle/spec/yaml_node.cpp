#include "oracle/spec/yaml_node.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <sstream>

#include "oracle/spec/message.h"
#include "oracle/spec/spec_yaml.h"
#include "oracle/spec/text.h"

namespace samebits::oracle::yaml {
namespace {

class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const std::string& file_name) : file_name_(file_name) {}

  YamlNode take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) fail(mark, "found a second document; allowed: one; remove one of the two");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(make(NodeKind::kNull, mark, "?", anchor)); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuse_anchor(mark); }
  void OnAnchor(const YAML::Mark& mark, const std::string&) override { refuse_anchor(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode node = make(NodeKind::kScalar, mark, tag, anchor);
    node.text = value;
    node.quoted = tag == "!";
    add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(make(NodeKind::kSequence, mark, tag, anchor), mark);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(make(NodeKind::kMap, mark, tag, anchor), mark);
  }
  void OnMapEnd() override {
    check_keys(open_.back());
    close();
  }

 private:
  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& text) const {
    throw SpecError(message({file_name_, mark.line + 1, mark.column + 1}, "YAML", text));
  }
  [[noreturn]] void refuse_anchor(const YAML::Mark& mark) const {
    fail(mark, "found an anchor or alias (& or *); allowed: plain values; write the value out, or quote it");
  }

  YamlNode make(NodeKind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) const {
    if (anchor != YAML::NullAnchor) refuse_anchor(mark);
    if (tag != "?" && tag != "!" && !tag.empty()) {
      fail(mark, "found the tag " + shown(tag) + "; allowed: no tags; remove it");
    }
    YamlNode node;
    node.kind = kind;
    node.line = mark.line + 1;
    node.column = mark.column + 1;
    return node;
  }

  void open(YamlNode node, const YAML::Mark& mark) {
    if (open_.size() >= kDeepestNesting) {
      fail(mark, "found more than " + std::to_string(kDeepestNesting) + " nested levels; write a flatter file");
    }
    open_.push_back(std::move(node));
  }

  void close() {
    YamlNode node = std::move(open_.back());
    open_.pop_back();
    add(std::move(node));
  }

  void add(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    YamlNode& parent = open_.back();
    const bool is_key = parent.kind == NodeKind::kMap && parent.keys.size() == parent.values.size();
    if (!is_key && parent.kind == NodeKind::kMap && node.kind == NodeKind::kNull) {
      // An empty value has the position of the text after it, which may be lines away.
      const YamlNode& key = parent.keys.back();
      if (node.line != key.line) {
        node.line = key.line;
        node.column = key.column;
      }
    }
    (is_key ? parent.keys : parent.values).push_back(std::move(node));
  }

  void check_keys(const YamlNode& map) const {
    std::map<std::string_view, int> line_of_key;
    for (const YamlNode& key : map.keys) {
      const Position at{file_name_, key.line, key.column};
      if (key.kind != NodeKind::kScalar) {
        throw SpecError(message(at, "YAML", "found " + shown(flow_text(key)) + " as a key; allowed: a name"));
      }
      const auto [first, is_new] = line_of_key.emplace(key.text, key.line);
      if (!is_new) {
        throw SpecError(message(at, shown(key.text),
                                "found a second time (first on line " + std::to_string(first->second) +
                                    "); allowed: once; remove one of the two"));
      }
    }
  }

  std::string file_name_;
  YamlNode root_;
  std::vector<YamlNode> open_;
  int documents_ = 0;
};

// yaml-cpp takes byte 4 for the end of the text and replaces other control characters, so they are refused here.
void refuse_control_characters(const std::string& text, const std::string& file_name) {
  int line = 1;
  int column = 1;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\r' && c != '\t') || byte == 0x7f) {
      throw SpecError(
          message({file_name, line, column}, "YAML",
                  "found the control character " + shown(std::string(1, c)) + "; allowed: UTF-8 text; remove it"));
    }
    ++column;
    if (c == '\n') {
      ++line;
      column = 1;
    }
  }
}

bool is_plain(std::string_view text) {
  constexpr std::string_view kSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/+";
  if (text.empty() || text.find_first_not_of(kSafe) != std::string_view::npos) return false;
  // What other readers take for a number, a bool, null or a marker is quoted.
  if (!((text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z'))) return false;
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  for (const char* word : {"null", "true", "false", "yes", "no", "on", "off", "y", "n", "inf", "nan"}) {
    if (lower == word) return false;
  }
  return true;
}

bool starts_like_a_word_or_number(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == '.')) text.remove_prefix(1);
  if (!text.empty() && text[0] == '.') text.remove_prefix(1);  // -.inf, -.5
  return !text.empty() && std::isalnum(static_cast<unsigned char>(text[0])) != 0;
}

}  // namespace

YamlNode parse_document(const std::string& text, const std::string& file_name) {
  if (text.size() > kLargestFile) {
    throw SpecError(message({file_name, 0, 0}, "file",
                            "found more than " + std::to_string(kLargestFile) +
                                " bytes; allowed: at most that many; a spec file is a few kilobytes"));
  }
  refuse_control_characters(text, file_name);
  TreeBuilder builder(file_name);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    const Position at = error.mark.is_null() ? Position{file_name, 0, 0}
                                             : Position{file_name, error.mark.line + 1, error.mark.column + 1};
    throw SpecError(message(at, "YAML", "found " + error.msg + "; allowed: well-formed YAML; correct the syntax here"));
  }
  return builder.take_root();
}

std::string scalar_text(std::string_view text) {
  if (is_plain(text)) return std::string(text);
  static constexpr char kHex[] = "0123456789abcdef";
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += "\\x";
      quoted += kHex[byte >> 4];
      quoted += kHex[byte & 15];
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string flow_text(const YamlNode& node) {
  switch (node.kind) {
    case NodeKind::kNull:
      return "null";
    case NodeKind::kScalar: {
      // A plain scalar stays plain so that a number stays a number; inside brackets it may need quotes.
      const bool keep = !node.quoted && starts_like_a_word_or_number(node.text) &&
                        node.text.find_first_of(",[]{}:#&*!|>'\"%@`\n?") == std::string::npos;
      if (keep) return node.text;
      const std::string text = scalar_text(node.text);
      return text[0] == '"' ? text : '"' + text + '"';
    }
    case NodeKind::kSequence: {
      std::vector<std::string> items;
      for (const YamlNode& value : node.values) items.push_back(flow_text(value));
      return "[" + join(items, ", ") + "]";
    }
    case NodeKind::kMap: {
      std::vector<std::string> items;
      for (std::size_t i = 0; i < node.keys.size(); ++i) {
        items.push_back(flow_text(node.keys[i]) + ": " + flow_text(node.values[i]));
      }
      return "{" + join(items, ", ") + "}";
    }
  }
  return "";
}

}  // namespace samebits::oracle::yaml
