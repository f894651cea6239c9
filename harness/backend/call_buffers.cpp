#include "harness/backend/call_buffers.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "oracle/tensors/bf16.h"

namespace samebits::harness {
namespace {

using properties::InputTensor;

// Neither a value that passes unseen nor one that is always skipped.
template <class T>
T loud(std::size_t i) {
  const float value = i % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : 100.0f;
  if constexpr (std::is_same_v<T, float>) return value;
  if constexpr (std::is_same_v<T, std::uint16_t>) return oracle::fp32_to_bf16(value);
  return static_cast<T>(i % 2);  // ids, classes and counts that exist
}

// Largest number of blocks of size B that T*K slots can need; attained, so a router may fill the buffer to its end.
std::int64_t block_capacity(std::int64_t slots, std::int64_t num_ids, std::int64_t block_size) {
  return (slots + std::min(num_ids, slots) * (block_size - 1)) / block_size;
}

std::int64_t shared_in_gate(const samebits_router_spec& spec) {
  return spec.shared_mode == SAMEBITS_SHARED_IN_GATE ? spec.shared_experts : 0;
}

// Throws std::invalid_argument for a token id that is no int32.
std::vector<std::int32_t> narrow(const std::vector<std::int64_t>& token_ids) {
  std::vector<std::int32_t> narrowed;
  narrowed.reserve(token_ids.size());
  for (const std::int64_t id : token_ids) {
    if (id != static_cast<std::int32_t>(id)) {
      throw std::invalid_argument("token_ids: found " + std::to_string(id) +
                                  "; allowed: -2147483648 to 2147483647; give larger ones as int64");
    }
    narrowed.push_back(static_cast<std::int32_t>(id));
  }
  return narrowed;
}

}  // namespace

std::int64_t ranked_experts(const samebits_router_spec& spec) {
  return std::int64_t{spec.num_experts} + spec.zero_experts;
}

std::int64_t gate_rows(const samebits_router_spec& spec) {
  return ranked_experts(spec) + shared_in_gate(spec);
}

std::int64_t topk_columns(const samebits_router_spec& spec) {
  return std::int64_t{spec.top_k} + shared_in_gate(spec);
}

template <class T>
std::vector<T> spread(const std::vector<T>& values, std::int64_t columns, std::int64_t first, std::int64_t stride) {
  const std::int64_t rows = columns == 0 ? 0 : static_cast<std::int64_t>(values.size()) / columns;
  std::vector<T> content(static_cast<std::size_t>(first + rows * stride));
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = loud<T>(i);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::copy_n(values.begin() + row * columns, columns, content.begin() + first + row * stride);
  }
  return content;
}
template std::vector<std::uint16_t> spread(const std::vector<std::uint16_t>&, std::int64_t, std::int64_t, std::int64_t);
template std::vector<float> spread(const std::vector<float>&, std::int64_t, std::int64_t, std::int64_t);
template std::vector<std::int32_t> spread(const std::vector<std::int32_t>&, std::int64_t, std::int64_t, std::int64_t);
template std::vector<std::int64_t> spread(const std::vector<std::int64_t>&, std::int64_t, std::int64_t, std::int64_t);

CallBuffers::CallBuffers(Memory& memory, const samebits_router_spec& spec, const oracle::RouterInputs& rows,
                         const properties::RunRequest& request)
    : memory_(memory),
      poison_(request.poison),
      layout_(request.layout),
      from_logits_(rows.from_logits()),
      tokens_(rows.num_tokens),
      gate_rows_(gate_rows(spec)),
      columns_(topk_columns(spec)) {
  add_inputs(spec, rows);
  outputs_.struct_size = sizeof(outputs_);
  const std::int32_t gap = layout_.output_gap;
  outputs_.topk_ids = add_matrix(ids_, "topk_ids", columns_, gap, layout_.ids_int64 ? SAMEBITS_INT64 : SAMEBITS_INT32);
  outputs_.topk_weights = add_matrix(weights_, "topk_weights", columns_, gap == 0 ? 0 : gap + 1,
                                     layout_.weights_bf16 ? SAMEBITS_BF16 : SAMEBITS_FP32);
  if (request.want_logits) {
    outputs_.router_logits = add_matrix(logits_, "router_logits", gate_rows_, gap == 0 ? 0 : gap + 2, SAMEBITS_FP32);
  }
  if (request.want_bookkeeping) add_bookkeeping(tokens_ * columns_, request);
}

// Rows of an input, where the layout puts them.
template <class T>
samebits_tensor CallBuffers::add_rows(InputTensor input, const char* name, const std::vector<T>& values,
                                      std::int64_t rows, std::int64_t columns, std::int32_t dtype) {
  const std::int64_t first = layout_.shifted ? 1 : 0;
  const std::int64_t stride = columns + (input == InputTensor::kRows ? layout_.input_gap : 0);
  GuardedBuffer& buffer = first == 0 && stride == columns
                              ? add_input(read_only_, memory_, name, values)
                              : add_input(read_only_, memory_, name, spread(values, columns, first, stride));
  by_input_[input] = &buffer;
  return {static_cast<T*>(buffer.data()) + first, rows, columns, stride, dtype, 0};
}

