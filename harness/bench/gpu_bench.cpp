#include "harness/backend/backend.h"
#include "harness/bench/bench.h"

#ifdef SAMEBITS_HAVE_CUDA
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include "harness/bench/front_bench.h"
#include "kernels/bench/gpu_kernels.h"
#include "kernels/bench/gpu_timer.h"

namespace samebits::harness {
namespace {

using bench::check;
using bench::TimedGraph;

constexpr int kWarmUps = 8;  // replays of every graph before the first that counts
// Threads of a block and 16-byte loads of a thread; the best of them is the floor.
constexpr struct { int threads, loads; } kFloorReads[] = {{512, 1}, {256, 2}, {512, 4}, {1024, 2}};

class GpuBench final : public Bench {
 public:
  GpuBench(const AbiTable& table, const BenchPlan& plan, const std::filesystem::path& library)
      : table_(table), plan_(plan), clock_(bench::GpuClock::Source::kCuptiElseEvents) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    cudaDeviceProp device{};
    check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
    context = {{"gpu", device.name},
               {"multiprocessors", std::to_string(device.multiProcessorCount)},
               {"clock", clock_.method()},
               {"router", describe(table).name},
               {"time", "cold: L2 flushed by 256 MiB of stores; warm_us: again at once"}};
    add("empty/1x32", "", false, [](cudaStream_t stream) { check(bench::launch_empty(1, 32, stream), "empty"); });
    add(fmt::format("empty/{}x512", device.multiProcessorCount), "", false,
        [blocks = device.multiProcessorCount](cudaStream_t stream) {
          check(bench::launch_empty(blocks, 512, stream), "empty");
        });
    for (const BenchSpec& spec : plan.specs) {
      try {
        add_spec(spec, library);
      } catch (const BenchError& refusal) {
        refusals.push_back(fmt::format("{}: {}", spec.name, refusal.what()));
      }
    }
    for (const auto& graph : graphs_) {
      for (int i = 0; i < kWarmUps; ++i) graph->replay();
    }
  }
  ~GpuBench() override { cudaStreamDestroy(stream_); }

 private:
  const char* clock_label() const { return clock_.has_cupti() ? "" : " (CUDA events)"; }

  void add(const std::string& name, const std::string& group, bool is_floor, const TimedGraph::Work& work,
           const std::string& label = "") {
    TimedGraph* graph =
        graphs_.emplace_back(std::make_unique<TimedGraph>(clock_, flush_.as<void>(), stream_, work)).get();
    measurements.push_back({name, group, is_floor, (label.empty() ? name : label) + clock_label(), [graph] {
                              const TimedGraph::Times times = graph->replay();
                              bench::Sample sample{times.cold.span_us, {{"warm_us", times.warm.span_us}}};
                              for (const auto& [kernel, us] : times.cold.kernels) {
                                sample.details.emplace_back("kernel_us:" + kernel, us);
                              }
                              return sample;
                            }});
  }

  void add_floors(const std::string& group, const void* data, std::size_t bytes) {
    for (const auto& [threads, loads] : kFloorReads) {
      add(fmt::format("{}/floor/{}x{}", group, threads, loads), group, true,
          [this, data, bytes, threads = threads, loads = loads](cudaStream_t stream) {
            check(bench::launch_read_once(data, bytes, threads, loads, sink_.as<void>(), stream), "read");
          });
    }
  }

  void add_cell(const std::string& spec, const std::string& group, std::int64_t rows, const std::string& column,
                const std::string& label, const TimedGraph::Work& work) {
    const std::string name = fmt::format("{}/rows:{}/{}", spec, rows, column);
    add(name, group, false, work, label);
    cells.push_back({spec, rows, column, name});
  }

  void add_spec(const BenchSpec& spec, const std::filesystem::path& library) {
    const std::int64_t max_rows = plan_.rows.back();
    auto made = std::make_unique<BenchRouter>(table_, spec, *memory_, max_rows);
    BenchRouter* router = made.get();
    routers_.push_back(std::move(made));
    const auto hidden_count = static_cast<std::size_t>(max_rows * router->spec().hidden_size);
    check(bench::launch_normal_bf16(router->hidden_states(), hidden_count, 1.0f, 1, stream_), "hidden states");
    const auto logits_count = static_cast<std::size_t>(max_rows * router->gate_rows());
    check(bench::launch_normal_fp32(router->given_logits(), logits_count, 1.0f, 2, stream_), "given logits");

    // Another kernel may serve a call for what it is to write.
    const std::vector<std::int64_t> rows = with_boundaries(plan_.rows, [&](std::int64_t count) {
      std::string kernels;
      for (const BenchOutputs outputs : plan_.outputs) kernels += router->route(count, outputs, stream_) + "\n";
      return kernels;
    });
    check(cudaStreamSynchronize(stream_), "the first calls");
    const samebits_tensor& weight = router->constants().gate_weight;
    add_floors(spec.name, weight.data, static_cast<std::size_t>(weight.rows * weight.cols) * 2);
    for (const std::int64_t count : rows) {
      for (const BenchOutputs outputs : plan_.outputs) {
        const std::string kernel = router->route(count, outputs, stream_);
        check(cudaStreamSynchronize(stream_), "a first call");
        add_cell(spec.name, spec.name, count, name_of(outputs), kernel,
                 [router, count, outputs](cudaStream_t stream) { router->route(count, outputs, stream); });
      }
    }
    if (library.empty() || spec.name != kFrontSpec) return;
    FrontBench* front = fronts_.emplace_back(std::make_unique<FrontBench>(library, *router, *memory_)).get();
    add_floors(front->name(), front->weights(), front->weight_bytes());
    for (const std::int64_t count : plan_.rows) {
      add_cell(front->name(), front->name(), count, "front", front->call(count, stream_),
               [front, count](cudaStream_t stream) { front->call(count, stream); });
      check(cudaStreamSynchronize(stream_), "a first call");
    }
  }

  const AbiTable& table_;
  const BenchPlan plan_;
  std::unique_ptr<Memory> memory_ = device_memory();
  bench::GpuClock clock_;
  bench::GpuBuffer flush_{bench::kFlushBytes}, sink_{64};
  cudaStream_t stream_ = nullptr;
  std::vector<std::unique_ptr<BenchRouter>> routers_;
  std::vector<std::unique_ptr<FrontBench>> fronts_;
  std::vector<std::unique_ptr<TimedGraph>> graphs_;
};

}  // namespace

std::unique_ptr<Bench> gpu_bench(const AbiTable& table, const BenchPlan& plan, const std::filesystem::path& library) {
  try {
    return std::make_unique<GpuBench>(table, plan, library);
  } catch (const DeviceFault& fault) {
    throw BackendError(fmt::format("no GPU can be used: {}", fault.what()));
  } catch (const bench::GpuError& error) {
    throw BackendError(fmt::format("the GPU: {}", error.what()));
  }
}

}  // namespace samebits::harness

#else

namespace samebits::harness {

std::unique_ptr<Bench> gpu_bench(const AbiTable&, const BenchPlan&, const std::filesystem::path&) {
  throw BackendError("this program was built without CUDA; build it where nvcc is found (-DSAMEBITS_CUDA=ON)");
}

}  // namespace samebits::harness

#endif
