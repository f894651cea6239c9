// Two routers of one library at once: samebits.h lets any thread use a router, with a workspace of its own.
#include <atomic>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <thread>
#include <vector>

#include "harness/backend/local_router.h"

namespace samebits::harness {
namespace {

// Some of them meet the other router's calls, also where one core runs both threads.
constexpr int kCallsAtOnce = 32;
// Of all of them, so that the watchdog does not take many calls of a slow router for one that hangs.
constexpr std::chrono::milliseconds kMostTime{250};

// A thread that keeps what its work throws until it is joined.
class Thread {
 public:
  template <class Work>
  explicit Thread(Work work)
      : thread_([this, work] {
          try {
            work();
          } catch (...) {
            thrown_ = std::current_exception();
          }
          done_ = true;
        }) {}
  bool is_done() const { return done_; }
  void join() {
    thread_.join();
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  std::exception_ptr thrown_;
  std::atomic<bool> done_{false};
  std::jthread thread_;
};

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

// The run's own call is made by a new thread: alone, then again and again while this thread calls the other router,
// until one of them gives other bits than the first. So the outputs are those, or the last.
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
  const auto start = std::chrono::steady_clock::now();
  const auto in_time = [=] { return std::chrono::steady_clock::now() - start < kMostTime; };
  samebits_status status = SAMEBITS_OK, status_beside = SAMEBITS_OK;
  const auto make_call = [&] { status = function(router_, &call.inputs(), &call.outputs(), workspace, nullptr); };
  call_router(route_function(), [&] { Thread(make_call).join(); });
  if (status != SAMEBITS_OK || !in_time()) return status;

  const std::vector<std::byte> alone = ids_and_weights(call.outputs());
  call_router(route_function(), [&] {
    Thread thread([&] {
      for (int made = 0; made < kCallsAtOnce && status == SAMEBITS_OK && in_time(); ++made) {
        make_call();
        if (ids_and_weights(call.outputs()) != alone) return;
      }
    });
    while (!thread.is_done() && status_beside == SAMEBITS_OK) {
      status_beside = function(other, &beside.inputs(), &beside.outputs(), beside_workspace.data(), nullptr);
    }
    thread.join();
  });
  return status != SAMEBITS_OK ? status : status_beside;
}

}  // namespace samebits::harness
