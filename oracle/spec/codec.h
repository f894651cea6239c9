// How one value of a spec is read from YAML, checked and written. A codec has
//   allowed()  the allowed values as text
//   decode()   a node to a value; nullopt: the node has another type
//   valid()    the range; decode and valid together are the rule that `allowed` states
//   encode()   the value as one line of YAML that decode reads back
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "oracle/spec/yaml_node.h"

namespace samebits::oracle::yaml {

template <class E>
struct Enumeration {
  struct Named {
    const char* name = nullptr;
    E value{};
  };
  Named names[4];  // the unused ones have no name

  std::string allowed() const {
    std::string text;
    for (const Named& named : names) {
      if (named.name != nullptr) text += (text.empty() ? "" : " | ") + std::string(named.name);
    }
    return text;
  }
  std::optional<E> decode(const YamlNode& node) const {
    if (node.kind != NodeKind::kScalar && node.kind != NodeKind::kNull) return std::nullopt;
    const std::string_view text = node.kind == NodeKind::kNull ? "null" : std::string_view(node.text);
    for (const Named& named : names) {
      if (named.name != nullptr && text == named.name) return named.value;
    }
    return std::nullopt;
  }
  bool valid(E value) const { return !encode(value).empty(); }
  std::string encode(E value) const {
    for (const Named& named : names) {
      if (named.name != nullptr && named.value == value) return named.name;
    }
    return "";
  }
};

struct Integer {
  std::int64_t least = 0;
  std::int64_t greatest = 2147483647;  // the C ABI carries 32 bits

  std::string allowed() const;
  std::optional<std::int64_t> decode(const YamlNode& node) const;
  bool valid(std::int64_t value) const { return value >= least && value <= greatest; }
  std::string encode(std::int64_t value) const { return std::to_string(value); }
};

// A double that stands for an fp32 parameter: it is rounded to fp32 once, so it must not become Inf there, nor 0
// unless it is 0.
struct Real {
  bool zero_allowed = false;  // never negative, and never -0, whose sign would reach the weights

  std::string allowed() const { return zero_allowed ? "number >= 0 in fp32 range" : "number > 0 in fp32 range"; }
  std::optional<double> decode(const YamlNode& node) const;
  bool valid(double value) const;
  std::string encode(double value) const;
};

struct Boolean {
  std::string allowed() const { return "true | false"; }
  std::optional<bool> decode(const YamlNode& node) const;
  bool valid(bool) const { return true; }
  std::string encode(bool value) const { return value ? "true" : "false"; }
};

struct Text {
  std::string allowed() const { return "text"; }
  std::optional<std::string> decode(const YamlNode& node) const;
  bool valid(const std::string&) const { return true; }
  std::string encode(const std::string& value) const { return scalar_text(value); }
};

// Names become parts of commands and of file names.
struct Name {
  std::string allowed() const { return "name of letters, digits, '.', '_' and '-', 100 at most"; }
  std::optional<std::string> decode(const YamlNode& node) const;
  bool valid(const std::string& value) const;
  std::string encode(const std::string& value) const { return scalar_text(value); }
};

template <class Codec>
struct Optional {
  Codec codec;
  using Value = std::optional<decltype(codec.decode(YamlNode{}))>;  // outer: type error; inner: null

  std::string allowed() const { return codec.allowed() + " | null"; }
  Value decode(const YamlNode& node) const {
    if (node.kind == NodeKind::kNull) return Value(std::in_place, std::nullopt);
    auto value = codec.decode(node);
    return value ? Value(std::in_place, std::move(value)) : Value();
  }
  template <class T>
  bool valid(const std::optional<T>& value) const {
    return !value || codec.valid(*value);
  }
  template <class T>
  std::string encode(const std::optional<T>& value) const {
    return value ? codec.encode(*value) : "null";
  }
};

template <class Codec>
struct List {
  Codec codec;
  std::string what;  // "list of ..."

  std::string allowed() const { return what; }
  auto decode(const YamlNode& node) const {
    using Item = typename decltype(codec.decode(node))::value_type;
    std::optional<std::vector<Item>> items;
    if (node.kind != NodeKind::kSequence) return items;
    items.emplace();
    for (const YamlNode& value : node.values) {
      auto item = codec.decode(value);
      if (!item || !codec.valid(*item)) return decltype(items)();
      items->push_back(std::move(*item));
    }
    return items;
  }
  template <class T>
  bool valid(const std::vector<T>& items) const {
    for (const T& item : items) {
      if (!codec.valid(item)) return false;
    }
    return true;
  }
  template <class T>
  std::string encode(const std::vector<T>& items) const {
    std::string text;
    for (const T& item : items) text += (text.empty() ? "" : ", ") + codec.encode(item);
    return "[" + text + "]";
  }
};

struct TextMap {
  using Map = std::map<std::string, std::string>;
  std::string allowed() const { return "map of dotted path: reason"; }
  std::optional<Map> decode(const YamlNode& node) const;
  bool valid(const Map&) const { return true; }
  std::string encode(const Map& map) const;
};

}  // namespace samebits::oracle::yaml
