// One call of a router: argument checks, then the steps, rows spread over threads.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "kernels/common/abi_struct.h"
#include "kernels/common/bits.h"
#include "kernels/common/gate_input.h"
#include "kernels/common/sizes.h"
#include "kernels/common/tensor_check.h"
#include "kernels/cpu/bookkeep.h"
#include "kernels/cpu/fp_environment.h"
#include "kernels/cpu/prepare.h"
#include "kernels/cpu/router.h"
#include "kernels/cpu/row_info.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/workspace.h"

namespace samebits::cpu {
namespace {

std::atomic<int> g_num_threads{0};

std::int64_t hardware_threads() {
  return std::max(1u, std::thread::hardware_concurrency());
}

// Threads that are worth it: starting one costs about as much as a quarter of a millisecond of work.
std::int64_t useful_threads(const samebits_router& router, Source source, std::int64_t num_rows) {
  constexpr double kNanosecondsPerThread = 250e3, kPerStep = 1.0, kPerExpert = 10.0;
  double per_row = kPerExpert * static_cast<double>(gate_rows(router.constants.spec));
  if (source == Source::kHiddenStates) {
    const GateWeight& weight = *router.gate_weight;
    per_row += kPerStep * static_cast<double>(weight.gate_rows()) * static_cast<double>(weight.hidden_size()) /
               kStepWidth * weight.num_parts();
  }
  const double threads = 1.0 + per_row * static_cast<double>(num_rows) / kNanosecondsPerThread;
  return static_cast<std::int64_t>(std::min(threads, static_cast<double>(hardware_threads())));
}

// Everything that a call needs, checked.
struct Call {
  const samebits_router& router;
  Source source;
  samebits_inputs inputs;
  samebits_outputs outputs;
  std::int64_t num_tokens, num_valid_rows;
  void* workspace;
  WorkspaceLayout layout;
  bool wants_bookkeeping;
};

Call checked_call(const samebits_router& router, Source source, const samebits_inputs* inputs_from,
                  const samebits_outputs* outputs_from, void* workspace) {
  const samebits_router_spec& spec = router.constants.spec;
  Call call{router,
            source,
            read_struct(inputs_from, "inputs"),
            read_struct(outputs_from, "outputs"),
            0,
            0,
            workspace,
            WorkspaceLayout(spec),
            false};
  const std::int64_t num_tokens = call.num_tokens = call.inputs.num_tokens;
  check_call(spec, source, router.gate_weight != nullptr, call.inputs, call.outputs);
  call.num_valid_rows = num_tokens;
  if (call.inputs.num_valid_rows != nullptr) {
    call.num_valid_rows = std::clamp<std::int64_t>(*call.inputs.num_valid_rows, 0, num_tokens);
  }
  call.wants_bookkeeping = wants_bookkeeping(call.outputs);

  if (workspace == nullptr) fail_invalid("workspace: null, allowed samebits_workspace_bytes bytes");
  const std::size_t bytes = read_header(workspace);
  if (call.layout.threads_that_fit(bytes, num_tokens) < 1) {
    fail_invalid("workspace: found " + std::to_string(bytes) + " bytes, but " + std::to_string(num_tokens) +
                 " rows need " + std::to_string(call.layout.bytes(num_tokens, 1)) + "; ask samebits_workspace_bytes");
  }
  return call;
}

void write_row(const Call& call, std::int64_t row, const std::int32_t* ids, const float* weights) {
  const std::int64_t k = topk_columns(call.router.constants.spec);
  const samebits_tensor& id_tensor = call.outputs.topk_ids;
  const samebits_tensor& weight_tensor = call.outputs.topk_weights;
  for (std::int64_t c = 0; c < k; ++c) {
    const std::int32_t id = ids == nullptr ? -1 : ids[c];
    const float weight = weights == nullptr ? 0.0f : weights[c];
    const std::int64_t id_at = row * id_tensor.row_stride + c, weight_at = row * weight_tensor.row_stride + c;
    if (id_tensor.dtype == SAMEBITS_INT64) {
      static_cast<std::int64_t*>(id_tensor.data)[id_at] = id;
    } else {
      static_cast<std::int32_t*>(id_tensor.data)[id_at] = id;
    }
    if (weight_tensor.dtype == SAMEBITS_BF16) {
      static_cast<std::uint16_t*>(weight_tensor.data)[weight_at] = weight_to_bf16(weight);
    } else {
      static_cast<float*>(weight_tensor.data)[weight_at] = weight;
    }
    if (call.wants_bookkeeping) call.layout.ids(call.workspace)[row * k + c] = id;
  }
}

// What the gate reads for the rows [first, first + rows): what the caller gave, or prepared rows in the scratch.
const std::uint16_t* block_input(const Call& call, std::int64_t first, std::int64_t rows, ThreadScratch& scratch,
                                 std::int64_t& stride) {
  const samebits_tensor& hidden = call.inputs.hidden_states;
  const RouterConstants& constants = call.router.constants;
  stride = hidden.row_stride;
  const std::uint16_t* given = static_cast<const std::uint16_t*>(hidden.data) + first * stride;
  if (!has_prepared_input(constants.spec)) return given;
  const std::int64_t hidden_size = constants.spec.hidden_size;
  for (std::int64_t r = 0; r < rows; ++r) {
    call.router.steps->prepare_input(constants, given + r * stride, scratch.row, scratch.prepared + r * hidden_size);
  }
  stride = hidden_size;
  return scratch.prepared;
}

// Logits of the valid rows [first, first + rows): where the caller gave or wants them, or in the scratch.
const float* block_logits(const Call& call, std::int64_t first, std::int64_t rows, ThreadScratch& scratch,
                          std::int64_t& stride) {
  const samebits_tensor& given = call.inputs.router_logits;
  const samebits_tensor& wanted = call.outputs.router_logits;
  const std::int64_t num_rows = gate_rows(call.router.constants.spec);
  if (call.source == Source::kLogits) {
    stride = given.row_stride;
    const float* logits = static_cast<const float*>(given.data) + first * stride;
    if (wanted.data != nullptr) {
      for (std::int64_t r = 0; r < rows; ++r) {
        float* copy = static_cast<float*>(wanted.data) + (first + r) * wanted.row_stride;
        for (std::int64_t e = 0; e < num_rows; ++e) copy[e] = canonical(logits[r * stride + e]);
      }
    }
    return logits;
  }
  stride = wanted.data != nullptr ? wanted.row_stride : num_rows;
  float* logits = wanted.data != nullptr ? static_cast<float*>(wanted.data) + first * stride : scratch.logits;
  std::int64_t input_stride = 0;
  const std::uint16_t* input = block_input(call, first, rows, scratch, input_stride);
  call.router.steps->logits(call.router.constants, input, input_stride, rows, call.num_tokens, logits, stride);
  return logits;
}

// Shared experts in the gate follow the chosen ones and never compete.
void append_shared_experts(const samebits_router_spec& spec, std::int32_t* ids) {
  auto id = static_cast<std::int32_t>(ranked_experts(spec));
  for (std::int64_t c = spec.top_k; c < topk_columns(spec); ++c) ids[c] = id++;
}

void route_block(const Call& call, std::int64_t first, ThreadScratch& scratch) {
  const Steps& steps = *call.router.steps;
  const RouterConstants& constants = call.router.constants;
  const std::int64_t end = std::min(first + kBlockRows, call.num_tokens);
  const std::int64_t valid = std::clamp<std::int64_t>(call.num_valid_rows - first, 0, end - first);
  std::int64_t stride = 0;
  const float* logits = valid > 0 ? block_logits(call, first, valid, scratch, stride) : nullptr;
  for (std::int64_t r = 0; r < valid; ++r) {
    const float* row_logits = logits + r * stride;
    const RowInfo row = row_info(constants.spec, call.inputs, first + r);
    if (!has_answer(constants.spec, row)) {
      write_row(call, first + r, nullptr, nullptr);
      continue;
    }
    steps.score(constants, row_logits, scratch.row.scores);
    steps.key(constants, row, row_logits, scratch.row.scores, scratch.row.keys);
    steps.select(constants, row, scratch.row);
    append_shared_experts(constants.spec, scratch.row.ids);
    steps.value(constants, row, row_logits, scratch.row);
    steps.weigh(constants, scratch.row, scratch.weights);
    write_row(call, first + r, scratch.row.ids, scratch.weights);
  }
  for (std::int64_t r = first + valid; r < end; ++r) write_row(call, r, nullptr, nullptr);
}

// Blocks of rows go to whichever thread is free. If the system has no more threads, the ones that started do the work.
void route_rows(const Call& call) {
  const std::int64_t num_blocks = (call.num_tokens + kBlockRows - 1) / kBlockRows;
  const std::int64_t wanted =
      g_num_threads.load() > 0 ? g_num_threads.load() : useful_threads(call.router, call.source, call.num_valid_rows);
  const std::int64_t fitting = call.layout.threads_that_fit(read_header(call.workspace), call.num_tokens);
  const std::int64_t num_threads = std::min({wanted, fitting, std::max<std::int64_t>(num_blocks, 1)});

  std::atomic<std::int64_t> next_block{0};
  const auto work = [&](std::int64_t thread) {
    const DefaultFpEnvironment environment;
    ThreadScratch scratch = call.layout.thread_scratch(call.workspace, call.num_tokens, thread);
    for (std::int64_t block = next_block++; block < num_blocks; block = next_block++) {
      route_block(call, block * kBlockRows, scratch);
    }
  };
  if (num_threads == 1) return work(0);

  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(num_threads - 1));
  try {
    for (std::int64_t t = 1; t < num_threads; ++t) threads.emplace_back(work, t);
  } catch (const std::system_error&) {
  }
  work(0);
  for (std::thread& thread : threads) thread.join();
}

void write_kernel_name(const samebits_router& router, samebits_outputs* outputs) {
  if (outputs->struct_size < offsetof(samebits_outputs, kernel_name) + sizeof(outputs->kernel_name)) return;
  std::snprintf(outputs->kernel_name, sizeof(outputs->kernel_name), "cpu/%s/%s", router.steps->name,
                simd_target_name());
}

}  // namespace

