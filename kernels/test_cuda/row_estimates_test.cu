// The estimates of keys against the contract's scores, over all logits.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "kernels/select/row_estimates.cuh"
#include "kernels/test_cuda/device_array.h"

namespace samebits::cuda::test {
namespace {

// A sigmoid is estimated as a key of this bias, as the key's estimate is 1/2 below it.
struct Sigmoid {
  static constexpr float kError = kSigmoidError;
  static __device__ bool serves(float) { return true; }
  static __device__ float estimate(float x) { return estimate_key<Lean::kSigmoid>(x, 0.5f); }
  static __device__ float exact(float x) { return sigmoid_of(x); }
};
struct NearSigmoid {
  static constexpr float kError = kNearSigmoidError;
  static __device__ bool serves(float) { return true; }
  static __device__ float estimate(float x) { return estimate_sigmoid(x); }
  static __device__ float exact(float x) { return sigmoid_of(x); }
};
struct SqrtSoftplus {
  static constexpr float kError = kSqrtSoftplusError;
  static __device__ bool serves(float x) { return x <= 88.0f; }  // beyond, estimates are Inf
  static __device__ float estimate(float x) { return estimate_sqrt_softplus(x); }
  static __device__ float exact(float x) { return sqrt_softplus_of(x); }
};

// *largest: bits of the largest difference of all logits but NaN. A difference that is NaN is above all.
template <class Score>
__global__ void find_largest(unsigned* largest) {
  const std::uint64_t first = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  unsigned mine = 0;
  for (std::uint64_t bits = first; bits < std::uint64_t{1} << 32; bits += stride) {
    const float x = from_bits(static_cast<std::uint32_t>(bits));
    if (is_nan(x) || !Score::serves(x)) continue;
    mine = max(mine, to_bits(magnitude(fsub(Score::estimate(x), Score::exact(x)))));
  }
  atomicMax(largest, mine);
}

template <class Score>
float largest_difference() {
  DeviceArray<unsigned> largest(std::vector<unsigned>{0});
  find_largest<Score><<<4096, 256>>>(largest.data());
  check(cudaGetLastError(), "find_largest");
  const unsigned bits = largest.read()[0];
  float value;
  static_assert(sizeof(value) == sizeof(bits));
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// With a quarter of what estimate_key allows for roundings, of scores up to 1; the difference is one itself.
template <class Score>
void expect_near(const char* name) {
  const float found = largest_difference<Score>();
  EXPECT_LT(found, Score::kError + 0x1p-23f) << name;
  EXPECT_GT(found, 0.0f) << name;
  ::testing::Test::RecordProperty(name, std::to_string(found / Score::kError));
  std::printf("%s: largest difference %g, %.3f of what is allowed\n", name, found, found / Score::kError);
}

using RowEstimates = DeviceTest;

TEST_F(RowEstimates, AreWithinTheirErrorsOfAllScores) {
  expect_near<Sigmoid>("sigmoid");
  expect_near<NearSigmoid>("near_sigmoid");
  expect_near<SqrtSoftplus>("sqrt_softplus");
}

}  // namespace
}  // namespace samebits::cuda::test
