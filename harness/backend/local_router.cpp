#include "harness/backend/local_router.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "harness/backend/abi_adapter.h"
#include "harness/backend/call_buffers.h"

namespace samebits::harness {
namespace {

using oracle::RouterInputs;
using properties::RunRequest;
using properties::RunResult;

// A workspace beyond this is a mistake of the router. The harness holds three copies of every buffer: what it wrote,
// what the router sees, and what was read back.
constexpr std::size_t kMaxWorkspaceBytes = std::size_t{1} << 30;
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

samebits_info watched_describe(const AbiTable& table, const CallWatch& watch) {
  const WatchedCall watched(watch, Call::kDescribe);
  return describe(table);
}

}  // namespace

template <class Function>
auto LocalRouter::call_router(Call function, Function call) const {
  const WatchedCall watched(watch_, function);
  try {
    return call();
  } catch (const DeviceFault&) {
    throw;  // of our own wait for the device
  } catch (const std::exception& error) {
    throw RouterThrew(fmt::format("{} threw a C++ exception across the C ABI: {}", name_of(function), error.what()));
  } catch (...) {
    throw RouterThrew(fmt::format("{} threw across the C ABI", name_of(function)));
  }
}

LocalRouter::LocalRouter(AbiTable table, CallWatch watch)
    : table_(std::move(table)), watch_(std::move(watch)), info_(watched_describe(table_, watch_)) {
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
  } catch (const std::exception&) {
    // Nobody is left to tell: the case is over.
  }
}

std::optional<RunResult> LocalRouter::end_case() {
  RunResult result = as_result([&](RunResult&) {
    destroy();
    constants_.clear();
  });
  if (result.status == RunResult::Status::kOk) return std::nullopt;
  return result;
}

void LocalRouter::destroy() {
  if (samebits_router* router = std::exchange(router_, nullptr)) {
    call_router(Call::kDestroy, [&] {
      table_.destroy(router);
      memory_->synchronize();
    });
  }
}

std::optional<std::string> LocalRouter::unsupported(const samebits_router_spec& spec) {
  try {
    return refusal(spec);
  } catch (const std::runtime_error&) {
    return std::nullopt;  // begin_case meets it again and reports it as a result of the case
  }
}

std::optional<std::string> LocalRouter::refusal(const samebits_router_spec& spec) {
  const auto exceeds = [](const char* what, std::int64_t found, std::int32_t limit) {
    return limit > 0 && found > limit ? fmt::format("{} is {}; the router's limit is {}", what, found, limit)
                                      : std::string();
  };
  for (const std::string& reason : {exceeds("the number of gate rows", gate_rows(spec), info_.max_experts),
                                    exceeds("top_k", spec.top_k, info_.max_top_k),
                                    exceeds("hidden_size", spec.hidden_size, info_.max_hidden_size)}) {
    if (!reason.empty()) return reason;
  }
  std::array<char, 512> reason{};
  const samebits_status status =
      call_router(Call::kSupports, [&] { return table_.supports(&spec, reason.data(), reason.size()); });
  if (status == SAMEBITS_OK) return std::nullopt;
  reason.back() = '\0';
  // Anything but a refusal is a fault, or a broken router would count as one that has nothing to be tested. A spec that
  // the router calls invalid is refused as well, if it says why.
  const bool refused =
      status == SAMEBITS_UNSUPPORTED || (status == SAMEBITS_INVALID_ARGUMENT && reason.front() != '\0');
  if (!refused) {
    throw RouterError(fmt::format(
        "samebits_supports returned {}; allowed are ok (0), and unsupported (2) with a reason", status_text(status)));
  }
  return reason.front() == '\0' ? "samebits_supports: " + status_text(status) : std::string(reason.data());
}

std::string LocalRouter::failure_text(Call function, samebits_status status) const {
  const char* text = call_router(Call::kLastError, [&] { return table_.last_error(router_); });
  return fmt::format("{}: {}: {}", name_of(function), status_text(status),
                     text == nullptr || *text == '\0' ? std::string("samebits_last_error has no text")
                                                      : std::string(text, strnlen(text, 1024)));
}

std::optional<RunResult> LocalRouter::begin_case(const samebits_router_spec& spec, std::int32_t table_dtype,
                                                 const RouterInputs& inputs) {
  if (inputs.gate_rows != gate_rows(spec)) {
    throw std::invalid_argument(
        fmt::format("inputs of {} gate rows for a spec of {}", inputs.gate_rows, gate_rows(spec)));
  }
  spec_ = spec;
  inputs_ = &inputs;
  RunResult result = as_result([&](RunResult&) {
    destroy();
    constants_.clear();
    if (const auto reason = refusal(spec)) throw RouterError("samebits_supports refuses the case: " + *reason);
    const std::int32_t columns = call_router(Call::kTopkColumns, [&] { return table_.topk_columns(&spec_); });
    if (columns != topk_columns(spec_)) {
      throw RouterError(fmt::format("samebits_topk_columns is {}; expected is {}", columns, topk_columns(spec_)));
    }
    create(table_dtype);
  });
  if (result.status == RunResult::Status::kOk) return std::nullopt;
  return result;
}