void set_num_threads(int num_threads) {
  g_num_threads = num_threads;
}

std::size_t workspace_bytes(const samebits_router& router, std::int64_t max_tokens) {
  if (max_tokens < 0 || max_tokens > WorkspaceLayout::most_tokens(router.constants.spec)) return 0;
  const std::int64_t num_threads = g_num_threads.load() > 0 ? g_num_threads.load() : hardware_threads();
  const std::int64_t num_blocks = (max_tokens + kBlockRows - 1) / kBlockRows;
  return WorkspaceLayout(router.constants.spec).bytes(max_tokens, std::clamp<std::int64_t>(num_blocks, 1, num_threads));
}

void init_workspace(const samebits_router& router, void* workspace, std::size_t bytes) {
  if (workspace == nullptr) fail_invalid("workspace: null, allowed samebits_workspace_bytes bytes");
  const std::size_t needed = WorkspaceLayout(router.constants.spec).bytes(0, 1);
  if (bytes < needed) {
    fail_invalid("workspace_bytes: found " + std::to_string(bytes) + ", allowed " + std::to_string(needed) +
                 " or more; ask samebits_workspace_bytes");
  }
  write_header(workspace, bytes);
}

void route(const samebits_router& router, Source source, const samebits_inputs* inputs, samebits_outputs* outputs,
           void* workspace) {
  Call call = checked_call(router, source, inputs, outputs, workspace);
  route_rows(call);
  if (call.wants_bookkeeping) {
    router.steps->bookkeep(router.constants, call.layout.ids(workspace), call.num_tokens,
                           call.layout.bookkeeping_scratch(workspace), call.outputs);
  }
  write_kernel_name(router, outputs);
}

}  // namespace samebits::cpu
