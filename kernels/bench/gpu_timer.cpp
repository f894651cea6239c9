#include "kernels/bench/gpu_timer.h"

#include "kernels/bench/gpu_kernels.h"

namespace samebits::bench {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw GpuError(std::string(what) + ": " + cudaGetErrorString(status));
}

GpuClock::GpuClock(Source source) {
  check(cudaFree(nullptr), "creating the CUDA context");
  if (source == Source::kEvents) {
    method_ = "CUDA events";
    return;
  }
  try {
    cupti_.emplace();
    method_ = cupti_->version();
  } catch (const CuptiError& error) {
    cupti_.reset();
    method_ = std::string("CUDA events (") + error.what() + ")";
  }
}

Marks::Marks(GpuClock& clock, int count) : clock_(clock), count_(count) {
  if (clock.has_cupti()) return;
  events_.resize(static_cast<std::size_t>(count));
  for (cudaEvent_t& event : events_) check(cudaEventCreate(&event), "cudaEventCreate");
}

Marks::~Marks() {
  for (const cudaEvent_t event : events_) cudaEventDestroy(event);
}

void Marks::place(int index, cudaStream_t stream) {
  if (clock_.has_cupti()) {
    check(launch_mark(stream), "launching a mark");
  } else {
    check(cudaEventRecordWithFlags(events_.at(static_cast<std::size_t>(index)), stream, cudaEventRecordExternal),
          "cudaEventRecordWithFlags");
  }
}

void Marks::forget_earlier_work() {
  if (clock_.has_cupti()) clock_.cupti().take(0);
}

std::vector<Segment> Marks::read() {
  const auto marks = static_cast<std::size_t>(count_);
  if (clock_.has_cupti()) {
    const std::vector<Record> records = clock_.cupti().take(marks);
    if (const std::size_t found = count_marks(records); found != marks) {
      throw GpuError("CUPTI returned " + std::to_string(found) + " marks of " + std::to_string(count_));
    }
    return segments_of(records);
  }
  std::vector<Segment> segments(marks - 1);
  for (std::size_t i = 0; i + 1 < marks; ++i) {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, events_[i], events_[i + 1]), "cudaEventElapsedTime");
    segments[i].span_us = static_cast<double>(milliseconds) * 1e3;
  }
  return segments;
}

TimedGraph::TimedGraph(GpuClock& clock, void* flush_buffer, cudaStream_t stream, const Work& work)
    : marks_(clock, 3), stream_(stream) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    check(launch_flush(flush_buffer, stream), "launching the flush");
    marks_.place(0, stream);
    work(stream);
    marks_.place(1, stream);
    work(stream);
    marks_.place(2, stream);
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  const cudaError_t status = cudaGraphInstantiate(&graph_, graph, 0);
  cudaGraphDestroy(graph);
  check(status, "cudaGraphInstantiate");
}

TimedGraph::~TimedGraph() {
  if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
}

TimedGraph::Times TimedGraph::replay() {
  marks_.forget_earlier_work();
  check(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch");
  check(cudaStreamSynchronize(stream_), "waiting for a replay");
  std::vector<Segment> segments = marks_.read();
  return {std::move(segments.at(0)), std::move(segments.at(1))};
}

}  // namespace samebits::bench
