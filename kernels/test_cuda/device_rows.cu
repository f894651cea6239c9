#include "kernels/test_cuda/device_rows.h"

#include "kernels/test_cuda/device_array.h"

namespace samebits::cuda::test {
namespace {

constexpr int kThreads = 256;
constexpr unsigned long long kHoldNanoseconds = 30'000'000'000ull;

void check_launch(const char* what) {
  check(cudaGetLastError(), what);
}

__global__ void gather_rows_kernel(const std::uint16_t* pool, RowOrder order, std::int64_t width,
                                   std::uint16_t* batch) {
  const std::int64_t row = blockIdx.x;
  const std::uint16_t* from = pool + order(row) * width;
  std::uint16_t* to = batch + row * width;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) to[i] = from[i];
}

__device__ void add_failures(bool failed, std::uint64_t* count) {
  if (failed) atomicAdd(reinterpret_cast<unsigned long long*>(count), 1ull);
}

__global__ void count_different_kernel(const std::uint32_t* found, const std::uint32_t* wanted, RowOrder order,
                                       std::int64_t width, std::uint64_t* count) {
  const std::int64_t row = blockIdx.x;
  const std::uint32_t* found_row = found + row * width;
  const std::uint32_t* wanted_row = wanted + order(row) * width;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) add_failures(found_row[i] != wanted_row[i], count);
}

__global__ void count_other_kernel(const std::uint32_t* found, std::uint32_t value, std::int64_t num_words,
                                   std::uint64_t* count) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < num_words) add_failures(found[i] != value, count);
}

__device__ std::uint64_t mix(std::uint64_t z) {  // SplitMix64
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

__device__ std::uint16_t bf16_of(std::uint64_t sign, int exponent_field, std::uint64_t fraction) {
  return static_cast<std::uint16_t>((sign & 1) << 15 | static_cast<std::uint64_t>(exponent_field) << 7 |
                                    (fraction & 127));
}

// Sum of 4 uniforms: near enough to normal.
__device__ std::uint16_t normal_of(std::uint64_t bits) {
  float sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<float>((bits >> (16 * i)) & 0xffff) / 65536.0f - 0.5f;
  return static_cast<std::uint16_t>(__float_as_uint(sum * 1.7320508f) >> 16);
}

__device__ std::uint16_t value_of(std::uint64_t seed, std::int64_t row, std::int64_t column) {
  const std::uint64_t row_bits = mix(mix(seed) + static_cast<std::uint64_t>(row));
  const std::uint64_t bits = mix(row_bits + static_cast<std::uint64_t>(column));
  const std::uint64_t sign = bits >> 63, fraction = bits >> 40, choice = bits >> 48;
  const auto field = [&](int low, int count) { return low + static_cast<int>((bits >> 8) % count); };
  switch (row % kNumRowFamilies) {
    case 8:  // exponents over +-20
      return bf16_of(sign, field(107, 41), fraction);
    case 9: {  // pairs x, -x, some one ulp apart
      const std::uint64_t pair = mix(row_bits + static_cast<std::uint64_t>(column / 2));
      return bf16_of((pair >> 63) ^ (column & 1), 121 + static_cast<int>((pair >> 8) % 13),
                     (pair >> 40) ^ (choice % 4 == 0 ? 1 : 0));
    }
    case 10:  // subnormal
      return bf16_of(sign, choice % 8 == 0 ? 1 : 0, fraction);
    case 11:  // zeros of both signs, one value in 16 not zero, with any exponent
      return bf16_of(sign, choice % 16 == 0 ? field(1, 254) : 0, choice % 16 == 0 ? fraction : 0);
    case 12:  // sums around 2^128
      return bf16_of(sign, field(246, 9), fraction);
    case 13:  // one NaN or Inf in 1,024
      return choice % 1024 == 0 ? bf16_of(sign, 255, choice % 4096 == 0 ? 1 : 0) : normal_of(bits);
    case 14:  // one magnitude: many products of equal exponents
      return bf16_of(sign, 127, row_bits);
    case 15:  // every finite exponent
      return bf16_of(sign, field(0, 255), fraction);
    default:
      return normal_of(bits);
  }
}

__global__ void make_rows_kernel(std::uint64_t seed, std::int64_t first, std::int64_t width, std::uint16_t* rows) {
  const std::int64_t row = blockIdx.x;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) rows[row * width + i] = value_of(seed, first + row, i);
}

__global__ void fold_sums_kernel(const float* sums, std::int32_t num_sums, std::int64_t width, float* folded) {
  const std::int64_t row = blockIdx.x;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const float* column = sums + row * num_sums * width + i;
    float sum = column[0];
    for (std::int32_t p = 1; p < num_sums; ++p) sum = __fadd_rn(sum, column[p * width]);
    folded[row * width + i] = sum;
  }
}

