// One run of a LocalRouter: the calls of it, from filling their buffers to reading them back.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
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
    case Misuse::kWeightsColumns:
      --outputs.topk_weights.cols;
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
    case Misuse::kTokenIdsColumns:
      --inputs.token_ids.cols;
      break;
    case Misuse::kRowClassDtype:
      inputs.row_class.dtype = SAMEBITS_INT64;
      break;
    case Misuse::kRowClassColumns:
      --inputs.row_class.cols;
      break;
    default:
      break;
  }
}

// Any finite values: what an earlier call returns is dropped.
void give_logits(RouterInputs& rows) {
  rows.hidden_states.clear();
  rows.hidden_size = 0;
  rows.router_logits.resize(static_cast<std::size_t>(rows.num_tokens * rows.gate_rows));
  for (std::size_t i = 0; i < rows.router_logits.size(); ++i) {
    rows.router_logits[i] = static_cast<float>(i * 37 % 64) / 8.0f - 4.0f;
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
  samebits_constants constants = make_constants(*inputs_, buffers, 0);
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
  if (made != nullptr) destroy_router(made);
}

class LocalRouter::Other {
 public:
  Other(LocalRouter& local, samebits_router* router) : local_(local), router_(router) {}
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;
  ~Other() {
    try {
      end();
    } catch (const std::exception&) {
      // The run has failed before, and says how.
    }
  }
  samebits_router* get() const { return router_; }
  void end() {
    if (samebits_router* router = std::exchange(router_, nullptr)) local_.destroy_router(router);
  }

 private:
  LocalRouter& local_;
  samebits_router* router_;
};

// Of twice the scale, where that is a scale, from the constants in reverse order.
samebits_router* LocalRouter::make_other() {
  samebits_router_spec spec = spec_;
  spec.routed_scaling_factor *= 2;
  if (refusal(spec)) spec = spec_;
  RouterInputs reversed = *inputs_;
  std::ranges::reverse(reversed.gate_weight_bf16);
  for (std::vector<float>* values : {&reversed.gate_weight_fp32, &reversed.linear_bias, &reversed.selection_bias,
                                     &reversed.input_scale_vector, &reversed.per_expert_scale}) {
    std::ranges::reverse(*values);
  }
  std::deque<GuardedBuffer> buffers;
  samebits_router* made = nullptr;
  const samebits_status status = create_router(spec, make_constants(reversed, buffers, 0), made);
  if (status != SAMEBITS_OK) throw RouterError(failure_text(Call::kCreate, status, nullptr), status);
  if (made == nullptr) throw RouterError("samebits_create returned ok (0), but no router");
  return made;
}

// With the first row of the request, on a workspace of its own.
void LocalRouter::call_other(const samebits_router* other, const RunRequest& request) {
  RunRequest first;
  first.id = request.id;
  first.rows = {request.rows.front()};
  CallBuffers call(*memory_, spec_, properties::only_rows(*inputs_, first), first);
  GuardedBuffer workspace(*memory_, "workspace of another router",
                          call_router(Call::kWorkspaceBytes, [&] { return table_.workspace_bytes(other, 1); }),
                          request.poison);
  Call function = Call::kWorkspaceInit;
  samebits_status status =
      call_router(function, [&] { return table_.workspace_init(other, workspace.data(), workspace.size(), nullptr); });
  if (status == SAMEBITS_OK) {
    function = route_function();
    status = call_route(other, call, workspace.data(), nullptr, true);
  }
  if (status != SAMEBITS_OK) throw RouterError(failure_text(function, status, other), status);
}

samebits_status LocalRouter::call_route(const samebits_router* router, CallBuffers& call, void* workspace, void* stream,
                                        bool wait) {
  const auto function = call.from_logits() ? table_.route_from_logits : table_.route;
  return call_router(call.from_logits() ? Call::kRouteFromLogits : Call::kRoute, [&] {
    const samebits_status returned = function(router, &call.inputs(), &call.outputs(), workspace, stream);
    if (wait) memory_->synchronize();  // the kernels that it launched are its own time
    return returned;
  });
}

samebits_status LocalRouter::make_late_call(InputTensor late, CallBuffers& call, void* workspace) {
  Stream& stream = *memory_->stream();
  // Once as usual: kernels are loaded at their first launch, which may wait for all work before it.
  const samebits_status status = call_route(router_, call, workspace, stream.handle(), true);
  if (status != SAMEBITS_OK) return status;
  call.poison_outputs();
  call.fill_late(late, stream);
  return call_route(router_, call, workspace, stream.handle(), true);
}

samebits_status LocalRouter::replay_calls(std::deque<CallBuffers>& calls, void* workspace, RunResult& result) {
  Stream& stream = *memory_->stream();
  std::vector<std::unique_ptr<CapturedWork>> graphs;
  for (CallBuffers& call : calls) {
    call.disguise_inputs(kDisguise);
    // Once as usual: see above.
    samebits_status status = call_route(router_, call, workspace, stream.handle(), true);
    if (status != SAMEBITS_OK) return status;
    std::string problem;
    std::unique_ptr<CapturedWork> graph =
        stream.capture([&] { status = call_route(router_, call, workspace, stream.handle(), false); }, problem);
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
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::int32_t times = i < request.earlier.size() ? request.earlier[i].times : 1;
    for (std::int32_t made = 0; made < times && status == SAMEBITS_OK; ++made) {
      status = call_route(router_, calls[i], workspace, nullptr, true);
    }
  }
  return status;
}

void LocalRouter::route(const RunRequest& request, RunResult& result) {
  std::optional<Other> other;
  if (request.other_router != properties::OtherRouter::kNone) {
    other.emplace(*this, make_other());
    call_other(other->get(), request);
    if (request.other_router == properties::OtherRouter::kBefore) other->end();
  }
  std::deque<CallBuffers> calls;
  std::int64_t most_tokens = 0;
  const auto add_call = [&](const RunRequest& call, bool given_logits) {
    RouterInputs rows = properties::only_rows(*inputs_, call);
    if (given_logits && !rows.from_logits()) give_logits(rows);
    most_tokens = std::max(most_tokens, rows.num_tokens);
    calls.emplace_back(*memory_, spec_, rows, call);
  };
  for (const properties::EarlierCall& earlier : request.earlier) {
    RunRequest call = request;
    call.rows = earlier.rows;
    call.replace = earlier.replace;
    call.num_valid_rows = earlier.num_valid_rows;
    add_call(call, earlier.given_logits);
  }
  add_call(request, false);
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
    status = request.other_router == properties::OtherRouter::kAtOnce
                 ? make_calls_at_once(other->get(), request, calls.back(), workspace.data())
                 : make_calls(request, calls, workspace.data(), result);
  }
  const std::string failure = status == SAMEBITS_OK ? std::string() : failure_text(function, status, router_);
  memory_->synchronize();
  std::vector<GuardedBuffer*> buffers = {&workspace};
  for (CallBuffers& call : calls) call.add_to(buffers);
  GuardedBuffer::fetch_all(*memory_, buffers);
  for (CallBuffers& call : calls) call.inspect(result);
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
  if (other) other->end();
  if (result.device_problem.empty()) result.device_problem = memory_->probe();
  result.outputs = call.read();
}

}  // namespace samebits::harness
