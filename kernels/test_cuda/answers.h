// Calls of a router of libsamebits_cuda.so whose answers stay on the device and are compared there.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "kernels/test_cuda/device_array.h"
#include "kernels/test_cuda/device_router.h"
#include "kernels/test_cuda/device_rows.h"

namespace samebits::cuda::test {

// Ids [n][K], weights [n][K] and logits [n][G] on the device, and one row more that no call may write.
class Answers {
 public:
  Answers(const DeviceRouter& router, std::int64_t num_rows);

  std::int64_t num_rows() const { return num_rows_; }
  void poison(cudaStream_t stream);
  std::int32_t* ids(std::int64_t row) const { return ids_.data() + row * columns_; }
  float* weights(std::int64_t row) const { return weights_.data() + row * columns_; }
  float* logits(std::int64_t row) const { return logits_.data() + row * gate_rows_; }

  // Adds to the count how many words of rows [0, n) are not those of `alone` in that order.
  void compare_rows(std::int64_t n, const Answers& alone, const RowOrder& order, std::uint64_t* count,
                    cudaStream_t stream) const;
  // The same, and how many words of row n are no poison.
  void compare(std::int64_t n, const Answers& alone, const RowOrder& order, std::uint64_t* count,
               cudaStream_t stream) const;
  // Adds how many words of rows [first, end) are not those of padding rows, and of row `end` no poison.
  void compare_padding(std::int64_t first, std::int64_t end, std::uint64_t* count, cudaStream_t stream) const;

 private:
  void compare_poison(std::int64_t row, std::uint64_t* count, cudaStream_t stream) const;

  std::int64_t num_rows_, columns_, gate_rows_;
  DeviceArray<std::int32_t> ids_;
  DeviceArray<float> weights_, logits_;
};

// What a call says about its rows beside their hidden states, on the device; null: absent.
struct RowInfo {
  const std::int32_t* token_ids = nullptr;
  const std::int32_t* row_class = nullptr;
};

// The bookkeeping of up to num_rows rows on the device: slots of each expert, and where each slot lies among them.
class Bookkeeping {
 public:
  Bookkeeping(const DeviceRouter& router, std::int64_t num_rows);

  void poison(cudaStream_t stream) const;
  void ask_for(samebits_outputs& outputs) const;
  // That it is what the ids of the first n rows of these answers say; `what`: which call. Waits for the stream.
  void expect_that_of(const Answers& answers, std::int64_t n, const std::string& what, cudaStream_t stream) const;

 private:
  std::int64_t columns_, gate_rows_;
  DeviceArray<std::int32_t> tokens_per_expert_, position_of_slot_;
};

// Calls of one router on one stream, in one workspace.
class Caller {
 public:
  Caller(const DeviceRouter& router, std::int64_t max_rows, cudaStream_t stream);

  cudaStream_t stream() const { return stream_; }
  // Everything but the header, on the stream.
  void poison_workspace();
  // rows [n][H] of bf16 values; row i of the answer goes to row first_answer + i. bookkeeping: null: not wanted.
  void route(const std::uint16_t* rows, std::int64_t num_rows, const Answers& answers, std::int64_t first_answer = 0,
             const std::int32_t* num_valid_rows = nullptr, const RowInfo& info = {},
             const Bookkeeping* bookkeeping = nullptr);
  const std::string& kernel_name() const { return kernel_name_; }  // of the last call

 private:
  const DeviceRouter& router_;
  cudaStream_t stream_;
  DeviceArray<unsigned char> workspace_;
  std::string kernel_name_;
};

}  // namespace samebits::cuda::test