// The tensors of the case that do not change between its calls, in constants_.
samebits_constants LocalRouter::make_constants(std::int32_t table_dtype) {
  const std::int64_t gate = gate_rows(spec_), hidden = inputs_->hidden_size;
  const auto add = [&](const char* name, const auto& values, std::int64_t rows, std::int64_t columns,
                       std::int32_t dtype) {
    if (values.empty()) return samebits_tensor{};
    if (static_cast<std::int64_t>(values.size()) != rows * columns) {
      throw std::invalid_argument(
          fmt::format("{}: {} values for a shape of [{}, {}]", name, values.size(), rows, columns));
    }
    return matrix(add_input(constants_, *memory_, name, values), rows, columns, dtype);
  };
  samebits_constants constants{};
  constants.struct_size = sizeof(constants);
  constants.memory = memory_->kind();
  constants.gate_weight = inputs_->gate_weight_fp32.empty()
                              ? add("gate_weight", inputs_->gate_weight_bf16, gate, hidden, SAMEBITS_BF16)
                              : add("gate_weight", inputs_->gate_weight_fp32, gate, hidden, SAMEBITS_FP32);
  constants.linear_bias = add("linear_bias", inputs_->linear_bias, 1, gate, SAMEBITS_FP32);
  constants.selection_bias =
      add("selection_bias", inputs_->selection_bias, spec_.num_bias_variants, ranked_experts(spec_), SAMEBITS_FP32);
  constants.input_scale_vector = add("input_scale_vector", inputs_->input_scale_vector, 1, hidden, SAMEBITS_FP32);
  constants.per_expert_scale = add("per_expert_scale", inputs_->per_expert_scale, 1, gate, SAMEBITS_FP32);
  constants.global_scale = add("global_scale", inputs_->global_scale, 1, 1, SAMEBITS_FP32);
  const std::vector<std::int32_t>& table = inputs_->hash_table;
  constants.hash_table = table_dtype == SAMEBITS_INT64
                             ? add("hash_table", std::vector<std::int64_t>(table.begin(), table.end()),
                                   spec_.hash_vocab_size, spec_.top_k, table_dtype)
                             : add("hash_table", table, spec_.hash_vocab_size, spec_.top_k, SAMEBITS_INT32);
  return constants;
}

void LocalRouter::create(std::int32_t table_dtype) {
  const samebits_constants constants = make_constants(table_dtype);
  const samebits_status status = call_router(Call::kCreate, [&] {
    const samebits_status returned = table_.create(&spec_, &constants, &router_);
    memory_->synchronize();
    return returned;
  });
  if (status != SAMEBITS_OK) {
    router_ = nullptr;
    throw RouterError(failure_text(Call::kCreate, status));
  }
  if (router_ == nullptr) throw RouterError("samebits_create returned ok (0), but no router");
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
  const std::size_t workspace_bytes =
      call_router(Call::kWorkspaceBytes, [&] { return table_.workspace_bytes(router_, rows.num_tokens); });
  if (workspace_bytes > kMaxWorkspaceBytes) {
    throw RouterError(fmt::format("samebits_workspace_bytes is {} for {} tokens; allowed are at most {} (1 GiB)",
                                  workspace_bytes, rows.num_tokens, kMaxWorkspaceBytes));
  }
  CallBuffers buffers(*memory_, spec_, rows, request, workspace_bytes);

  Call function = Call::kWorkspaceInit;
  samebits_status status = call_router(
      function, [&] { return table_.workspace_init(router_, buffers.workspace(), workspace_bytes, nullptr); });
  if (status == SAMEBITS_OK) {
    function = rows.from_logits() ? Call::kRouteFromLogits : Call::kRoute;
    const auto route = rows.from_logits() ? table_.route_from_logits : table_.route;
    status = call_router(function, [&] {
      const samebits_status returned =
          route(router_, &buffers.inputs(), &buffers.outputs(), buffers.workspace(), nullptr);
      memory_->synchronize();  // the kernels that it launched are its own time
      return returned;
    });
  }
  const std::string failure = status == SAMEBITS_OK ? std::string() : failure_text(function, status);
  memory_->synchronize();
  buffers.inspect(result);

  char(&name)[64] = buffers.outputs().kernel_name;
  name[sizeof(name) - 1] = '\0';
  result.kernel_name = name;
  if (!failure.empty()) throw RouterError(failure);
  result.outputs = buffers.read();
}

}  // namespace samebits::harness
