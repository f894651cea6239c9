// How times are taken, for other languages: libsamebits_bench.so, which ci/gpu-bench-torch.py loads beside PyTorch, so
// that PyTorch's kernels and ours are measured in one process by one method. Every function returns 0, or -1 with a
// text in samebits_bench_error.
#include <cstdio>
#include <memory>
#include <string>

#include "kernels/bench/gpu_kernels.h"
#include "kernels/bench/gpu_timer.h"

#define SAMEBITS_BENCH_API extern "C" __attribute__((visibility("default")))

namespace {

using samebits::bench::GpuClock;
using samebits::bench::Marks;

std::unique_ptr<GpuClock> g_clock;
std::string g_error;

template <class Body>
int guarded(Body body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    g_error = error.what();
    return -1;
  }
}

cudaStream_t to_stream(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

}  // namespace

SAMEBITS_BENCH_API const char* samebits_bench_error() {
  return g_error.c_str();
}

// `events`: 1: CUDA events even where there is CUPTI. `method`: which it is. Marks of an earlier clock must be gone.
SAMEBITS_BENCH_API int samebits_bench_open(int events, char* method, std::size_t size) {
  return guarded([&] {
    g_clock.reset();
    g_clock = std::make_unique<GpuClock>(events != 0 ? GpuClock::Source::kEvents : GpuClock::Source::kCuptiElseEvents);
    std::snprintf(method, size, "%s", g_clock->method().c_str());
  });
}

SAMEBITS_BENCH_API int samebits_bench_make_marks(int count, void** marks) {
  return guarded([&] { *marks = new Marks(*g_clock, count); });
}
SAMEBITS_BENCH_API void samebits_bench_free_marks(void* marks) {
  delete static_cast<Marks*>(marks);
}
SAMEBITS_BENCH_API int samebits_bench_mark(void* marks, int index, void* stream) {
  return guarded([&] { static_cast<Marks*>(marks)->place(index, to_stream(stream)); });
}
SAMEBITS_BENCH_API int samebits_bench_forget(void* marks) {
  return guarded([&] { static_cast<Marks*>(marks)->forget_earlier_work(); });
}
// `us`: count - 1 spans.
SAMEBITS_BENCH_API int samebits_bench_read(void* marks, double* us) {
  return guarded([&] {
    for (const auto& segment : static_cast<Marks*>(marks)->read()) *us++ = segment.span_us;
  });
}

// `buffer`: 256 MiB.
SAMEBITS_BENCH_API int samebits_bench_flush(void* buffer, void* stream) {
  return guarded(
      [&] { samebits::bench::check(samebits::bench::launch_flush(buffer, to_stream(stream)), "launching the flush"); });
}
SAMEBITS_BENCH_API int samebits_bench_stand_in(const void* data, std::size_t bytes, void* sink, void* stream) {
  return guarded([&] {
    samebits::bench::check(samebits::bench::launch_stand_in(data, bytes, sink, to_stream(stream)), "stand-in");
  });
}
