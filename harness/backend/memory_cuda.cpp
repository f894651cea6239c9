// Device memory and a stream through the CUDA runtime; compiled only where CUDA is.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "harness/backend/device_kernels.h"
#include "harness/backend/memory.h"
#include "samebits/samebits.h"

namespace samebits::harness {
namespace {

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  if (error == cudaErrorMemoryAllocation) throw std::bad_alloc();
  throw DeviceFault(fmt::format("{}: {} ({}: {})", call, cudaGetErrorString(error), cudaGetErrorName(error),
                                static_cast<int>(error)));
}

class CudaGraph final : public CapturedWork {
 public:
  // Takes the graph.
  CudaGraph(cudaGraph_t graph, cudaStream_t stream) : stream_(stream), problem_(problem_of(graph)) {
    const cudaError_t error = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    check(error, "cudaGraphInstantiate");
  }
  ~CudaGraph() override { static_cast<void>(cudaGraphExecDestroy(executable_)); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  void launch() override { check(cudaGraphLaunch(executable_, stream_), "cudaGraphLaunch"); }
  std::string problem() const override { return problem_; }

 private:
  static std::string problem_of(cudaGraph_t graph) {
    std::size_t count = 0;
    check(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
    if (count == 0) return "the call put nothing on its stream";
    std::vector<cudaGraphNode_t> nodes(count);
    check(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
    const bool allocates = std::any_of(nodes.begin(), nodes.end(), [](cudaGraphNode_t node) {
      cudaGraphNodeType type{};
      check(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
      return type == cudaGraphNodeTypeMemAlloc;
    });
    return allocates ? "the call allocated device memory on its stream" : "";
  }

  cudaStream_t stream_;
  std::string problem_;
  cudaGraphExec_t executable_ = nullptr;
};

class CudaStream final : public Stream {
 public:
  CudaStream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
  ~CudaStream() override { static_cast<void>(cudaStreamDestroy(stream_)); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  void* handle() override { return stream_; }
  void copy_late(void* to, const void* from, std::size_t bytes) override {
    launch_late_copy(to, from, bytes, stream_);
    check(cudaGetLastError(), "launching a late copy");
  }
  std::unique_ptr<CapturedWork> capture(const std::function<void()>& body, std::string& problem) override {
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    try {
      body();
    } catch (...) {
      static_cast<void>(cudaStreamEndCapture(stream_, &graph));
      if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
      static_cast<void>(cudaGetLastError());
      throw;
    }
    const cudaError_t error = cudaStreamEndCapture(stream_, &graph);
    if (error != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // of the capture, not of the device
      problem = fmt::format(
          "the call cannot be captured in a CUDA graph ({}: {}): it allocated device memory, synchronised, or used a "
          "stream that is not its own",
          cudaGetErrorString(error), cudaGetErrorName(error));
      return nullptr;
    }
    return std::make_unique<CudaGraph>(graph, stream_);
  }

 private:
  cudaStream_t stream_ = nullptr;
};

class CudaMemory final : public Memory {
 public:
  CudaMemory() {
    check(cudaSetDevice(0), "cudaSetDevice(0)");
    // A process that waits leaves its core to the oracle, of this process or of those beside it.
    check(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync), "cudaSetDeviceFlags");
    check(cudaFree(nullptr), "creating the CUDA context");
  }
  int kind() const override { return SAMEBITS_MEMORY_DEVICE; }
  void* allocate(std::size_t bytes) override {
    void* address = nullptr;
    check(cudaMalloc(&address, bytes), "cudaMalloc");
    return address;
  }
  // After a fault every call fails; the process ends soon and the driver frees the memory.
  void release(void* address) noexcept override { static_cast<void>(cudaFree(address)); }
  void copy_in(void* to, const void* from_host, std::size_t bytes) override {
    check(cudaMemcpy(to, from_host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy to the device");
    // From pageable memory it may return before the bytes have arrived, and the stream of the calls does not wait for
    // it.
    check(cudaStreamSynchronize(nullptr), "cudaMemcpy to the device");
  }
  void copy_out(void* to_host, const void* from, std::size_t bytes) override {
    check(cudaMemcpy(to_host, from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy from the device");
  }
  void synchronize() override {
    // A launch that was refused is kept as the last error and does not show in the synchronisation.
    check(cudaGetLastError(), "kernel launch");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  Stream* stream() override { return &stream_of_calls(); }
  std::string probe() override {
    if (const cudaError_t pending = cudaGetLastError(); pending != cudaSuccess) {
      return fmt::format("it left a pending error: {} ({})", cudaGetErrorString(pending), cudaGetErrorName(pending));
    }
    constexpr std::uint32_t kCount = 256;
    std::uint32_t found = 0;
    void* sum = allocate(sizeof(found));
    const cudaError_t launched = launch_probe(static_cast<std::uint32_t*>(sum), kCount);
    const cudaError_t copied = cudaMemcpy(&found, sum, sizeof(found), cudaMemcpyDeviceToHost);
    release(sum);
    check(launched, "a probe kernel after the call");
    check(copied, "a probe kernel after the call");
    const std::uint32_t expected = kCount * (kCount - 1) / 2;
    return found == expected ? "" : fmt::format("a kernel after it computed {}, expected is {}", found, expected);
  }

 private:
  Stream& stream_of_calls() {
    if (!stream_) stream_ = std::make_unique<CudaStream>();
    return *stream_;
  }
  std::unique_ptr<CudaStream> stream_;
};

}  // namespace

std::unique_ptr<Memory> device_memory() {
  return std::make_unique<CudaMemory>();
}

}  // namespace samebits::harness
