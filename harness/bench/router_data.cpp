#include "harness/bench/router_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "harness/backend/abi_adapter.h"
#include "harness/backend/call_buffers.h"

namespace samebits::harness {
namespace {

constexpr std::int32_t kBlockSize = 64;  // of the padded block form; grouped GEMMs use 16 to 128

// Published or measured ranges of selection biases; the spec files' notes have the sources.
struct KnownBiases {
  const char* spec;
  BiasRange range;
};
constexpr KnownBiases kKnownBiases[] = {{"glm-5.3-flash", {11.75f, 0.07f, 11.54f, 11.96f}},
                                        {"kimi-k3", {-0.1f, 0.15f, -0.76f, 0.15f}}};
constexpr BiasRange kOtherBias = {0.0f, 0.1f, -1.0f, 1.0f};

std::uint16_t to_bf16(float value) {  // to nearest even; finite values
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

class Normal {
 public:
  std::vector<float> floats(std::int64_t count, const BiasRange& range) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = std::clamp(range.mean + range.deviation * draw(), range.least, range.most);
    return values;
  }
  std::vector<std::uint16_t> bf16(std::int64_t count, float deviation) {
    std::vector<std::uint16_t> values(static_cast<std::size_t>(count));
    for (std::uint16_t& value : values) value = to_bf16(deviation * draw());
    return values;
  }

 private:
  float draw() { return normal_(engine_); }
  std::mt19937_64 engine_{1};
  std::normal_distribution<float> normal_;
};

}  // namespace

BiasRange bench_selection_biases(const std::string& spec) {
  for (const KnownBiases& known : kKnownBiases) {
    if (spec == known.spec) return known.range;
  }
  return kOtherBias;
}

oracle::RouterInputs bench_constants(const BenchSpec& bench) {
  const oracle::RouterSpec& spec = bench.spec;
  const std::int64_t hidden = spec.shape.hidden_size.value(), gate = oracle::gate_rows(spec),
                     ranked = oracle::ranked_experts(spec);
  Normal normal;
  oracle::RouterInputs inputs;
  inputs.hidden_size = hidden;
  inputs.gate_rows = gate;
  inputs.gate_weight_bf16 = normal.bf16(gate * hidden, 1.0f / std::sqrt(static_cast<float>(hidden)));
  if (spec.gate.linear_bias != oracle::BiasType::kNone) inputs.linear_bias = normal.floats(gate, kOtherBias);
  if (spec.selection.bias != oracle::BiasType::kNone) {
    inputs.selection_bias = normal.floats(static_cast<std::int64_t>(spec.selection.bias_variants.size()) * ranked,
                                          bench_selection_biases(bench.name));
  }
  if (spec.gate.input_scale_vector) inputs.input_scale_vector.assign(static_cast<std::size_t>(hidden), 1.0f);
  if (spec.weights.per_expert_scale) inputs.per_expert_scale.assign(static_cast<std::size_t>(gate), 1.0f);
  if (spec.weights.global_scale) inputs.global_scale.assign(1, 1.0f);
  if (spec.selection.method == oracle::SelectionMethod::kHashTable) {
    for (std::int64_t token = 0; token < spec.hash.vocab_size.value_or(0); ++token) {
      for (std::int64_t slot = 0; slot < spec.shape.top_k.value(); ++slot) {
        inputs.hash_table.push_back(static_cast<std::int32_t>((token + slot) % ranked));
      }
    }
  }
  return inputs;
}

std::vector<std::uint16_t> bench_hidden_states(std::int64_t count) {
  return Normal().bf16(count, 1.0f);
}

const char* name_of(BenchOutputs outputs) {
  for (const BenchOutputsName& known : kBenchOutputs) {
    if (known.outputs == outputs) return known.name;
  }
  return "";
}

BenchMemory::~BenchMemory() {
  for (void* address : allocated_) memory_.release(address);
}

void* BenchMemory::allocate(std::size_t bytes) {
  return allocated_.emplace_back(memory_.allocate(std::max<std::size_t>(bytes, 64)));
}

BenchRouter::BenchRouter(const AbiTable& table, const BenchSpec& bench, Memory& memory, std::int64_t max_rows)
    : table_(table),
      buffers_(memory),
      spec_(to_abi(bench.spec)),
      host_(bench_constants(bench)),
      gate_rows_(harness::gate_rows(spec_)),
      columns_(topk_columns(spec_)),
      max_rows_(max_rows) {
  char reason[512] = "";
  if (const samebits_status status = table.supports(&spec_, reason, sizeof(reason)); status != SAMEBITS_OK) {
    throw BenchError(fmt::format("samebits_supports returned {}: {}", status_text(status), reason));
  }
  constants_ = make_constants(hash_table_dtype(bench.spec));
  if (const samebits_status status = table.create(&spec_, &constants_, &router_); status != SAMEBITS_OK) {
    throw BenchError(fmt::format("samebits_create returned {}: {}", status_text(status), table.last_error(nullptr)));
  }
  try {
    hidden_ = buffers_.allocate<std::uint16_t>(max_rows * spec_.hidden_size);
    logits_in_ = buffers_.allocate<float>(max_rows * gate_rows_);
    logits_out_ = buffers_.allocate<float>(max_rows * gate_rows_);
    const std::int64_t slots = max_rows * columns_;
    ids_ = buffers_.allocate<std::int32_t>(slots);
    weights_ = buffers_.allocate<float>(slots);
    if (spec_.selection_method == SAMEBITS_SELECT_HASH_TABLE) {
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(max_rows));
      for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i) % spec_.hash_vocab_size;
      token_ids_ = buffers_.copy(tokens);
    }
    bookkeeping_.struct_size = sizeof(bookkeeping_);
    bookkeeping_.block_size = kBlockSize;
    bookkeeping_.tokens_per_expert = buffers_.allocate<std::int32_t>(gate_rows_);
    bookkeeping_.expert_offsets = buffers_.allocate<std::int32_t>(gate_rows_ + 1);
    bookkeeping_.slot_of_position = buffers_.allocate<std::int32_t>(slots);
    bookkeeping_.position_of_slot = buffers_.allocate<std::int32_t>(slots);
    const std::int64_t blocks = (slots + std::min(gate_rows_, slots) * (kBlockSize - 1)) / kBlockSize;
    bookkeeping_.sorted_token_ids = buffers_.allocate<std::int32_t>(blocks * kBlockSize);
    bookkeeping_.expert_ids = buffers_.allocate<std::int32_t>(blocks);
    bookkeeping_.num_tokens_post_padded = buffers_.allocate<std::int32_t>(1);

