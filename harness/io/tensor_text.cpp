#include "harness/io/tensor_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <stdexcept>

#include "harness/io/dtype.h"
#include "harness/io/float_text.h"

namespace samebits::harness {
namespace {

constexpr std::int64_t kSmallNumbers = 64;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 26;

template <class Element>
SafeTensor pack(const char* dtype, std::vector<std::int64_t> shape, const std::vector<Element>& values) {
  SafeTensor tensor{dtype, std::move(shape), std::vector<std::byte>(values.size() * sizeof(Element))};
  if (num_elements(tensor) != static_cast<std::int64_t>(values.size())) {
    throw std::invalid_argument(
        fmt::format("a tensor of shape [{}] holds {} values", fmt::join(tensor.shape, ", "), values.size()));
  }
  if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

template <class Element>
void unpack(const SafeTensor& tensor, std::vector<Element>& values) {
  values.resize(tensor.bytes.size() / sizeof(Element));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
}

const SafeTensor* find(const std::map<std::string, SafeTensor>& tensors, const char* name) {
  const auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : &found->second;
}

void require(const char* name, const SafeTensor& tensor, std::vector<std::string> dtypes, std::size_t rank) {
  bool known = false;
  for (const std::string& dtype : dtypes) known = known || tensor.dtype == dtype;
  if (!known) {
    throw std::invalid_argument(fmt::format("{}: dtype {}; allowed: {}", name, tensor.dtype, fmt::join(dtypes, ", ")));
  }
  if (tensor.shape.size() != rank) {
    throw std::invalid_argument(
        fmt::format("{}: shape [{}]; allowed: {} sizes", name, fmt::join(tensor.shape, ", "), rank));
  }
}

void require_size(const char* name, const char* axis, std::int64_t found, std::int64_t wanted) {
  if (found == wanted) return;
  throw std::invalid_argument(fmt::format("{}: {} is {}; the other tensors have {}", name, axis, found, wanted));
}

template <class Element>
Element element(const SafeTensor& tensor, std::int64_t index) {
  Element value{};
  std::memcpy(&value, tensor.bytes.data() + index * static_cast<std::int64_t>(sizeof(Element)), sizeof(Element));
  return value;
}

template <class Element>
void put(SafeTensor& tensor, std::int64_t index, Element value) {
  std::memcpy(tensor.bytes.data() + index * static_cast<std::int64_t>(sizeof(Element)), &value, sizeof(Element));
}

void set_element(SafeTensor& tensor, std::int64_t index, const YamlValue& value) {
  if (tensor.dtype == "I32") {
    put(tensor, index, static_cast<std::int32_t>(value.integer(INT32_MIN, INT32_MAX)));
  } else if (tensor.dtype == "I64") {
    put(tensor, index, value.integer(INT64_MIN, INT64_MAX));
  } else if (tensor.dtype == "BF16") {
    const auto bits = parse_bf16(value.scalar(std::string(kBf16Allowed)));
    if (!bits) value.wrong(std::string(kBf16Allowed));
    put(tensor, index, *bits);
  } else {
    const auto number = parse_fp32(value.scalar(std::string(kFp32Allowed)));
    if (!number) value.wrong(std::string(kFp32Allowed));
    put(tensor, index, *number);
  }
}

// A vector that may be left out, of `size` values.
template <class Element>
void read_vector(const std::map<std::string, SafeTensor>& tensors, const char* name, const char* dtype,
                 const char* axis, std::int64_t size, std::vector<Element>& values) {
  const SafeTensor* tensor = find(tensors, name);
  if (tensor == nullptr) return;
  require(name, *tensor, {dtype}, 1);
  require_size(name, axis, tensor->shape[0], size);
  unpack(*tensor, values);
}

void read_start(const std::map<std::string, SafeTensor>& tensors, oracle::RouterInputs& inputs) {
  const SafeTensor* hidden = find(tensors, "hidden_states");
  const SafeTensor* weight = find(tensors, "gate_weight");
  const SafeTensor* logits = find(tensors, "router_logits");
  if (logits != nullptr && (hidden != nullptr || weight != nullptr)) {
    throw std::invalid_argument("router_logits and hidden_states or gate_weight; allowed: one start of the pipeline");
  }
  if (logits != nullptr) {
    require("router_logits", *logits, {"F32"}, 2);
    inputs.num_tokens = logits->shape[0];
    inputs.gate_rows = logits->shape[1];
    unpack(*logits, inputs.router_logits);
    return;
  }
  if (hidden == nullptr || weight == nullptr) {
    throw std::invalid_argument("needs hidden_states and gate_weight, or router_logits");
  }
  require("hidden_states", *hidden, {"BF16"}, 2);
  require("gate_weight", *weight, {"BF16", "F32"}, 2);
  inputs.num_tokens = hidden->shape[0];
  inputs.hidden_size = hidden->shape[1];
  inputs.gate_rows = weight->shape[0];
  require_size("gate_weight", "hidden_size", weight->shape[1], inputs.hidden_size);
  if (inputs.hidden_size < 1) throw std::invalid_argument("hidden_states: hidden_size is 0; allowed: 1 or more");
  unpack(*hidden, inputs.hidden_states);
  if (weight->dtype == "BF16") unpack(*weight, inputs.gate_weight_bf16);
  if (weight->dtype == "F32") unpack(*weight, inputs.gate_weight_fp32);
}

void read_token_ids(const SafeTensor& ids, oracle::RouterInputs& inputs) {
  require("token_ids", ids, {"I32", "I64"}, 1);
  require_size("token_ids", "num_tokens", ids.shape[0], inputs.num_tokens);
  inputs.token_ids_int32 = ids.dtype == "I32";
  if (!inputs.token_ids_int32) {
    unpack(ids, inputs.token_ids);
    return;
  }
  std::vector<std::int32_t> narrow;
  unpack(ids, narrow);
  inputs.token_ids.assign(narrow.begin(), narrow.end());
}

}  // namespace

std::int64_t num_elements(const SafeTensor& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t size : tensor.shape) count *= size;
  return count;
}

const std::vector<std::string>& tensor_names() {
  static const std::vector<std::string> names = {
      "hidden_states",    "gate_weight",  "router_logits", "input_scale_vector", "linear_bias", "selection_bias",
      "per_expert_scale", "global_scale", "hash_table",    "token_ids",          "row_class"};
  return names;
}

std::vector<std::int64_t> selection_bias_shape(const oracle::RouterSpec& spec) {
  const auto classes = static_cast<std::int64_t>(spec.selection.bias_variants.size());
  const std::int64_t ranked = oracle::ranked_experts(spec);
  return classes == 1 ? std::vector<std::int64_t>{ranked} : std::vector<std::int64_t>{classes, ranked};
}

std::vector<std::pair<std::string, SafeTensor>> to_tensors(const oracle::RouterSpec& spec,
                                                           const oracle::RouterInputs& inputs) {
  std::vector<std::pair<std::string, SafeTensor>> tensors;
  const std::int64_t rows = inputs.num_tokens, columns = inputs.hidden_size, gate = inputs.gate_rows;
  const auto add = [&](const char* name, const char* dtype, std::vector<std::int64_t> shape, const auto& values) {
    if (!values.empty()) tensors.emplace_back(name, pack(dtype, std::move(shape), values));
  };
  if (inputs.from_logits()) {
    tensors.emplace_back("router_logits", pack("F32", {rows, gate}, inputs.router_logits));
  } else {
    tensors.emplace_back("hidden_states", pack("BF16", {rows, columns}, inputs.hidden_states));
    tensors.emplace_back("gate_weight", inputs.gate_weight_fp32.empty()
                                            ? pack("BF16", {gate, columns}, inputs.gate_weight_bf16)
                                            : pack("F32", {gate, columns}, inputs.gate_weight_fp32));
  }
  add("input_scale_vector", "F32", {columns}, inputs.input_scale_vector);
  add("linear_bias", "F32", {gate}, inputs.linear_bias);
  add("selection_bias", "F32", selection_bias_shape(spec), inputs.selection_bias);
  add("per_expert_scale", "F32", {gate}, inputs.per_expert_scale);
  add("global_scale", "F32", {1}, inputs.global_scale);
  add("hash_table", "I32", {spec.hash.vocab_size.value_or(0), oracle::top_k(spec)}, inputs.hash_table);
  if (spec.selection.method == oracle::SelectionMethod::kHashTable) {  // present also for 0 rows
    const std::vector<std::int32_t> narrow(inputs.token_ids.begin(), inputs.token_ids.end());
    tensors.emplace_back("token_ids",
                         inputs.token_ids_int32 ? pack("I32", {rows}, narrow) : pack("I64", {rows}, inputs.token_ids));
  }
  add("row_class", "I32", {rows}, inputs.row_class);
  return tensors;
}

oracle::RouterInputs from_tensors(const std::map<std::string, SafeTensor>& tensors) {
  oracle::RouterInputs inputs;
  read_start(tensors, inputs);
  if (inputs.gate_rows < 1) throw std::invalid_argument("num_experts is 0; allowed: 1 or more");
  read_vector(tensors, "input_scale_vector", "F32", "hidden_size", inputs.hidden_size, inputs.input_scale_vector);
  read_vector(tensors, "linear_bias", "F32", "gate rows", inputs.gate_rows, inputs.linear_bias);
  read_vector(tensors, "per_expert_scale", "F32", "gate rows", inputs.gate_rows, inputs.per_expert_scale);
  read_vector(tensors, "global_scale", "F32", "length", 1, inputs.global_scale);
  if (const SafeTensor* bias = find(tensors, "selection_bias")) {
    require("selection_bias", *bias, {"F32"}, bias->shape.size() == 2 ? 2 : 1);
    unpack(*bias, inputs.selection_bias);
  }
  if (const SafeTensor* table = find(tensors, "hash_table")) {
    require("hash_table", *table, {"I32"}, 2);
    unpack(*table, inputs.hash_table);
  }
  if (const SafeTensor* ids = find(tensors, "token_ids")) read_token_ids(*ids, inputs);
  read_vector(tensors, "row_class", "I32", "num_tokens", inputs.num_tokens, inputs.row_class);
  return inputs;
}

bool element_is_zero(const SafeTensor& tensor, std::int64_t index) {
  const std::int64_t size = find_dtype(tensor.dtype)->bytes;
  for (std::int64_t byte = index * size; byte < (index + 1) * size; ++byte) {
    if (tensor.bytes[static_cast<std::size_t>(byte)] != std::byte{0}) return false;
  }
  return true;
}

std::string element_text(const SafeTensor& tensor, std::int64_t index) {
  if (tensor.dtype == "BF16") return bf16_text(element<std::uint16_t>(tensor, index));
  if (tensor.dtype == "I32") return fmt::format("{}", element<std::int32_t>(tensor, index));
  if (tensor.dtype == "I64") return fmt::format("{}", element<std::int64_t>(tensor, index));
  return fp32_text(element<float>(tensor, index));
}

bool is_small(const SafeTensor& tensor) {
  const std::int64_t count = num_elements(tensor);
  if (count <= kSmallNumbers) return true;
  std::int64_t nonzero = 0;
  for (std::int64_t index = 0; index < count && nonzero <= kSmallNumbers; ++index) {
    if (!element_is_zero(tensor, index)) ++nonzero;
  }
  return nonzero <= kSmallNumbers;
}

std::string tensor_yaml(const SafeTensor& tensor, const std::string& indent) {
  std::string text = fmt::format("{0}dtype: {1}\n{0}shape: [{2}]\n", indent, find_dtype(tensor.dtype)->word,
                                 fmt::join(tensor.shape, ", "));
  const std::int64_t count = num_elements(tensor);
  const bool vector = tensor.shape.size() == 1;
  const std::int64_t columns = tensor.shape.back();
  if (count > kSmallNumbers || count == 0) {
    text += indent + "nonzero:";
    std::string lines;
    for (std::int64_t index = 0; index < count; ++index) {
      if (element_is_zero(tensor, index)) continue;
      const std::string place =
          vector ? fmt::format("{}", index) : fmt::format("{}, {}", index / columns, index % columns);
      lines += fmt::format("{}  - [{}, {}]\n", indent, place, element_text(tensor, index));
    }
    return text + (lines.empty() ? " []\n" : "\n" + lines);
  }
  std::vector<std::string> row;
  text += indent + "values:" + (vector ? " " : "\n");
  for (std::int64_t index = 0; index < count; ++index) {
    row.push_back(element_text(tensor, index));
    if ((index + 1) % columns != 0) continue;
    text += fmt::format("{}[{}]\n", vector ? std::string() : indent + "  - ", fmt::join(row, ", "));
    row.clear();
  }
  return text;
}

SafeTensor tensor_from_yaml(const YamlMapping& mapping) {
  SafeTensor tensor;
  const YamlValue dtype = mapping.at("dtype");
  const DtypeInfo* known = find_dtype_word(dtype.text());
  if (known == nullptr) dtype.wrong(std::string(kDtypeWords));
  tensor.dtype = known->name;
  const YamlValue shape = mapping.at("shape");
  tensor.shape = shape.integers(0, kMaxElements);
  if (tensor.shape.empty() || tensor.shape.size() > 2) shape.wrong("one or two sizes");
  std::int64_t count = 1;
  for (const std::int64_t size : tensor.shape) {
    if (__builtin_mul_overflow(count, size, &count) || count > kMaxElements) {
      shape.fail(fmt::format("more than {} elements", kMaxElements));
    }
  }
  tensor.bytes.resize(static_cast<std::size_t>(count * known->bytes));
  const bool vector = tensor.shape.size() == 1;
  const std::int64_t rows = vector ? 1 : tensor.shape[0];
  const std::int64_t columns = tensor.shape.back();
  if (mapping.has("values") == mapping.has("nonzero")) mapping.value().fail("needs one of values, nonzero");

  if (mapping.has("nonzero")) {
    std::vector<bool> seen(static_cast<std::size_t>(count));
    for (const YamlValue& entry : mapping.at("nonzero").items()) {
      const std::vector<YamlValue> parts = entry.items();
      if (parts.size() != (vector ? 2u : 3u)) entry.wrong(vector ? "[position, value]" : "[row, column, value]");
      std::int64_t index = parts[0].integer(0, (vector ? columns : rows) - 1);
      if (!vector) index = index * columns + parts[1].integer(0, columns - 1);
      if (seen[static_cast<std::size_t>(index)]) entry.fail("this position was given before; allowed is once");
      seen[static_cast<std::size_t>(index)] = true;
      set_element(tensor, index, parts.back());
    }
    return tensor;
  }
  const YamlValue values = mapping.at("values");
  std::vector<YamlValue> lists = vector ? std::vector<YamlValue>{values} : values.items();
  if (static_cast<std::int64_t>(lists.size()) != rows) {
    values.fail(fmt::format("found {} rows; the shape has {}", lists.size(), rows));
  }
  std::int64_t index = 0;
  for (const YamlValue& list : lists) {
    const std::vector<YamlValue> row = list.items();
    if (static_cast<std::int64_t>(row.size()) != columns) {
      list.fail(fmt::format("found {} values; the shape has {}", row.size(), columns));
    }
    for (const YamlValue& value : row) set_element(tensor, index++, value);
  }
  return tensor;
}

}  // namespace samebits::harness