void CallBuffers::add_inputs(const samebits_router_spec& spec, const oracle::RouterInputs& rows) {
  inputs_.struct_size = sizeof(inputs_);
  inputs_.num_tokens = tokens_;
  if (rows.from_logits()) {
    inputs_.router_logits =
        add_rows(InputTensor::kRows, "input router_logits", rows.router_logits, tokens_, gate_rows_, SAMEBITS_FP32);
  } else {
    inputs_.hidden_states =
        add_rows(InputTensor::kRows, "hidden_states", rows.hidden_states, tokens_, rows.hidden_size, SAMEBITS_BF16);
  }
  if (spec.selection_method == SAMEBITS_SELECT_HASH_TABLE) {  // present also for 0 rows
    constexpr InputTensor kIds = InputTensor::kTokenIds;
    inputs_.token_ids = rows.token_ids_int32
                            ? add_rows(kIds, "token_ids", narrow(rows.token_ids), 1, tokens_, SAMEBITS_INT32)
                            : add_rows(kIds, "token_ids", rows.token_ids, 1, tokens_, SAMEBITS_INT64);
  }
  if (!rows.row_class.empty()) {
    inputs_.row_class = add_rows(InputTensor::kRowClass, "row_class", rows.row_class, 1, tokens_, SAMEBITS_INT32);
  }
  if (rows.num_valid_rows) {
    const std::vector<std::int32_t> count = {*rows.num_valid_rows};
    inputs_.num_valid_rows = static_cast<const std::int32_t*>(
        add_rows(InputTensor::kNumValidRows, "num_valid_rows", count, 1, 1, SAMEBITS_INT32).data);
  }
}

void CallBuffers::disguise_inputs(std::byte value) {
  for (GuardedBuffer& buffer : read_only_) buffer.disguise(value);
}

void CallBuffers::restore_inputs() {
  for (GuardedBuffer& buffer : read_only_) buffer.restore();
}

bool CallBuffers::fill_late(InputTensor input, Stream& stream) {
  const auto found = by_input_.find(input);
  if (found == by_input_.end()) return false;
  GuardedBuffer& buffer = *found->second;
  // What the late kernel reads is a copy of its own.
  buffer.fetch();
  GuardedBuffer& source = add_input(staging_, memory_, "staging", buffer.values<std::byte>());
  buffer.disguise(std::byte{0xff});
  memory_.synchronize();
  stream.copy_late(buffer.data(), source.data(), buffer.size());
  return true;
}

void CallBuffers::poison_outputs() {
  for (GuardedBuffer& buffer : written_) buffer.restore();
}

// In the order of samebits_outputs.
void CallBuffers::add_bookkeeping(std::int64_t slots, const properties::RunRequest& request) {
  using Books = oracle::Bookkeeping;
  unsigned output = 0;
  const auto is_wanted = [&] { return (request.omitted_books >> output++ & 1u) == 0; };
  const auto add = [&](const char* name, std::int64_t size, std::vector<std::int32_t> Books::*values) {
    return is_wanted() ? add_integers(name, size, values) : nullptr;
  };
  outputs_.tokens_per_expert = add("tokens_per_expert", gate_rows_, &Books::tokens_per_expert);
  outputs_.expert_offsets = add("expert_offsets", gate_rows_ + 1, &Books::expert_offsets);
  outputs_.slot_of_position = add("slot_of_position", slots, &Books::slot_of_position);
  outputs_.position_of_slot = add("position_of_slot", slots, &Books::position_of_slot);
  if (request.block_size <= 0) return;
  const std::int64_t blocks = block_capacity(slots, gate_rows_, request.block_size);
  outputs_.block_size = request.block_size;
  outputs_.sorted_token_ids = add("sorted_token_ids", blocks * request.block_size, &Books::sorted_token_ids);
  outputs_.expert_ids = add("expert_ids", blocks, &Books::expert_ids);
  if (!is_wanted()) return;
  num_tokens_post_padded_ = &add_output("num_tokens_post_padded", 4);
  outputs_.num_tokens_post_padded = static_cast<std::int32_t*>(num_tokens_post_padded_->data());
}

