#include "harness/io/captured_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <utility>
#include <vector>

#include "harness/io/tensor_text.h"

namespace samebits::harness {
namespace {

using Shape = std::vector<std::int64_t>;

// Of the constants that a file may have; empty: the spec has no such tensor.
std::map<std::string, Shape> constant_shapes(const oracle::RouterSpec& spec) {
  const std::int64_t gate_rows = oracle::gate_rows(spec), hidden_size = *spec.shape.hidden_size;
  const auto where = [](bool present, Shape shape) { return present ? std::move(shape) : Shape(); };
  return {{"gate_weight", {gate_rows, hidden_size}},
          {"input_scale_vector", where(spec.gate.input_scale_vector, {hidden_size})},
          {"linear_bias", where(spec.gate.linear_bias != oracle::BiasType::kNone, {gate_rows})},
          {"selection_bias", where(spec.selection.bias != oracle::BiasType::kNone, selection_bias_shape(spec))},
          {"per_expert_scale", where(spec.weights.per_expert_scale, {gate_rows})},
          {"global_scale", where(spec.weights.global_scale, {1})}};
}

void require_constant(const std::string& where, const SafeTensor& tensor, bool may_be_bf16, const Shape& shape) {
  if (shape.empty()) throw FileError(fmt::format("{}: found one; the spec has none", where));
  if (tensor.dtype != "F32" && !(may_be_bf16 && tensor.dtype == "BF16")) {
    throw FileError(fmt::format("{}: dtype {}; allowed: {}", where, tensor.dtype, may_be_bf16 ? "BF16 or F32" : "F32"));
  }
  if (tensor.shape != shape) {
    throw FileError(fmt::format("{}: shape [{}]; the spec needs [{}]", where, fmt::join(tensor.shape, ", "),
                                fmt::join(shape, ", ")));
  }
}

}  // namespace

CapturedRows::CapturedRows(const std::filesystem::path& path, const oracle::RouterSpec& spec)
    : num_rows_(0),
      num_experts_(*spec.shape.num_experts),
      top_k_(*spec.shape.top_k),
      gate_rows_(oracle::gate_rows(spec)),
      hidden_size_(*spec.shape.hidden_size) {
  const std::map<std::string, Shape> shapes = constant_shapes(spec);
  SafeTensors file = read_safetensors(path);
  const auto rows = file.tensors.find("hidden_states");
  if (rows == file.tensors.end()) throw FileError(fmt::format("{}: found no tensor hidden_states", path.string()));
  hidden_states_ = std::move(rows->second);
  file.tensors.erase(rows);
  const Shape& found = hidden_states_.shape;
  if (hidden_states_.dtype != "BF16" || found.size() != 2 || found[0] < 1 || found[1] != hidden_size_) {
    throw FileError(fmt::format("{}: hidden_states: found {} [{}]; allowed is BF16 [N, {}] with N of 1 or more",
                                path.string(), hidden_states_.dtype, fmt::join(found, ", "), hidden_size_));
  }
  num_rows_ = found[0];
  for (auto& [name, tensor] : file.tensors) {
    const auto shape = shapes.find(name);
    if (shape == shapes.end()) {
      throw FileError(
          fmt::format("{}: found tensor {}; allowed are hidden_states, gate_weight, input_scale_vector, linear_bias, "
                      "selection_bias, per_expert_scale, global_scale",
                      path.string(), name));
    }
    require_constant(fmt::format("{}: {}", path.string(), name), tensor, name == "gate_weight", shape->second);
    constants_.emplace(name, std::move(tensor));
  }
}

bool CapturedRows::put_into(properties::Case& c) const {
  properties::CaseDescription& d = c.description;
  if (d.stage != properties::Stage::kFull || d.hidden_size != hidden_size_ || d.num_experts != num_experts_ ||
      d.top_k != top_k_ || oracle::gate_rows(c.spec) != gate_rows_) {
    return false;
  }
  const oracle::RouterInputs generated = properties::materialize(c);
  std::map<std::string, SafeTensor> tensors;
  for (auto& [name, tensor] : to_tensors(c.spec, generated)) tensors.emplace(name, std::move(tensor));
  for (const auto& [name, tensor] : constants_) tensors[name] = tensor;

  const auto start = static_cast<std::int64_t>(d.data_key % static_cast<std::uint64_t>(num_rows_));
  const auto step = static_cast<std::int64_t>((d.data_key >> 32) % static_cast<std::uint64_t>(num_rows_));
  const auto row_bytes = static_cast<std::size_t>(hidden_size_) * sizeof(std::uint16_t);
  std::byte* to = tensors.at("hidden_states").bytes.data();
  for (std::int64_t t = 0, row = start; t < d.num_tokens; ++t, row = (row + step) % num_rows_) {
    std::memcpy(to + static_cast<std::size_t>(t) * row_bytes,
                hidden_states_.bytes.data() + static_cast<std::size_t>(row) * row_bytes, row_bytes);
  }
  oracle::RouterInputs inputs = from_tensors(tensors);
  inputs.num_valid_rows = generated.num_valid_rows;
  d.gate_weight_dtype = inputs.gate_weight_fp32.empty() ? oracle::FloatType::kBf16 : oracle::FloatType::kFp32;
  d.hazard = kHazard;
  d.plants.clear();
  d.data = std::move(inputs);
  return true;
}

}  // namespace samebits::harness
