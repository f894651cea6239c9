// Device memory and a stream through the CUDA runtime; compiled only where CUDA is.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <unordered_map>
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

// Device memory that is used again and again: a case allocates some twenty buffers a call, and giving one back to the
// driver waits for the device.
class DevicePool {
 public:
  DevicePool() = default;
  ~DevicePool() { free_unused(); }
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  void* take(std::size_t bytes) {
    const std::size_t size = rounded(bytes);
    std::vector<void*>& unused = unused_[size];
    void* address = nullptr;
    if (unused.empty()) {
      if (cudaMalloc(&address, size) != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
        free_unused();
        check(cudaMalloc(&address, size), "cudaMalloc");
      }
    } else {
      address = unused.back();
      unused.pop_back();
      unused_bytes_ -= size;
    }
    sizes_[address] = size;
    return address;
  }
  // After a fault every call fails; the process ends soon and the driver frees the memory.
  void give_back(void* address) noexcept {
    const auto found = sizes_.find(address);
    if (found == sizes_.end()) return;
    const std::size_t size = found->second;
    sizes_.erase(found);
    if (unused_bytes_ + size > kMostUnusedBytes) {
      static_cast<void>(cudaFree(address));
      return;
    }
    unused_[size].push_back(address);
    unused_bytes_ += size;
  }

 private:
  static constexpr std::size_t kMostUnusedBytes = std::size_t{1} << 30;

  // To four sizes between two powers of two, so that buffers of about one size take each other's place.
  static std::size_t rounded(std::size_t bytes) {
    const std::size_t step = std::max<std::size_t>(512, std::bit_floor(bytes) / 4);
    return (bytes + step - 1) / step * step;
  }
  void free_unused() noexcept {
    for (const auto& [size, addresses] : unused_) {
      for (void* address : addresses) static_cast<void>(cudaFree(address));
    }
    unused_.clear();
    unused_bytes_ = 0;
  }

  std::map<std::size_t, std::vector<void*>> unused_;
  std::unordered_map<void*, std::size_t> sizes_;  // of what is taken
  std::size_t unused_bytes_ = 0;
};

// Page-locked host memory through which copies go without being waited for one by one.
class Staging {
 public:
  Staging() { check(cudaMallocHost(reinterpret_cast<void**>(&base_), kBytes), "cudaMallocHost"); }
  ~Staging() { static_cast<void>(cudaFreeHost(base_)); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  void copy_in(void* to, const void* from_host, std::size_t bytes) {
    if (bytes > kBytes) {
      check(cudaMemcpy(to, from_host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy to the device");
      used_ = kBytes;  // from pageable memory it may return before the bytes have arrived
      return;
    }
    if (bytes > kBytes - used_) settle();
    std::memcpy(base_ + used_, from_host, bytes);
    check(cudaMemcpyAsync(to, base_ + used_, bytes, cudaMemcpyHostToDevice, nullptr), "cudaMemcpyAsync to the device");
    used_ += bytes;
  }
  void copy_out(std::span<const Memory::CopyOut> copies) {
    settle();
    std::size_t first = 0;  // of those that are on their way
    const auto finish = [&](std::size_t end) {
      check(cudaStreamSynchronize(nullptr), "cudaMemcpyAsync from the device");
      for (std::size_t at = 0; first < end; at += copies[first++].bytes) {
        std::memcpy(copies[first].to_host, base_ + at, copies[first].bytes);
      }
      used_ = 0;
    };
    for (std::size_t i = 0; i < copies.size(); ++i) {
      const Memory::CopyOut& copy = copies[i];
      if (copy.bytes > kBytes - used_) finish(i);
      if (copy.bytes > kBytes) {
        check(cudaMemcpy(copy.to_host, copy.from, copy.bytes, cudaMemcpyDeviceToHost), "cudaMemcpy from the device");
        first = i + 1;
        continue;
      }
      check(cudaMemcpyAsync(base_ + used_, copy.from, copy.bytes, cudaMemcpyDeviceToHost, nullptr),
            "cudaMemcpyAsync from the device");
      used_ += copy.bytes;
    }
    finish(copies.size());
  }
  // The stream of the calls does not wait for the copies.
  void settle() {
    if (used_ == 0) return;
    check(cudaStreamSynchronize(nullptr), "copies to the device");
    used_ = 0;
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{8} << 20;
  std::byte* base_ = nullptr;
  std::size_t used_ = 0;
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
  void* allocate(std::size_t bytes) override { return pool_.take(bytes); }
  void release(void* address) noexcept override { pool_.give_back(address); }
  void copy_in(void* to, const void* from_host, std::size_t bytes) override { staging().copy_in(to, from_host, bytes); }
  void copy_out(std::span<const CopyOut> copies) override { staging().copy_out(copies); }
  void settle() override {
    if (staging_) staging_->settle();
  }
  void synchronize() override {
    settle();
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
  Staging& staging() {  // made once there is a context
    if (!staging_) staging_ = std::make_unique<Staging>();
    return *staging_;
  }
  Stream& stream_of_calls() {
    if (!stream_) stream_ = std::make_unique<CudaStream>();
    return *stream_;
  }
  DevicePool pool_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<CudaStream> stream_;
};

}  // namespace

std::unique_ptr<Memory> device_memory() {
  return std::make_unique<CudaMemory>();
}

}  // namespace samebits::harness
