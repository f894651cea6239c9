// One run of a LocalRouter: the calls of it, from filling their buffers to reading them back.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "harness/backend/local_router.h"

namespace samebits::harness {
namespace {

using oracle::RouterInputs;
using properties::InputTensor;
using properties::Launch;
using properties::Misuse;
using properties::RunRequest;
using properties::RunResult;

// A workspace beyond this is a mistake of the router. The harness holds three copies of every buffer: what it wrote,
// what the router sees, and what was read back.
constexpr std::size_t kMaxWorkspaceBytes = std::size_t{1} << 30;
// bf16 and fp32: NaN; num_valid_rows, token ids and classes: -1.
constexpr std::byte kDisguise{0xff};

// The right call, made wrong.
void apply(Misuse misuse, std::int64_t max_tokens, samebits_inputs& inputs, samebits_outputs& outputs) {
  samebits_tensor& rows = inputs.hidden_states.data != nullptr ? inputs.hidden_states : inputs.router_logits;
  switch (misuse) {
    case Misuse::kInputColumns:
      --rows.cols;
      break;
    case Misuse::kInputDtype:
      rows.dtype = rows.dtype == SAMEBITS_BF16 ? SAMEBITS_FP32 : SAMEBITS_BF16;
      break;
    case Misuse::kAbsentInput:
      rows.data = nullptr;
      break;
    case Misuse::kIdsDtype:
      outputs.topk_ids.dtype = SAMEBITS_FP32;
      break;
    case Misuse::kIdsColumns:
      --outputs.topk_ids.cols;
      break;
    case Misuse::kIdsRows:
      --outputs.topk_ids.rows;
      break;
    case Misuse::kAbsentIds:
      outputs.topk_ids.data = nullptr;
      break;
    case Misuse::kWeightsDtype:
      outputs.topk_weights.dtype = SAMEBITS_INT32;
      break;
    case Misuse::kAbsentWeights:
      outputs.topk_weights.data = nullptr;
      break;
    case Misuse::kNegativeTokens:
      inputs.num_tokens = -1;
      break;
    case Misuse::kTooManyTokens:
      inputs.num_tokens = rows.rows = outputs.topk_ids.rows = outputs.topk_weights.rows = max_tokens + 1;
      for (samebits_tensor* vector : {&inputs.token_ids, &inputs.row_class}) {
        if (vector->data != nullptr) vector->cols = max_tokens + 1;
      }
      break;
    case Misuse::kAbsentTokenIds:
      inputs.token_ids = {};
      break;
    case Misuse::kTokenIdsDtype:
      inputs.token_ids.dtype = SAMEBITS_FP32;
      break;
    default:
      break;
  }
}

}  // namespace

RunResult LocalRouter::run(const RunRequest& request) {
  return as_result([&](RunResult& result) {
    if (router_ == nullptr) throw std::logic_error("run without a created router");
    if (request.launch != Launch::kDirect && memory_->stream() == nullptr) {
      throw std::invalid_argument(fmt::format("run {}: host memory has no streams", request.id));
    }
    if (is_of_create(request.misuse)) return create_wrongly(request.misuse);
    route(request, result);
  });
}

// A second router, from a wrong spec or wrong constants: throws what samebits_create says.
void LocalRouter::create_wrongly(Misuse misuse) {
  std::deque<GuardedBuffer> buffers;
  samebits_router_spec spec = spec_;
  samebits_constants constants = make_constants(buffers, 0);
  std::vector<std::int32_t> table = inputs_->hash_table;
  const std::size_t last = table.empty() ? 0 : table.size() - 1;
  switch (misuse) {
    case Misuse::kUnknownScore:
      spec.score_func = 99;
      break;
    case Misuse::kTopKTooLarge:
      spec.top_k = static_cast<std::int32_t>(ranked_experts(spec)) + 1;
      break;
    case Misuse::kGateColumns:
      --constants.gate_weight.cols;
      break;
    case Misuse::kAbsentBias:
      constants.selection_bias = {};
      break;
    case Misuse::kTableId:
      table[last] = static_cast<std::int32_t>(ranked_experts(spec));
      constants.hash_table = add_hash_table(buffers, table, 0);
      break;
    case Misuse::kTableRepeat:
      table[last] = table[last - 1];
      constants.hash_table = add_hash_table(buffers, table, 0);
      break;
    default:
      throw std::logic_error("a misuse of samebits_route, asked of samebits_create");
  }
  samebits_router* made = nullptr;
  const samebits_status status = create_router(spec, constants, made);
  if (status != SAMEBITS_OK) throw RouterError(failure_text(Call::kCreate, status, nullptr), status);
  if (made == nullptr) return;
  call_router(Call::kDestroy, [&] {
    table_.destroy(made);
    memory_->synchronize();
  });
}

samebits_status LocalRouter::call_route(CallBuffers& call, void* workspace, void* stream, bool wait) {
  const auto function = inputs_->from_logits() ? table_.route_from_logits : table_.route;
  return call_router(route_function(), [&] {
    const samebits_status returned = function(router_, &call.inputs(), &call.outputs(), workspace, stream);
    if (wait) memory_->synchronize();  // the kernels that it launched are its own time
    return returned;
  });
}

samebits_status LocalRouter::make_late_call(InputTensor late, CallBuffers& call, void* workspace) {
  Stream& stream = *memory_->stream();
  // Once as usual: kernels are loaded at their first launch, which may wait for all work before it.
  const samebits_status status = call_route(call, workspace, stream.handle(), true);
  if (status != SAMEBITS_OK) return status;
  call.poison_outputs();
  call.fill_late(late, stream);
  return call_route(call, workspace, stream.handle(), true);
}

samebits_status LocalRouter::replay_calls(std::deque<CallBuffers>& calls, void* workspace, RunResult& result) {
  Stream& stream = *memory_->stream();
  std::vector<std::unique_ptr<CapturedWork>> graphs;
  for (CallBuffers& call : calls) {
    call.disguise_inputs(kDisguise);
    // Once as usual: see above.
    samebits_status status = call_route(call, workspace, stream.handle(), true);
    if (status != SAMEBITS_OK) return status;
    std::string problem;
    std::unique_ptr<CapturedWork> graph =
        stream.capture([&] { status = call_route(call, workspace, stream.handle(), false); }, problem);
    if (graph != nullptr) problem = graph->problem();
    if (result.device_problem.empty()) result.device_problem = problem;
    if (status != SAMEBITS_OK) return status;
    if (graph == nullptr) throw RouterError(problem);
    graphs.push_back(std::move(graph));
  }
  for (CallBuffers& call : calls) {
    call.restore_inputs();
    call.poison_outputs();
  }
  memory_->synchronize();
  call_router(route_function(), [&] {
    for (int round = 0; round < 2; ++round) {
      for (const auto& graph : graphs) graph->launch();
    }
    memory_->synchronize();
  });
  return SAMEBITS_OK;
}

samebits_status LocalRouter::make_calls(const RunRequest& request, std::deque<CallBuffers>& calls, void* workspace,
                                        RunResult& result) {
  switch (request.launch) {
    case Launch::kGraph:
      return replay_calls(calls, workspace, result);
    case Launch::kLateInput:
      return make_late_call(request.late_input, calls.back(), workspace);
    case Launch::kDirect:
      break;
  }
  samebits_status status = SAMEBITS_OK;
  for (CallBuffers& call : calls) {
    if (status == SAMEBITS_OK) status = call_route(call, workspace, nullptr, true);
  }
  return status;
}

void LocalRouter::route(const RunRequest& request, RunResult& result) {
  std::deque<CallBuffers> calls;
  std::int64_t most_tokens = 0;
  const auto add_call = [&](const RunRequest& call) {
    const RouterInputs rows = properties::only_rows(*inputs_, call);
    most_tokens = std::max(most_tokens, rows.num_tokens);
    calls.emplace_back(*memory_, spec_, rows, call);
  };
  for (const properties::EarlierCall& earlier : request.earlier) {
    RunRequest call = request;
    call.rows = earlier.rows;
    call.replace = earlier.replace;
    call.num_valid_rows = earlier.num_valid_rows;
    add_call(call);
  }
  add_call(request);
  apply(request.misuse, info_.max_tokens, calls.back().inputs(), calls.back().outputs());

  const std::size_t workspace_bytes =
      call_router(Call::kWorkspaceBytes, [&] { return table_.workspace_bytes(router_, most_tokens); });
  if (workspace_bytes > kMaxWorkspaceBytes) {
    throw RouterError(fmt::format("samebits_workspace_bytes is {} for {} tokens; allowed are at most {} (1 GiB)",
                                  workspace_bytes, most_tokens, kMaxWorkspaceBytes));
  }
  // The author of a HostRouter knows it by other names.
  GuardedBuffer workspace(*memory_, "workspace, of a HostRouter x, logits, ids and weights of a row", workspace_bytes,
                          request.poison);

  Call function = Call::kWorkspaceInit;
  void* stream = request.launch == Launch::kDirect ? nullptr : memory_->stream()->handle();
  samebits_status status =
      call_router(function, [&] { return table_.workspace_init(router_, workspace.data(), workspace_bytes, stream); });
  if (status == SAMEBITS_OK) {
    function = route_function();
    status = make_calls(request, calls, workspace.data(), result);
  }
  const std::string failure = status == SAMEBITS_OK ? std::string() : failure_text(function, status, router_);
  memory_->synchronize();
  for (CallBuffers& call : calls) call.inspect(result);
  workspace.fetch();
  if (const std::string damage = workspace.guard_damage(); !damage.empty()) {
    result.guards_intact = false;
    if (result.damage.empty()) result.damage = damage;
  }

  CallBuffers& call = calls.back();
  char(&name)[64] = call.outputs().kernel_name;
  name[sizeof(name) - 1] = '\0';
  result.kernel_name = name;
  if (!failure.empty()) {
    if (const std::string written = call.written_output(); !written.empty()) {
      result.outputs_untouched = false;
      if (result.damage.empty()) result.damage = written;
    }
    throw RouterError(failure, status);
  }
  if (result.device_problem.empty()) result.device_problem = memory_->probe();
  result.outputs = call.read();
}

}  // namespace samebits::harness
