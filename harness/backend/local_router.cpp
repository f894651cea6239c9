#include "harness/backend/local_router.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "harness/backend/abi_adapter.h"

namespace samebits::harness {
namespace {

using oracle::RouterInputs;
using properties::RunRequest;
using properties::RunResult;

// A workspace beyond this is a mistake of the router, and filling it would bring the machine down.
constexpr std::size_t kMaxWorkspaceBytes = std::size_t{8} << 30;
constexpr std::uint32_t kNaNPattern = 0xffffffffu;

// What a router does must not end the harness: errors that it returns, and what it must not do at all.
class RouterError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
class RouterThrew : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <class Call>
auto call_router(const char* function, Call call) {
  try {
    return call();
  } catch (const std::exception& error) {
    throw RouterThrew(fmt::format("{} threw a C++ exception across the C ABI: {}", function, error.what()));
  } catch (...) {
    throw RouterThrew(fmt::format("{} threw across the C ABI", function));
  }
}

// Runs `body`; what the router did wrong becomes a result.
template <class Body>
RunResult as_result(Body body) {
  RunResult result;
  try {
    body(result);
  } catch (const RouterError& error) {
    result.status = RunResult::Status::kError;
    result.message = error.what();
  } catch (const RouterThrew& error) {
    result.status = RunResult::Status::kCrashed;
    result.message = error.what();
  } catch (const DeviceFault& fault) {
    result.status = RunResult::Status::kCrashed;
    result.message = fmt::format("device fault: {}", fault.what());
  } catch (const std::bad_alloc&) {
    result.status = RunResult::Status::kError;
    result.message = "out of memory for the buffers of this call";
  }
  return result;
}

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}

template <class T>
GuardedBuffer& add_input(std::deque<GuardedBuffer>& buffers, Memory& memory, const char* name,
                         const std::vector<T>& values) {
  GuardedBuffer& buffer = buffers.emplace_back(memory, name, values.size() * sizeof(T));
  buffer.write(bytes_of(values));
  return buffer;
}

samebits_tensor matrix(const GuardedBuffer& buffer, std::int64_t rows, std::int64_t columns, std::int32_t dtype) {
  return {buffer.data(), rows, columns, columns, dtype, 0};
}

// Largest number of blocks of size B that T*K slots can need; attained, so a router may fill the buffer to its end.
std::int64_t block_capacity(std::int64_t slots, std::int64_t num_experts, std::int64_t block_size) {
  return (slots + std::min(num_experts, slots) * (block_size - 1)) / block_size;
}

std::int32_t columns_of(const samebits_router_spec& spec) {
  return spec.top_k + (spec.shared_mode == SAMEBITS_SHARED_IN_GATE ? spec.shared_experts : 0);
}

}  // namespace

LocalRouter::LocalRouter(AbiTable table) : table_(std::move(table)), info_(describe(table_)) {
  if ((info_.memory_kinds & SAMEBITS_MEMORY_HOST) != 0) {
    memory_ = host_memory();
    return;
  }
  try {
    memory_ = device_memory();
  } catch (const DeviceFault& fault) {
    throw AbiError(
        fmt::format("{} works in device memory only, and no device can be used: {}", info_.name, fault.what()));
  }
  if (memory_ == nullptr) {
    throw AbiError(
        fmt::format("{} works in device memory only, and this program was built without CUDA; build it "
                    "where nvcc is found (-DSAMEBITS_CUDA=ON)",
                    info_.name));
  }
}

LocalRouter::~LocalRouter() {
  try {
    destroy();
  } catch (const RouterThrew&) {
    // Nobody is left to tell: the case is over.
  }
}

void LocalRouter::destroy() {
  if (samebits_router* router = std::exchange(router_, nullptr)) {
    call_router("samebits_destroy", [&] { return table_.destroy(router); });
  }
}

std::optional<std::string> LocalRouter::unsupported(const samebits_router_spec& spec) {
  try {
    return refusal(spec);
  } catch (const RouterThrew&) {
    return std::nullopt;  // begin_case meets it again and reports it as a result of the case
  }
}

std::optional<std::string> LocalRouter::refusal(const samebits_router_spec& spec) {
  const auto exceeds = [](const char* what, std::int32_t found, std::int32_t limit) {
    return limit > 0 && found > limit ? fmt::format("{} is {}; the router's limit is {}", what, found, limit)
                                      : std::string();
  };
  for (const std::string& reason :
       {exceeds("num_experts", spec.num_experts, info_.max_experts), exceeds("top_k", spec.top_k, info_.max_top_k),
        exceeds("hidden_size", spec.hidden_size, info_.max_hidden_size)}) {
    if (!reason.empty()) return reason;
  }
  std::array<char, 512> reason{};
  const samebits_status status =
      call_router("samebits_supports", [&] { return table_.supports(&spec, reason.data(), reason.size()); });
  if (status == SAMEBITS_OK) return std::nullopt;
  reason.back() = '\0';
  return reason.front() == '\0' ? "samebits_supports: " + status_text(status) : std::string(reason.data());
}

