// Rows that another kernel still writes when the router's first kernel may start.
#include "kernels/test_cuda/late_rows.h"

#include <gtest/gtest.h>

#include "kernels/test_cuda/row_pool.h"

namespace samebits::cuda::test {
namespace {

class LateRows : public DeviceTest {};

// H 4,096: the logits kernels read the rows themselves; H 40: they are copied first. With bookkeeping up to 16 rows of
// the first are one launch.
TEST_F(LateRows, AreWaitedFor) {
  constexpr std::int64_t kRowCounts[] = {1, 7, 12, 30, 200, 256, 257, 1000}, kMostRows = 1000;
  for (const samebits_router_spec& spec : {glm_spec(), cpu::test::sigmoid_bias_spec(40, 160, 6)}) {
    const PoolOfRows pool(spec, 7);
    const std::int64_t h = pool.hidden_size();
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    {
      Caller caller(pool.router(), kMostRows, stream);
      Answers answers(pool.router(), kMostRows);
      const Bookkeeping bookkeeping(pool.router(), kMostRows);
      const DeviceArray<std::uint16_t> batch(static_cast<std::size_t>(kMostRows * h));
      for (std::size_t i = 0; i < 2 * std::size(kRowCounts); ++i) {
        const std::int64_t num_rows = kRowCounts[i / 2];
        const Bookkeeping* wanted = i % 2 == 0 ? nullptr : &bookkeeping;
        const Mismatches mismatches;
        const RowOrder order{num_rows, 2, kPoolRows}, other{num_rows + 1, 2, kPoolRows};
        // Once with other rows: kernels are loaded at their first launch, which may wait for the device.
        gather_rows_late(pool.row(0), other, num_rows, h, batch.data(), stream);
        caller.route(batch.data(), num_rows, answers, 0, nullptr, {}, wanted);
        answers.poison(stream);
        check(cudaStreamSynchronize(stream), "other rows");
        gather_rows_late(pool.row(0), order, num_rows, h, batch.data(), stream);
        caller.route(batch.data(), num_rows, answers, 0, nullptr, {}, wanted);
        answers.compare(num_rows, pool.alone(), order, mismatches.get(), stream);
        check(cudaStreamSynchronize(stream), "late rows");
        EXPECT_EQ(mismatches.read(), 0u) << "32-bit words, H = " << h << ", T = " << num_rows << ", "
                                         << caller.kernel_name();
        if (h == 4096 && num_rows <= 16) {
          EXPECT_EQ(caller.kernel_name(), wanted == nullptr ? "cuda/tc256/decode" : "cuda/tc256/fused");
        }
      }
    }
    cudaStreamDestroy(stream);
  }
}

}  // namespace
}  // namespace samebits::cuda::test