struct Multiprocessors {
  std::uint32_t ids[kLeftMultiprocessors];
};

__device__ std::uint32_t own_multiprocessor() {
  std::uint32_t id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
}

__global__ void find_cluster_kernel(Multiprocessors* found) {
  found->ids[blockIdx.x] = own_multiprocessor();
}

// One block a multiprocessor: the first ones to run on those that are left stay until all have their place.
__global__ void hold_multiprocessors_kernel(std::int32_t* started, const volatile std::int32_t* release,
                                            std::int32_t* ended, const __grid_constant__ Multiprocessors left) {
  const auto now = [] {
    unsigned long long nanoseconds;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
    return nanoseconds;
  };
  const unsigned long long begin = now();
  atomicAdd_system(started, 1);
  bool leaves = false;  // this block
  for (const std::uint32_t id : left.ids) leaves = leaves || id == own_multiprocessor();
  const auto ends = [&] {
    return *release != 0 || now() - begin >= kHoldNanoseconds ||
           (leaves && *const_cast<const volatile std::int32_t*>(started) == static_cast<std::int32_t>(gridDim.x));
  };
  while (!ends()) {
  }
  if (!leaves) atomicAdd_system(ended, 1);
}

Multiprocessors multiprocessors_of_a_cluster(int shared_bytes, cudaStream_t stream) {
  const DeviceArray<Multiprocessors> found(1);
  cudaLaunchConfig_t config{};
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kLeftMultiprocessors, 1, 1};
  config.gridDim = dim3(kLeftMultiprocessors);
  config.blockDim = dim3(1);
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);  // a multiprocessor each
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  check(cudaFuncSetAttribute(find_cluster_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
        "cudaFuncSetAttribute");
  check(cudaLaunchKernelEx(&config, find_cluster_kernel, found.data()), "find_cluster");
  Multiprocessors ids{};
  check(cudaMemcpyAsync(&ids, found.data(), sizeof(ids), cudaMemcpyDeviceToHost, stream), "copy");
  check(cudaStreamSynchronize(stream), "find_cluster");
  return ids;
}

}  // namespace

void gather_rows(const void* pool, const RowOrder& order, std::int64_t num_rows, std::int64_t width, void* batch,
                 cudaStream_t stream) {
  const int threads = width < kThreads ? 32 : kThreads;
  gather_rows_kernel<<<static_cast<unsigned>(num_rows), threads, 0, stream>>>(
      static_cast<const std::uint16_t*>(pool), order, width, static_cast<std::uint16_t*>(batch));
  check_launch("gather_rows");
}

void count_different(const void* found, const void* wanted, const RowOrder& order, std::int64_t num_rows,
                     std::int64_t width, std::uint64_t* count, cudaStream_t stream) {
  if (num_rows == 0) return;
  const int threads = width < kThreads ? 32 : kThreads;
  count_different_kernel<<<static_cast<unsigned>(num_rows), threads, 0, stream>>>(
      static_cast<const std::uint32_t*>(found), static_cast<const std::uint32_t*>(wanted), order, width, count);
  check_launch("count_different");
}

void count_other(const void* found, std::uint32_t value, std::int64_t num_words, std::uint64_t* count,
                 cudaStream_t stream) {
  if (num_words == 0) return;
  count_other_kernel<<<static_cast<unsigned>(ceil_div(num_words, kThreads)), kThreads, 0, stream>>>(
      static_cast<const std::uint32_t*>(found), value, num_words, count);
  check_launch("count_other");
}

void make_rows(std::uint64_t seed, std::int64_t first, std::int64_t num_rows, std::int64_t width, std::uint16_t* rows,
               cudaStream_t stream) {
  make_rows_kernel<<<static_cast<unsigned>(num_rows), kThreads, 0, stream>>>(seed, first, width, rows);
  check_launch("make_rows");
}

void fold_sums(const float* sums, std::int32_t num_sums, std::int64_t num_rows, std::int64_t width, float* folded,
               cudaStream_t stream) {
  fold_sums_kernel<<<static_cast<unsigned>(num_rows), kThreads, 0, stream>>>(sums, num_sums, width, folded);
  check_launch("fold_sums");
}

void hold_multiprocessors(int num_multiprocessors, std::int32_t* started, const std::int32_t* release,
                          std::int32_t* ended, cudaStream_t stream) {
  int device = 0, shared_bytes = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute");
  check(cudaFuncSetAttribute(hold_multiprocessors_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
        "cudaFuncSetAttribute");
  const Multiprocessors left = multiprocessors_of_a_cluster(shared_bytes, stream);
  hold_multiprocessors_kernel<<<static_cast<unsigned>(num_multiprocessors), 1, static_cast<std::size_t>(shared_bytes),
                                stream>>>(started, release, ended, left);
  check_launch("hold_multiprocessors");
}

}  // namespace samebits::cuda::test