    const std::size_t bytes = table.workspace_bytes(router_, max_rows);
    workspace_ = buffers_.allocate(bytes);
    const samebits_status status = table.workspace_init(router_, workspace_, bytes, nullptr);
    memory.synchronize();
    if (status != SAMEBITS_OK) fail("samebits_workspace_init", status);
  } catch (...) {
    table.destroy(router_);
    throw;
  }
}

BenchRouter::~BenchRouter() {
  table_.destroy(router_);
}

void BenchRouter::fail(const char* function, samebits_status status) const {
  throw BenchError(fmt::format("{} returned {}: {}", function, status_text(status), table_.last_error(router_)));
}

samebits_constants BenchRouter::make_constants(std::int32_t table_dtype) {
  const std::int64_t hidden = spec_.hidden_size;
  const auto place = [&](const auto& values, std::int64_t rows, std::int64_t columns, std::int32_t dtype) {
    return values.empty() ? samebits_tensor{} : dense(buffers_.copy(values), rows, columns, dtype);
  };
  samebits_constants constants{};
  constants.struct_size = sizeof(constants);
  constants.memory = buffers_.memory().kind();
  constants.gate_weight = place(host_.gate_weight_bf16, gate_rows_, hidden, SAMEBITS_BF16);
  constants.linear_bias = place(host_.linear_bias, 1, gate_rows_, SAMEBITS_FP32);
  constants.selection_bias = place(host_.selection_bias, spec_.num_bias_variants, ranked_experts(spec_), SAMEBITS_FP32);
  constants.input_scale_vector = place(host_.input_scale_vector, 1, hidden, SAMEBITS_FP32);
  constants.per_expert_scale = place(host_.per_expert_scale, 1, gate_rows_, SAMEBITS_FP32);
  constants.global_scale = place(host_.global_scale, 1, 1, SAMEBITS_FP32);
  const std::vector<std::int32_t>& table = host_.hash_table;
  constants.hash_table = table_dtype == SAMEBITS_INT64
                             ? place(std::vector<std::int64_t>(table.begin(), table.end()), spec_.hash_vocab_size,
                                     spec_.top_k, SAMEBITS_INT64)
                             : place(table, spec_.hash_vocab_size, spec_.top_k, SAMEBITS_INT32);
  return constants;
}

std::string BenchRouter::route(std::int64_t rows, BenchOutputs wanted, void* stream) {
  if (wanted == BenchOutputs::kGiven) return route_given(rows, logits_in_, stream);
  samebits_inputs inputs{};
  inputs.struct_size = sizeof(inputs);
  inputs.num_tokens = rows;
  inputs.hidden_states = dense(hidden_, rows, spec_.hidden_size, SAMEBITS_BF16);
  if (token_ids_ != nullptr) inputs.token_ids = dense(token_ids_, 1, rows, SAMEBITS_INT32);
  samebits_outputs outputs{};
  if (wanted == BenchOutputs::kBookkeeping) outputs = bookkeeping_;
  outputs.struct_size = sizeof(outputs);
  outputs.topk_ids = dense(ids_, rows, columns_, SAMEBITS_INT32);
  outputs.topk_weights = dense(weights_, rows, columns_, SAMEBITS_FP32);
  if (wanted == BenchOutputs::kLogits) outputs.router_logits = dense(logits_out_, rows, gate_rows_, SAMEBITS_FP32);
  if (const samebits_status status = table_.route(router_, &inputs, &outputs, workspace_, stream);
      status != SAMEBITS_OK) {
    fail("samebits_route", status);
  }
  return outputs.kernel_name;
}

std::string BenchRouter::route_given(std::int64_t rows, const float* logits, void* stream) {
  samebits_inputs inputs{};
  inputs.struct_size = sizeof(inputs);
  inputs.num_tokens = rows;
  inputs.router_logits = dense(const_cast<float*>(logits), rows, gate_rows_, SAMEBITS_FP32);
  if (token_ids_ != nullptr) inputs.token_ids = dense(token_ids_, 1, rows, SAMEBITS_INT32);
  samebits_outputs outputs{};
  outputs.struct_size = sizeof(outputs);
  outputs.topk_ids = dense(ids_, rows, columns_, SAMEBITS_INT32);
  outputs.topk_weights = dense(weights_, rows, columns_, SAMEBITS_FP32);
  if (const samebits_status status = table_.route_from_logits(router_, &inputs, &outputs, workspace_, stream);
      status != SAMEBITS_OK) {
    fail("samebits_route_from_logits", status);
  }
  return outputs.kernel_name;
}

}  // namespace samebits::harness
