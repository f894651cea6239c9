// The elementwise functions on the device, over all 2^32 inputs: recorded hashes of their bits.
#include <gtest/gtest.h>

#include "kernels/cuda/elementwise.cuh"
#include "kernels/test_cuda/device_array.h"

namespace samebits::cuda::test {
namespace {

__device__ std::uint64_t mix(std::uint64_t z) {  // SplitMix64
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

struct Exp {
  static __device__ float at(float x) { return exp_of(x); }
};
struct Sigmoid {
  static __device__ float at(float x) { return sigmoid_of(x); }
};
struct Softplus {
  static __device__ float at(float x) { return softplus_of(x); }
};
struct SqrtSoftplus {
  static __device__ float at(float x) { return sqrt_softplus_of(x); }
};
struct NearSigmoid {
  static __device__ float at(float x) { return is_near(x) ? near_sigmoid_of(x) : sigmoid_of(x); }
};
struct NearSqrtSoftplus {
  static __device__ float at(float x) { return is_near(x) ? near_sqrt_softplus_of(x) : sqrt_softplus_of(x); }
};
struct Tanh {
  static __device__ float at(float x) { return tanh_of(x); }
};
struct Log {
  static __device__ float at(float x) { return log_of(x); }
};
struct Log1p {
  static __device__ float at(float x) { return log1p_of(x); }
};
struct Rsqrt {
  static __device__ float at(float x) { return rsqrt_of(x); }
};

// *total += the hashes of (input bits, output bits) of all inputs. A sum of integers: any order gives the same.
template <class Function>
__global__ void hash_all(unsigned long long* total) {
  const std::uint64_t first = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  unsigned long long sum = 0;
  for (std::uint64_t bits = first; bits < std::uint64_t{1} << 32; bits += stride) {
    sum += mix(bits << 32 | to_bits(Function::at(from_bits(static_cast<std::uint32_t>(bits)))));
  }
  atomicAdd(total, sum);
}

template <class Function>
std::uint64_t hash_of() {
  DeviceArray<unsigned long long> total(std::vector<unsigned long long>{0});
  hash_all<Function><<<4096, 256>>>(total.data());
  check(cudaGetLastError(), "hash_all");
  return total.read()[0];
}

using ElementwiseSweep = DeviceTest;

// The totals that the CPU backend is held against.
TEST_F(ElementwiseSweep, RecordedBitsOfAllInputs) {
  EXPECT_EQ(hash_of<Exp>(), 0xd93c1df4b1c04372u);
  EXPECT_EQ(hash_of<Sigmoid>(), 0xba4b8da61b443969u);
  EXPECT_EQ(hash_of<NearSigmoid>(), 0xba4b8da61b443969u);
  EXPECT_EQ(hash_of<Softplus>(), 0x7603eb5ffd76a2d4u);
  EXPECT_EQ(hash_of<SqrtSoftplus>(), 0x3ab95435024e0534u);
  EXPECT_EQ(hash_of<NearSqrtSoftplus>(), 0x3ab95435024e0534u);
  EXPECT_EQ(hash_of<Tanh>(), 0xa24a1493d568d3e4u);
  EXPECT_EQ(hash_of<Log>(), 0x7c195c434f30c997u);
  EXPECT_EQ(hash_of<Log1p>(), 0xcd97ac654beed014u);
  EXPECT_EQ(hash_of<Rsqrt>(), 0x3a9b07632dcdc910u);
}

// All 2^16 values of bf16 widen, and all 2^32 of fp32 narrow, as an integer formula says.
__global__ void count_wrong_bf16(unsigned long long* wrong) {
  const std::uint64_t first = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t wide = first; wide < std::uint64_t{1} << 32; wide += stride) {
    const auto bits = static_cast<std::uint32_t>(wide);
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    // The two neighbours in bf16 are below and below + 1 (of a magnitude: Inf follows the largest number).
    const std::uint32_t below = bits >> 16, rest = bits & 0xffffu;
    const std::uint32_t nearest = rest > 0x8000u || (rest == 0x8000u && (below & 1u) != 0) ? below + 1 : below;
    const std::uint32_t narrow = float_to_bf16(from_bits(bits));
    bool right = narrow == (nan ? 0x7fffu : nearest);
    right = right && to_bits(round_to_bf16(from_bits(bits))) == (nan ? 0x7fffffffu : nearest << 16);
    if (!right) atomicAdd(wrong, 1ull);
  }
}

TEST_F(ElementwiseSweep, Bf16) {
  DeviceArray<unsigned long long> wrong(std::vector<unsigned long long>{0});
  count_wrong_bf16<<<4096, 256>>>(wrong.data());
  check(cudaGetLastError(), "count_wrong_bf16");
  EXPECT_EQ(wrong.read()[0], 0u);
}

}  // namespace
}  // namespace samebits::cuda::test