std::string LocalRouter::failure_text(const char* function, samebits_status status) const {
  const char* text = call_router("samebits_last_error", [&] { return table_.last_error(router_); });
  return fmt::format("{}: {}: {}", function, status_text(status),
                     text == nullptr || *text == '\0' ? std::string("samebits_last_error has no text")
                                                      : std::string(text, strnlen(text, 1024)));
}

std::optional<RunResult> LocalRouter::begin_case(const samebits_router_spec& spec, const RouterInputs& inputs) {
  if (inputs.num_experts != spec.num_experts) {
    throw std::invalid_argument(
        fmt::format("inputs of {} experts for a spec of {}", inputs.num_experts, spec.num_experts));
  }
  spec_ = spec;
  inputs_ = &inputs;
  RunResult result = as_result([&](RunResult&) {
    destroy();
    constants_.clear();
    if (const auto reason = refusal(spec)) throw RouterError("samebits_supports refuses the case: " + *reason);
    const std::int32_t columns = call_router("samebits_topk_columns", [&] { return table_.topk_columns(&spec_); });
    if (columns != columns_of(spec_)) {
      throw RouterError(fmt::format("samebits_topk_columns is {}; expected is {}", columns, columns_of(spec_)));
    }
    create();
  });
  if (result.status == RunResult::Status::kOk) return std::nullopt;
  return result;
}

void LocalRouter::create() {
  const std::int64_t experts = spec_.num_experts;
  samebits_constants constants{};
  constants.struct_size = sizeof(constants);
  constants.memory = memory_->kind();
  if (!inputs_->gate_weight_bf16.empty()) {
    constants.gate_weight = matrix(add_input(constants_, *memory_, "gate_weight", inputs_->gate_weight_bf16), experts,
                                   inputs_->hidden_size, SAMEBITS_BF16);
  } else if (!inputs_->gate_weight_fp32.empty()) {
    constants.gate_weight = matrix(add_input(constants_, *memory_, "gate_weight", inputs_->gate_weight_fp32), experts,
                                   inputs_->hidden_size, SAMEBITS_FP32);
  }
  if (!inputs_->linear_bias.empty()) {
    constants.linear_bias =
        matrix(add_input(constants_, *memory_, "linear_bias", inputs_->linear_bias), 1, experts, SAMEBITS_FP32);
  }
  if (!inputs_->selection_bias.empty()) {
    // A case has one bias vector; every variant of a spec that has several is given the same one.
    std::vector<float> variants;
    for (std::int32_t i = 0; i < spec_.num_bias_variants; ++i) {
      variants.insert(variants.end(), inputs_->selection_bias.begin(), inputs_->selection_bias.end());
    }
    constants.selection_bias = matrix(add_input(constants_, *memory_, "selection_bias", variants),
                                      spec_.num_bias_variants, experts, SAMEBITS_FP32);
  }
  const samebits_status status =
      call_router("samebits_create", [&] { return table_.create(&spec_, &constants, &router_); });
  if (status != SAMEBITS_OK) {
    router_ = nullptr;
    throw RouterError(failure_text("samebits_create", status));
  }
  if (router_ == nullptr) throw RouterError("samebits_create returned ok (0), but no router");
  memory_->synchronize();
  for (GuardedBuffer& buffer : constants_) {
    buffer.fetch();
    for (const std::string& damage : {buffer.guard_damage(), buffer.content_damage()}) {
      if (!damage.empty()) throw RouterError("samebits_create changed its constants: " + damage);
    }
    // The caller may free them now, so a router that still reads them must not find the right values.
    buffer.fill(kNaNPattern);
  }
}

RunResult LocalRouter::run(const RunRequest& request) {
  return as_result([&](RunResult& result) {
    if (router_ == nullptr) throw std::logic_error("run without a created router");
    route(request, result);
  });
}