samebits_tensor CallBuffers::add_matrix(Output& output, const char* name, std::int64_t columns, std::int64_t gap,
                                        std::int32_t dtype) {
  output.element_size = dtype == SAMEBITS_INT64 ? 8 : dtype == SAMEBITS_BF16 ? 2 : 4;
  output.place = {layout_.shifted ? 1 : 0, columns + gap};
  output.columns = columns;
  const std::int64_t elements = output.place.first + tokens_ * output.place.stride;
  output.buffer = &add_output(name, elements * output.element_size);
  auto* data = static_cast<std::byte*>(output.buffer->data()) + output.place.first * output.element_size;
  return {data, tokens_, columns, output.place.stride, dtype, 0};
}

GuardedBuffer& CallBuffers::add_output(const char* name, std::int64_t bytes) {
  return written_.emplace_back(memory_, name, static_cast<std::size_t>(bytes), poison_);
}

std::int32_t* CallBuffers::add_integers(const char* name, std::int64_t elements,
                                        std::vector<std::int32_t> oracle::Bookkeeping::*values) {
  GuardedBuffer& buffer = add_output(name, elements * 4);
  bookkeeping_.push_back({&buffer, values});
  return static_cast<std::int32_t*>(buffer.data());
}

void CallBuffers::add_to(std::vector<GuardedBuffer*>& buffers) {
  for (std::deque<GuardedBuffer>* all : {&written_, &read_only_}) {
    for (GuardedBuffer& buffer : *all) buffers.push_back(&buffer);
  }
}

void CallBuffers::inspect(properties::RunResult& result) {
  const auto note = [&result](bool& intact, const std::string& damage) {
    if (damage.empty()) return;
    intact = false;
    if (result.damage.empty()) result.damage = damage;
  };
  for (const GuardedBuffer& buffer : written_) note(result.guards_intact, buffer.guard_damage());
  for (const Output* output : {&ids_, &weights_, &logits_}) note(result.gaps_intact, gap_damage(*output));
  for (const GuardedBuffer& buffer : read_only_) {
    note(result.guards_intact, buffer.guard_damage());
    note(result.inputs_intact, buffer.content_damage());
  }
}

// Elements between the rows of an output, and before the first one.
std::string CallBuffers::gap_damage(const Output& output) const {
  if (output.buffer == nullptr) return {};
  const auto bytes = [&](std::int64_t element) { return static_cast<std::size_t>(element * output.element_size); };
  std::string damage = output.buffer->damage_within(0, bytes(output.place.first));
  if (output.place.stride == output.columns) return damage;
  for (std::int64_t row = 0; row < tokens_ && damage.empty(); ++row) {
    const std::int64_t begin = output.place.first + row * output.place.stride;
    damage = output.buffer->damage_within(bytes(begin + output.columns), bytes(begin + output.place.stride));
  }
  return damage.empty() ? damage : "between rows: " + damage;
}

std::string CallBuffers::written_output() const {
  for (const GuardedBuffer& buffer : written_) {
    if (std::string damage = buffer.content_damage(); !damage.empty()) return damage;
  }
  return {};
}

template <class T>
std::vector<T> CallBuffers::values(const Output& output) const {
  const std::span<const std::byte> content = output.buffer->content();
  const auto bytes = [](std::int64_t elements) { return static_cast<std::size_t>(elements) * sizeof(T); };
  const bool dense = output.place.stride == output.columns;
  const std::int64_t pieces = dense ? 1 : tokens_, width = dense ? tokens_ * output.columns : output.columns;
  std::vector<T> values(static_cast<std::size_t>(tokens_ * output.columns));
  if (values.empty()) return values;
  auto* to = reinterpret_cast<std::byte*>(values.data());
  for (std::int64_t i = 0; i < pieces; ++i) {
    std::memcpy(to + bytes(i * width), content.data() + bytes(output.place.first + i * output.place.stride),
                bytes(width));
  }
  return values;
}

oracle::RouterOutputs CallBuffers::read() const {
  oracle::RouterOutputs outputs;
  outputs.num_tokens = tokens_;
  outputs.top_k = columns_;
  if (layout_.ids_int64) {
    outputs.topk_ids = values<std::int64_t>(ids_);
  } else {
    const std::vector<std::int32_t> narrow_ids = values<std::int32_t>(ids_);
    outputs.topk_ids.assign(narrow_ids.begin(), narrow_ids.end());
  }
  if (layout_.weights_bf16) {
    for (const std::uint16_t bits : values<std::uint16_t>(weights_)) {
      outputs.topk_weights.push_back(oracle::bf16_to_fp32(bits));
    }
  } else {
    outputs.topk_weights = values<float>(weights_);
  }
  if (logits_.buffer != nullptr) outputs.router_logits = values<float>(logits_);
  for (const Integers& integers : bookkeeping_) {
    outputs.bookkeeping.*integers.values = integers.buffer->values<std::int32_t>();
  }
  if (num_tokens_post_padded_ != nullptr) {
    outputs.bookkeeping.num_tokens_post_padded = num_tokens_post_padded_->values<std::int32_t>().front();
  }
  return outputs;
}

}  // namespace samebits::harness
