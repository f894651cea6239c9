#include "harness/backend/local_router.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "harness/backend/abi_adapter.h"
#include "harness/backend/call_buffers.h"
#include "harness/backend/refusal_text.h"

namespace samebits::harness {
namespace {

using oracle::RouterInputs;
using properties::RunResult;

constexpr std::uint32_t kNaNPattern = 0xffffffffu;

samebits_info watched_describe(const AbiTable& table, const CallWatch& watch) {
  const WatchedCall watched(watch, Call::kDescribe);
  return describe(table);
}

}  // namespace

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
  if (samebits_router* router = std::exchange(router_, nullptr)) destroy_router(router);
}

void LocalRouter::destroy_router(samebits_router* router) {
  call_router(Call::kDestroy, [&] {
    table_.destroy(router);
    memory_->synchronize();
  });
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
  return reason.front() == '\0' ? "samebits_supports: " + status_text(status) : with_spec_field(reason.data());
}

std::string LocalRouter::failure_text(Call function, samebits_status status, const samebits_router* router) const {
  const char* text = call_router(Call::kLastError, [&] { return table_.last_error(router); });
  return fmt::format("{}: {}: {}", name_of(function), status_text(status),
                     text == nullptr || *text == '\0' ? std::string("samebits_last_error has no text")
                                                      : std::string(text, strnlen(text, 1024)));
}

std::optional<RunResult> LocalRouter::begin_case(const samebits_router_spec& spec, std::int32_t table_dtype,
                                                 const RouterInputs& inputs, std::int32_t constants_gap) {
  if (inputs.gate_rows != gate_rows(spec)) {
    throw std::invalid_argument(
        fmt::format("inputs of {} gate rows for a spec of {}", inputs.gate_rows, gate_rows(spec)));
  }
  spec_ = spec;
  table_dtype_ = table_dtype;
  inputs_ = &inputs;
  RunResult result = as_result([&](RunResult&) {
    destroy();
    constants_.clear();
    if (const auto reason = refusal(spec)) {
      throw RouterError("samebits_supports refuses the case: " + *reason, SAMEBITS_UNSUPPORTED);
    }
    const std::int32_t columns = call_router(Call::kTopkColumns, [&] { return table_.topk_columns(&spec_); });
    if (columns != topk_columns(spec_)) {
      throw RouterError(fmt::format("samebits_topk_columns is {}; expected is {}", columns, topk_columns(spec_)));
    }
    create(constants_gap);
  });
  if (result.status == RunResult::Status::kOk) return std::nullopt;
  return result;
}

namespace {

// Values of shape [rows, columns], with gaps between the rows.
template <class T>
samebits_tensor add_constant(std::deque<GuardedBuffer>& buffers, Memory& memory, const char* name,
                             const std::vector<T>& values, std::int64_t rows, std::int64_t columns, std::int32_t gap,
                             std::int32_t dtype) {
  if (values.empty()) return {};
  if (static_cast<std::int64_t>(values.size()) != rows * columns) {
    throw std::invalid_argument(
        fmt::format("{}: {} values for a shape of [{}, {}]", name, values.size(), rows, columns));
  }
  const std::int64_t stride = columns + gap;
  GuardedBuffer& buffer = gap == 0 ? add_input(buffers, memory, name, values)
                                   : add_input(buffers, memory, name, spread(values, columns, 0, stride));
  return {buffer.data(), rows, columns, stride, dtype, 0};
}

}  // namespace

samebits_tensor LocalRouter::add_hash_table(std::deque<GuardedBuffer>& buffers, const std::vector<std::int32_t>& ids,
                                            std::int32_t gap) {
  const std::int64_t rows = spec_.hash_vocab_size, columns = spec_.top_k;
  constexpr const char* kName = "hash_table";
  return table_dtype_ == SAMEBITS_INT64
             ? add_constant(buffers, *memory_, kName, std::vector<std::int64_t>(ids.begin(), ids.end()), rows, columns,
                            gap, SAMEBITS_INT64)
             : add_constant(buffers, *memory_, kName, ids, rows, columns, gap, SAMEBITS_INT32);
}

// The tensors of the case that do not change between its calls, in `buffers`. gap: elements between rows of matrices.
samebits_constants LocalRouter::make_constants(const RouterInputs& inputs, std::deque<GuardedBuffer>& buffers,
                                               std::int32_t gap) {
  const std::int64_t gate = gate_rows(spec_), hidden = inputs.hidden_size;
  const auto add = [&](const char* name, const auto& values, std::int64_t rows, std::int64_t columns,
                       std::int32_t dtype) {
    return add_constant(buffers, *memory_, name, values, rows, columns, gap, dtype);
  };
  samebits_constants constants{};
  constants.struct_size = sizeof(constants);
  constants.memory = memory_->kind();
  constants.gate_weight = inputs.gate_weight_fp32.empty()
                              ? add("gate_weight", inputs.gate_weight_bf16, gate, hidden, SAMEBITS_BF16)
                              : add("gate_weight", inputs.gate_weight_fp32, gate, hidden, SAMEBITS_FP32);
  constants.linear_bias = add("linear_bias", inputs.linear_bias, 1, gate, SAMEBITS_FP32);
  constants.selection_bias =
      add("selection_bias", inputs.selection_bias, spec_.num_bias_variants, ranked_experts(spec_), SAMEBITS_FP32);
  constants.input_scale_vector = add("input_scale_vector", inputs.input_scale_vector, 1, hidden, SAMEBITS_FP32);
  constants.per_expert_scale = add("per_expert_scale", inputs.per_expert_scale, 1, gate, SAMEBITS_FP32);
  constants.global_scale = add("global_scale", inputs.global_scale, 1, 1, SAMEBITS_FP32);
  constants.hash_table = add_hash_table(buffers, inputs.hash_table, gap);
  return constants;
}

samebits_status LocalRouter::create_router(const samebits_router_spec& spec, const samebits_constants& constants,
                                           samebits_router*& router) {
  return call_router(Call::kCreate, [&] {
    const samebits_status returned = table_.create(&spec, &constants, &router);
    memory_->synchronize();
    return returned;
  });
}

void LocalRouter::create(std::int32_t constants_gap) {
  const samebits_constants constants = make_constants(*inputs_, constants_, constants_gap);
  const samebits_status status = create_router(spec_, constants, router_);
  if (status != SAMEBITS_OK) {
    router_ = nullptr;
    throw RouterError(failure_text(Call::kCreate, status, nullptr), status);
  }
  if (router_ == nullptr) throw RouterError("samebits_create returned ok (0), but no router");
  std::vector<GuardedBuffer*> constants_now;
  for (GuardedBuffer& buffer : constants_) constants_now.push_back(&buffer);
  GuardedBuffer::fetch_all(*memory_, constants_now);
  for (GuardedBuffer& buffer : constants_) {
    for (const std::string& damage : {buffer.guard_damage(), buffer.content_damage()}) {
      if (!damage.empty()) throw RouterError("samebits_create changed its constants: " + damage);
    }
    // The caller may free them now, so a router that still reads them must not find the right values.
    buffer.fill(kNaNPattern);
  }
}

}  // namespace samebits::harness
