// Times of GPU work by the method of docs/kernels.md: one CUDA graph for each piece of work, cold and warm.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/bench/cupti.h"
#include "kernels/bench/records.h"

namespace samebits::bench {

class GpuError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
void check(cudaError_t status, const char* what);  // throws GpuError

// Uninitialised device memory.
class GpuBuffer {
 public:
  explicit GpuBuffer(std::size_t bytes) { check(cudaMalloc(&data_, bytes), "cudaMalloc"); }
  ~GpuBuffer() { cudaFree(data_); }
  GpuBuffer(const GpuBuffer&) = delete;
  GpuBuffer& operator=(const GpuBuffer&) = delete;
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

// Where times come from: CUPTI's records, or CUDA events in the graph where there is no CUPTI. Events also measure what
// lies between them and the kernels, about a microsecond more.
class GpuClock {
 public:
  enum class Source { kCuptiElseEvents, kEvents };
  explicit GpuClock(Source source);  // on the current device; throws GpuError where there is none

  bool has_cupti() const { return cupti_.has_value(); }
  const std::string& method() const { return method_; }  // "CUPTI 130001", or "CUDA events (reason)"
  Cupti& cupti() { return *cupti_; }

 private:
  std::optional<Cupti> cupti_;
  std::string method_;
};

// The marks of one graph, which bound its segments.
class Marks {
 public:
  Marks(GpuClock& clock, int count);
  ~Marks();
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;

  void place(int index, cudaStream_t stream);  // while the graph is captured, 0 .. count - 1 in this order
  void forget_earlier_work();                  // before a replay: records of other work
  // After a replay, waited for: the count - 1 segments. Kernels are known from CUPTI alone. Throws GpuError when CUPTI
  // lost a record.
  std::vector<Segment> read();

 private:
  GpuClock& clock_;
  int count_;
  std::vector<cudaEvent_t> events_;
};

// [flush] [mark] work [mark] work [mark]: the first run finds nothing in L2, the second what the first left there.
class TimedGraph {
 public:
  using Work = std::function<void(cudaStream_t)>;
  TimedGraph(GpuClock& clock, void* flush_buffer, cudaStream_t stream, const Work& work);
  ~TimedGraph();
  TimedGraph(const TimedGraph&) = delete;
  TimedGraph& operator=(const TimedGraph&) = delete;

  struct Times {
    Segment cold, warm;
  };
  Times replay();

 private:
  Marks marks_;
  cudaStream_t stream_;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace samebits::bench