void LocalRouter::route(const RunRequest& request, RunResult& result) {
  const RouterInputs rows = properties::select_rows(*inputs_, request);
  const std::int64_t tokens = rows.num_tokens;
  const std::int64_t experts = spec_.num_experts;
  const std::int64_t columns = columns_of(spec_);
  const std::int64_t slots = tokens * columns;

  std::deque<GuardedBuffer> read_only;
  samebits_inputs inputs{};
  inputs.struct_size = sizeof(inputs);
  inputs.num_tokens = tokens;
  if (rows.from_logits()) {
    inputs.router_logits = matrix(add_input(read_only, *memory_, "input router_logits", rows.router_logits), tokens,
                                  experts, SAMEBITS_FP32);
  } else {
    inputs.hidden_states = matrix(add_input(read_only, *memory_, "hidden_states", rows.hidden_states), tokens,
                                  rows.hidden_size, SAMEBITS_BF16);
  }
  if (rows.num_valid_rows) {
    inputs.num_valid_rows = static_cast<const std::int32_t*>(
        add_input(read_only, *memory_, "num_valid_rows", std::vector<std::int32_t>{*rows.num_valid_rows}).data());
  }

  std::deque<GuardedBuffer> written;
  const auto add_output = [&](const char* name, std::int64_t elements) -> GuardedBuffer& {
    GuardedBuffer& buffer = written.emplace_back(*memory_, name, static_cast<std::size_t>(elements) * 4);
    buffer.fill(request.poison);
    return buffer;
  };
  samebits_outputs outputs{};
  outputs.struct_size = sizeof(outputs);
  GuardedBuffer& ids = add_output("topk_ids", slots);
  GuardedBuffer& weights = add_output("topk_weights", slots);
  outputs.topk_ids = matrix(ids, tokens, columns, SAMEBITS_INT32);
  outputs.topk_weights = matrix(weights, tokens, columns, SAMEBITS_FP32);
  GuardedBuffer* logits = nullptr;
  if (request.want_logits) {
    logits = &add_output("router_logits", tokens * experts);
    outputs.router_logits = matrix(*logits, tokens, experts, SAMEBITS_FP32);
  }
  struct Integers {
    GuardedBuffer* buffer;
    std::vector<std::int32_t>* values;
  };
  std::vector<Integers> bookkeeping;
  const auto add_integers = [&](const char* name, std::int64_t elements, std::vector<std::int32_t>& values) {
    GuardedBuffer& buffer = add_output(name, elements);
    bookkeeping.push_back({&buffer, &values});
    return static_cast<std::int32_t*>(buffer.data());
  };
  oracle::Bookkeeping& books = result.outputs.bookkeeping;
  std::vector<std::int32_t> num_tokens_post_padded;
  if (request.want_bookkeeping) {
    outputs.tokens_per_expert = add_integers("tokens_per_expert", experts, books.tokens_per_expert);
    outputs.expert_offsets = add_integers("expert_offsets", experts + 1, books.expert_offsets);
    outputs.slot_of_position = add_integers("slot_of_position", slots, books.slot_of_position);
    outputs.position_of_slot = add_integers("position_of_slot", slots, books.position_of_slot);
    if (request.block_size > 0) {
      const std::int64_t blocks = block_capacity(slots, experts, request.block_size);
      outputs.block_size = request.block_size;
      outputs.sorted_token_ids = add_integers("sorted_token_ids", blocks * request.block_size, books.sorted_token_ids);
      outputs.expert_ids = add_integers("expert_ids", blocks, books.expert_ids);
      outputs.num_tokens_post_padded = add_integers("num_tokens_post_padded", 1, num_tokens_post_padded);
    }
  }

  const std::size_t workspace_bytes =
      call_router("samebits_workspace_bytes", [&] { return table_.workspace_bytes(router_, tokens); });
  if (workspace_bytes > kMaxWorkspaceBytes) {
    throw RouterError(fmt::format("samebits_workspace_bytes is {} for {} tokens; the harness allows {}",
                                  workspace_bytes, tokens, kMaxWorkspaceBytes));
  }
  GuardedBuffer& workspace = written.emplace_back(*memory_, "workspace", workspace_bytes);
  workspace.fill(request.poison);

  const char* function = "samebits_workspace_init";
  samebits_status status =
      call_router(function, [&] { return table_.workspace_init(router_, workspace.data(), workspace_bytes, nullptr); });
  if (status == SAMEBITS_OK) {
    function = rows.from_logits() ? "samebits_route_from_logits" : "samebits_route";
    const auto route = rows.from_logits() ? table_.route_from_logits : table_.route;
    status = call_router(function, [&] { return route(router_, &inputs, &outputs, workspace.data(), nullptr); });
  }
  const std::string failure = status == SAMEBITS_OK ? std::string() : failure_text(function, status);
  memory_->synchronize();

  outputs.kernel_name[sizeof(outputs.kernel_name) - 1] = '\0';
  result.kernel_name = outputs.kernel_name;
  const auto note = [&result](bool& intact, const std::string& damage) {
    if (damage.empty()) return;
    intact = false;
    if (result.damage.empty()) result.damage = damage;
  };
  for (GuardedBuffer& buffer : written) {
    buffer.fetch();
    note(result.guards_intact, buffer.guard_damage());
  }
  for (GuardedBuffer& buffer : read_only) {
    buffer.fetch();
    note(result.guards_intact, buffer.guard_damage());
    note(result.inputs_intact, buffer.content_damage());
  }
  if (!failure.empty()) throw RouterError(failure);

  result.outputs.num_tokens = tokens;
  result.outputs.top_k = columns;
  const std::vector<std::int32_t> narrow_ids = ids.values<std::int32_t>();
  result.outputs.topk_ids.assign(narrow_ids.begin(), narrow_ids.end());
  result.outputs.topk_weights = weights.values<float>();
  if (logits != nullptr) result.outputs.router_logits = logits->values<float>();
  for (const Integers& integers : bookkeeping) *integers.values = integers.buffer->values<std::int32_t>();
  if (!num_tokens_post_padded.empty()) books.num_tokens_post_padded = num_tokens_post_padded.front();
}

}  // namespace samebits::harness
