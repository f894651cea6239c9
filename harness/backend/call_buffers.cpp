#include "harness/backend/call_buffers.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace samebits::harness {
namespace {

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

samebits_tensor matrix(const GuardedBuffer& buffer, std::int64_t rows, std::int64_t columns, std::int32_t dtype) {
  return {buffer.data(), rows, columns, columns, dtype, 0};
}

CallBuffers::CallBuffers(Memory& memory, const samebits_router_spec& spec, const oracle::RouterInputs& rows,
                         const properties::RunRequest& request, std::size_t workspace_bytes)
    : memory_(memory),
      poison_(request.poison),
      tokens_(rows.num_tokens),
      gate_rows_(gate_rows(spec)),
      columns_(topk_columns(spec)) {
  add_inputs(spec, rows);
  outputs_.struct_size = sizeof(outputs_);
  const std::int64_t slots = tokens_ * columns_;
  ids_ = &add_output("topk_ids", slots);
  weights_ = &add_output("topk_weights", slots);
  outputs_.topk_ids = matrix(*ids_, tokens_, columns_, SAMEBITS_INT32);
  outputs_.topk_weights = matrix(*weights_, tokens_, columns_, SAMEBITS_FP32);
  if (request.want_logits) {
    logits_ = &add_output("router_logits", tokens_ * gate_rows_);
    outputs_.router_logits = matrix(*logits_, tokens_, gate_rows_, SAMEBITS_FP32);
  }
  if (request.want_bookkeeping) add_bookkeeping(slots, request.block_size);
  workspace_ = &written_.emplace_back(memory_, "workspace", workspace_bytes);
  workspace_->fill(poison_);
}

void CallBuffers::add_inputs(const samebits_router_spec& spec, const oracle::RouterInputs& rows) {
  inputs_.struct_size = sizeof(inputs_);
  inputs_.num_tokens = tokens_;
  if (rows.from_logits()) {
    inputs_.router_logits = matrix(add_input(read_only_, memory_, "input router_logits", rows.router_logits), tokens_,
                                   gate_rows_, SAMEBITS_FP32);
  } else {
    inputs_.hidden_states = matrix(add_input(read_only_, memory_, "hidden_states", rows.hidden_states), tokens_,
                                   rows.hidden_size, SAMEBITS_BF16);
  }
  if (spec.selection_method == SAMEBITS_SELECT_HASH_TABLE) {  // present also for 0 rows
    inputs_.token_ids =
        rows.token_ids_int32
            ? matrix(add_input(read_only_, memory_, "token_ids", narrow(rows.token_ids)), 1, tokens_, SAMEBITS_INT32)
            : matrix(add_input(read_only_, memory_, "token_ids", rows.token_ids), 1, tokens_, SAMEBITS_INT64);
  }
  if (!rows.row_class.empty()) {
    inputs_.row_class = matrix(add_input(read_only_, memory_, "row_class", rows.row_class), 1, tokens_, SAMEBITS_INT32);
  }
  if (rows.num_valid_rows) {
    const std::vector<std::int32_t> count = {*rows.num_valid_rows};
    inputs_.num_valid_rows =
        static_cast<const std::int32_t*>(add_input(read_only_, memory_, "num_valid_rows", count).data());
  }
}

void CallBuffers::add_bookkeeping(std::int64_t slots, std::int32_t block_size) {
  using Books = oracle::Bookkeeping;
  outputs_.tokens_per_expert = add_integers("tokens_per_expert", gate_rows_, &Books::tokens_per_expert);
  outputs_.expert_offsets = add_integers("expert_offsets", gate_rows_ + 1, &Books::expert_offsets);
  outputs_.slot_of_position = add_integers("slot_of_position", slots, &Books::slot_of_position);
  outputs_.position_of_slot = add_integers("position_of_slot", slots, &Books::position_of_slot);
  if (block_size <= 0) return;
  const std::int64_t blocks = block_capacity(slots, gate_rows_, block_size);
  outputs_.block_size = block_size;
  outputs_.sorted_token_ids = add_integers("sorted_token_ids", blocks * block_size, &Books::sorted_token_ids);
  outputs_.expert_ids = add_integers("expert_ids", blocks, &Books::expert_ids);
  num_tokens_post_padded_ = &add_output("num_tokens_post_padded", 1);
  outputs_.num_tokens_post_padded = static_cast<std::int32_t*>(num_tokens_post_padded_->data());
}

GuardedBuffer& CallBuffers::add_output(const char* name, std::int64_t elements) {
  GuardedBuffer& buffer = written_.emplace_back(memory_, name, static_cast<std::size_t>(elements) * 4);
  buffer.fill(poison_);
  return buffer;
}

std::int32_t* CallBuffers::add_integers(const char* name, std::int64_t elements,
                                        std::vector<std::int32_t> oracle::Bookkeeping::*values) {
  GuardedBuffer& buffer = add_output(name, elements);
  bookkeeping_.push_back({&buffer, values});
  return static_cast<std::int32_t*>(buffer.data());
}

void CallBuffers::inspect(properties::RunResult& result) {
  const auto note = [&result](bool& intact, const std::string& damage) {
    if (damage.empty()) return;
    intact = false;
    if (result.damage.empty()) result.damage = damage;
  };
  for (GuardedBuffer& buffer : written_) {
    buffer.fetch();
    note(result.guards_intact, buffer.guard_damage());
  }
  for (GuardedBuffer& buffer : read_only_) {
    buffer.fetch();
    note(result.guards_intact, buffer.guard_damage());
    note(result.inputs_intact, buffer.content_damage());
  }
}

oracle::RouterOutputs CallBuffers::read() const {
  oracle::RouterOutputs outputs;
  outputs.num_tokens = tokens_;
  outputs.top_k = columns_;
  const std::vector<std::int32_t> narrow_ids = ids_->values<std::int32_t>();
  outputs.topk_ids.assign(narrow_ids.begin(), narrow_ids.end());
  outputs.topk_weights = weights_->values<float>();
  if (logits_ != nullptr) outputs.router_logits = logits_->values<float>();
  for (const Integers& integers : bookkeeping_) {
    outputs.bookkeeping.*integers.values = integers.buffer->values<std::int32_t>();
  }
  if (num_tokens_post_padded_ != nullptr) {
    outputs.bookkeeping.num_tokens_post_padded = num_tokens_post_padded_->values<std::int32_t>().front();
  }
  return outputs;
}

}  // namespace samebits::harness
