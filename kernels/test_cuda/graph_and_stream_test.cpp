// Equal bits where calls are replayed from a graph, and where two routers run beside a kernel that holds most of the
// device.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/test_cuda/row_pool.h"

namespace samebits::cuda::test {
namespace {

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Graph {
 public:
  // What `body` does on the stream.
  template <class Body>
  Graph(cudaStream_t stream, Body body) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    body();
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    const cudaError_t instantiated = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    check(instantiated, "cudaGraphInstantiate");
  }
  ~Graph() { cudaGraphExecDestroy(graph_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(cudaStream_t stream) const { check(cudaGraphLaunch(graph_, stream), "cudaGraphLaunch"); }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

class GraphReplay : public DeviceTest {};

// Each graph is replayed with other rows and another number of valid rows; rows from there on are padding. Every other
// one does the bookkeeping, too.
TEST_F(GraphReplay, OtherContentsAndOtherValidRows) {
  constexpr std::int64_t kRowCounts[] = {1, 7, 64, 256, 257, 1000, 8193};
  for (const samebits_router_spec& spec : {glm_spec(), cpu::test::sigmoid_bias_spec(40, 160, 6)}) {
    const PoolOfRows pool(spec, 4);
    const std::int64_t h = pool.hidden_size();
    const Stream stream;
    Caller caller(pool.router(), kPoolRows, stream.get());
    Answers answers(pool.router(), kPoolRows);
    const Bookkeeping bookkeeping(pool.router(), kPoolRows);
    const DeviceArray<std::uint16_t> batch(static_cast<std::size_t>(kPoolRows * h));
    const DeviceArray<std::int32_t> num_valid_rows(1);
    const Mismatches mismatches;
    std::int64_t replays = 0, rows = 0;
    for (const std::int64_t num_rows : kRowCounts) {
      for (const bool bookkeeps : {false, true}) {
        const Graph graph(stream.get(), [&] {
          caller.route(batch.data(), num_rows, answers, 0, num_valid_rows.data(), {},
                       bookkeeps ? &bookkeeping : nullptr);
        });
        for (const std::int64_t valid : {num_rows, num_rows / 2, std::int64_t{0}, num_rows - 1, num_rows}) {
          const RowOrder order{1000 * ++replays, 2, kPoolRows};
          gather_rows(pool.row(0), order, num_rows, h, batch.data(), stream.get());
          const auto valid32 = static_cast<std::int32_t>(valid);
          check(cudaMemcpyAsync(num_valid_rows.data(), &valid32, sizeof(valid32), cudaMemcpyHostToDevice, stream.get()),
                "copy");
          answers.poison(stream.get());
          bookkeeping.poison(stream.get());
          caller.poison_workspace();
          graph.launch(stream.get());
          answers.compare_rows(valid, pool.alone(), order, mismatches.get(), stream.get());
          answers.compare_padding(valid, num_rows, mismatches.get(), stream.get());
          const std::string what = "T = " + std::to_string(num_rows) + ", valid " + std::to_string(valid);
          if (bookkeeps) bookkeeping.expect_that_of(answers, num_rows, what, stream.get());
          rows += num_rows;
        }
        check(cudaStreamSynchronize(stream.get()), "replays");
      }
    }
    EXPECT_EQ(mismatches.read(), 0u) << "32-bit words of " << rows << " rows";
    std::printf("  H %lld: %lld replays of %zu graphs, %lld rows\n", static_cast<long long>(h),
                static_cast<long long>(replays), 2 * std::size(kRowCounts), static_cast<long long>(rows));
  }
}

// Host memory that the device sees.
class MappedInts {
 public:
  explicit MappedInts(std::size_t n) {
    check(cudaHostAlloc(reinterpret_cast<void**>(&values_), n * sizeof(std::int32_t), cudaHostAllocMapped),
          "cudaHostAlloc");
    std::fill_n(values_, n, 0);
  }
  ~MappedInts() { cudaFreeHost(values_); }
  MappedInts(const MappedInts&) = delete;
  MappedInts& operator=(const MappedInts&) = delete;
  volatile std::int32_t& operator[](std::size_t i) const { return values_[i]; }
  std::int32_t* at(std::size_t i) const { return values_ + i; }

 private:
  std::int32_t* values_ = nullptr;
};

template <class Condition>
bool wait_until(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

// A router on a stream of its own: batches of several row counts, each with answers of its own, and in every other
// repeat with the bookkeeping.
class Lane {
 public:
  Lane(const PoolOfRows& pool, std::int64_t offset) : pool_(pool), caller_(pool.router(), kMostRows, stream_.get()) {
    for (const std::int64_t num_rows : {std::int64_t{1}, std::int64_t{64}, std::int64_t{256}, std::int64_t{257},
                                        std::int64_t{2048}, kMostRows, std::int64_t{5}}) {
      const RowOrder order{offset + num_rows, 5, kPoolRows};
      batches_.push_back(std::make_unique<Batch>(pool, num_rows, order));
      gather_rows(pool.row(0), order, num_rows, pool.hidden_size(), batches_.back()->rows.data(), nullptr);
    }
    check(cudaDeviceSynchronize(), "gathering rows");
  }

  void route(int repeats) {
    for (const auto& batch : batches_) {
      batch->answers.poison(stream_.get());
      batch->bookkeeping.poison(stream_.get());
    }
    for (int i = 0; i < repeats; ++i) {
      for (const auto& batch : batches_) {
        caller_.route(batch->rows.data(), batch->num_rows, batch->answers, 0, nullptr, {},
                      i % 2 == 0 ? &batch->bookkeeping : nullptr);
      }
    }
  }
  bool finished() const { return cudaStreamQuery(stream_.get()) == cudaSuccess; }
  void compare(const Mismatches& mismatches) const {
    for (const auto& batch : batches_)
      batch->answers.compare(batch->num_rows, pool_.alone(), batch->order, mismatches.get(), stream_.get());
  }
  void expect_bookkept() const {
    for (const auto& batch : batches_) {
      batch->bookkeeping.expect_that_of(batch->answers, batch->num_rows, "T = " + std::to_string(batch->num_rows),
                                        stream_.get());
    }
  }

 private:
  static constexpr std::int64_t kMostRows = 4096;  // whose bookkeeping has tiles; that of 2,048 rows has clusters

  struct Batch {
    Batch(const PoolOfRows& pool, std::int64_t n, const RowOrder& row_order)
        : num_rows(n),
          order(row_order),
          rows(static_cast<std::size_t>(n * pool.hidden_size())),
          answers(pool.router(), n),
          bookkeeping(pool.router(), n) {}
    std::int64_t num_rows;
    RowOrder order;
    DeviceArray<std::uint16_t> rows;
    Answers answers;
    Bookkeeping bookkeeping;
  };
  const PoolOfRows& pool_;
  Stream stream_;
  Caller caller_;
  std::vector<std::unique_ptr<Batch>> batches_;
};

class TwoStreams : public DeviceTest {};

// The third kernel takes the shared memory of all multiprocessors but four until both routers have finished: a router
// whose blocks waited for blocks that cannot run beside them would not finish. The four have room for a cluster, which
// starts as a whole.
TEST_F(TwoStreams, FinishBesideAKernelThatHoldsTheDevice) {
  constexpr int kRepeats = 20;
  const PoolOfRows glm(glm_spec(), 5), small(cpu::test::sigmoid_bias_spec(40, 160, 6), 6);
  Lane first(glm, 100), second(small, 200);
  const Stream holder;
  const MappedInts flags(3);  // started, release, ended
  const Mismatches mismatches;
  int device = 0, multiprocessors = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  const int held = multiprocessors - kLeftMultiprocessors;

  // Once without the third kernel: kernels are loaded at their first launch, which may wait for the device.
  flags[1] = 1;
  hold_multiprocessors(multiprocessors, flags.at(0), flags.at(1), flags.at(2), holder.get());
  first.route(2);
  second.route(2);
  check(cudaDeviceSynchronize(), "warm-up");
  for (const std::size_t flag : {0, 1, 2}) flags[flag] = 0;

  hold_multiprocessors(multiprocessors, flags.at(0), flags.at(1), flags.at(2), holder.get());
  EXPECT_TRUE(wait_until([&] { return flags[0] == multiprocessors; })) << flags[0] << " blocks started";
  first.route(kRepeats);
  second.route(kRepeats);
  EXPECT_TRUE(wait_until([&] { return first.finished() && second.finished(); })) << "the routers did not finish";
  EXPECT_EQ(flags[2], 0) << "blocks of the third kernel ended before the routers";
  flags[1] = 1;
  check(cudaDeviceSynchronize(), "two streams");
  EXPECT_EQ(flags[2], held);
  first.compare(mismatches);
  second.compare(mismatches);
  check(cudaDeviceSynchronize(), "comparison");
  EXPECT_EQ(mismatches.read(), 0u);
  first.expect_bookkept();
  second.expect_bookkept();
  std::printf("  two routers of %d x 7 calls each, %d of %d multiprocessors held\n", kRepeats, held, multiprocessors);
}

}  // namespace
}  // namespace samebits::cuda::test
