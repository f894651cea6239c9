// Two routers of one library at once: samebits.h lets any thread use a router, with a workspace of its own.
#include <atomic>
#include <exception>
#include <stdexcept>
#include <thread>
#include <vector>

#include "harness/backend/local_router.h"

namespace samebits::harness {
namespace {

// Some of them meet the other router's calls, also where one core runs both threads.
constexpr int kCallsAtOnce = 32;

// What a call has written of a matrix, gaps included.
void append_bytes(const samebits_tensor& tensor, std::vector<std::byte>& bytes) {
  if (tensor.rows == 0) return;
  const std::int64_t size = tensor.dtype == SAMEBITS_INT64 ? 8 : tensor.dtype == SAMEBITS_BF16 ? 2 : 4;
  const auto* data = static_cast<const std::byte*>(tensor.data);
  bytes.insert(bytes.end(), data, data + ((tensor.rows - 1) * tensor.row_stride + tensor.cols) * size);
}

std::vector<std::byte> ids_and_weights(const samebits_outputs& outputs) {
  std::vector<std::byte> bytes;
  append_bytes(outputs.topk_ids, bytes);
  append_bytes(outputs.topk_weights, bytes);
  return bytes;
}

}  // namespace

// The run's own call is made by a new thread: once alone, then again and again while this thread calls the other
// router, until one of them gives other bits than the first. So the outputs are those, or the last.
samebits_status LocalRouter::make_calls_at_once(const samebits_router* other, const properties::RunRequest& request,
                                                CallBuffers& call, void* workspace) {
  if (memory_->kind() != SAMEBITS_MEMORY_HOST) throw std::invalid_argument("calls at once, in device memory");
  properties::RunRequest first;
  first.id = request.id;
  first.rows = {request.rows.front()};
  CallBuffers beside(*memory_, spec_, properties::only_rows(*inputs_, first), first);
  GuardedBuffer beside_workspace(*memory_, "workspace of a router in another thread",
                                 call_router(Call::kWorkspaceBytes, [&] { return table_.workspace_bytes(other, 1); }),
                                 request.poison);
  const samebits_status prepared = call_router(Call::kWorkspaceInit, [&] {
    return table_.workspace_init(other, beside_workspace.data(), beside_workspace.size(), nullptr);
  });
  if (prepared != SAMEBITS_OK) return prepared;

  const auto function = call.from_logits() ? table_.route_from_logits : table_.route;
  return call_router(route_function(), [&] {
    std::atomic<bool> started{false}, done{false};
    samebits_status status = SAMEBITS_OK, status_beside = SAMEBITS_OK;
    std::exception_ptr thrown;
    std::jthread thread([&] {
      try {
        std::vector<std::byte> before;
        for (int made = 0; made < kCallsAtOnce && status == SAMEBITS_OK; ++made) {
          status = function(router_, &call.inputs(), &call.outputs(), workspace, nullptr);
          std::vector<std::byte> now = ids_and_weights(call.outputs());
          started = true;
          started.notify_one();
          if (made > 0 && now != before) break;
          before = std::move(now);
        }
      } catch (...) {
        thrown = std::current_exception();
      }
      done = true;
      started = true;
      started.notify_one();
    });
    started.wait(false);
    while (!done && status_beside == SAMEBITS_OK) {
      status_beside = function(other, &beside.inputs(), &beside.outputs(), beside_workspace.data(), nullptr);
    }
    thread.join();
    if (thrown) std::rethrow_exception(thrown);
    return status != SAMEBITS_OK ? status : status_beside;
  });
}

}  // namespace samebits::harness
