// Rows on the device: made, gathered and compared there, because the host would be too slow.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/plan/plan.h"

namespace samebits::cuda::test {

// Row i of a batch is row (first + i * step) mod pool_rows of a pool. first and step are not negative; a step that has
// no factor with pool_rows in common takes every row once before it repeats one.
struct RowOrder {
  std::int64_t first, step, pool_rows;

  SAMEBITS_HOST_DEVICE std::int64_t operator()(std::int64_t i) const { return (first + i * step) % pool_rows; }
};

// All of these launch one kernel on the stream and throw std::runtime_error where that fails. Matrices are dense.

// batch[i] = pool[order(i)], rows of `width` 16-bit words.
void gather_rows(const void* pool, const RowOrder& order, std::int64_t num_rows, std::int64_t width, void* batch,
                 cudaStream_t stream);

// Adds to *count the 32-bit words of found[i], 0 <= i < num_rows, that differ from those of wanted[order(i)].
void count_different(const void* found, const void* wanted, const RowOrder& order, std::int64_t num_rows,
                     std::int64_t width, std::uint64_t* count, cudaStream_t stream);

// Adds to *count the 32-bit words that are not `value`.
void count_other(const void* found, std::uint32_t value, std::int64_t num_words, std::uint64_t* count,
                 cudaStream_t stream);

// Rows [first, first + num_rows) of an endless matrix of hidden states, of kNumRowFamilies kinds in turn: normal values
// mostly; wide exponents, cancelling pairs, subnormals, zeros beside huge values, overflow, NaN and Inf, constants.
inline constexpr int kNumRowFamilies = 16;
void make_rows(std::uint64_t seed, std::int64_t first, std::int64_t num_rows, std::int64_t width, std::uint16_t* rows,
               cudaStream_t stream);

// sums [n][num_sums][width], added left to right: folded [n][width].
void fold_sums(const float* sums, std::int32_t num_sums, std::int64_t num_rows, std::int64_t width, float* folded,
               cudaStream_t stream);

// Takes all the shared memory of the `num_multiprocessors` of the device, but of kLeftMultiprocessors on which a
// cluster of thread blocks can run, until *release is not 0, 30 seconds at most. Each block adds 1 to *started when it
// runs, and each that holds adds 1 to *ended when it ends. The three lie in mapped host memory. Synchronises the stream
// first.
constexpr int kLeftMultiprocessors = 4;
void hold_multiprocessors(int num_multiprocessors, std::int32_t* started, const std::int32_t* release,
                          std::int32_t* ended, cudaStream_t stream);

}  // namespace samebits::cuda::test
