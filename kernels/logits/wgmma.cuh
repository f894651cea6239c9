// wgmma of sm_90a: 64 rows times N experts times one step of 16 columns, bf16 operands in shared memory, fp32
// accumulators in the registers of a warpgroup (128 threads). One step of it is one STEP of the contract.
//
// Accumulators of a thread: d[4 j + 2 h + i] is row 16 (warp % 4) + lane / 4 + 8 h, expert 8 j + 2 (lane % 4) + i.
#pragma once

#include <cstdint>

namespace samebits::cuda {

// An operand in shared memory: lines of 64 columns (128 bytes) under the 128-byte swizzle, 8 lines after 8 lines, the
// first at a multiple of 1,024 bytes. Fields: address / 16; the leading offset, without meaning here; the distance of
// groups of 8 lines / 16; the kind of swizzle.
__device__ __forceinline__ std::uint64_t operand_descriptor(std::uint32_t shared_address) {
  return std::uint64_t{(shared_address & 0x3ffff) >> 4} | std::uint64_t{1} << 16 | std::uint64_t{1024 >> 4} << 32 |
         std::uint64_t{1} << 62;
}
inline constexpr std::uint64_t kStepOfDescriptor = 32 >> 4;  // to the next 16 columns of the same lines

// d = step(accumulate ? d : +0, a, b), asynchronously: d is defined after wait_for_wgmma. N is twice the size of d.
#define SAMEBITS_TEN(tens)                                                                                          \
  "%" #tens "0, %" #tens "1, %" #tens "2, %" #tens "3, %" #tens "4, %" #tens "5, %" #tens "6, %" #tens "7, %" #tens \
  "8, %" #tens "9, "
#define SAMEBITS_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SAMEBITS_D8(i) SAMEBITS_D4(i), SAMEBITS_D4(i + 4)
#define SAMEBITS_D32(i) SAMEBITS_D8(i), SAMEBITS_D8(i + 8), SAMEBITS_D8(i + 16), SAMEBITS_D8(i + 24)
// names: "%0, %1, ..." of the accumulators, then the numbers of the three operands after them.
#define SAMEBITS_WGMMA(N, names, a_name, b_name, accumulate_name, ...)                                              \
  __device__ __forceinline__ void wgmma(float(&d)[N / 2], std::uint64_t a, std::uint64_t b, bool accumulate) {      \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #accumulate_name ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N \
                 "k16.f32.bf16.bf16 {" names "}, %" #a_name ", %" #b_name ", p, 1, 1, 0, 0;\n}\n"                   \
                 : __VA_ARGS__                                                                                      \
                 : "l"(a), "l"(b), "r"(std::int32_t{accumulate}));                                                  \
  }

SAMEBITS_WGMMA(16, "%0, %1, %2, %3, %4, %5, %6, %7", 8, 9, 10, SAMEBITS_D8(0))
SAMEBITS_WGMMA(24, SAMEBITS_TEN() "%10, %11", 12, 13, 14, SAMEBITS_D8(0), SAMEBITS_D4(8))
SAMEBITS_WGMMA(32, SAMEBITS_TEN() "%10, %11, %12, %13, %14, %15", 16, 17, 18, SAMEBITS_D8(0), SAMEBITS_D8(8))
SAMEBITS_WGMMA(40, SAMEBITS_TEN() "%10, %11, %12, %13, %14, %15, %16, %17, %18, %19", 20, 21, 22, SAMEBITS_D8(0),
               SAMEBITS_D8(8), SAMEBITS_D4(16))
SAMEBITS_WGMMA(48, SAMEBITS_TEN() SAMEBITS_TEN(1) "%20, %21, %22, %23", 24, 25, 26, SAMEBITS_D8(0), SAMEBITS_D8(8),
               SAMEBITS_D8(16))
SAMEBITS_WGMMA(64, SAMEBITS_TEN() SAMEBITS_TEN(1) SAMEBITS_TEN(2) "%30, %31", 32, 33, 34, SAMEBITS_D32(0))
SAMEBITS_WGMMA(72, SAMEBITS_TEN() SAMEBITS_TEN(1) SAMEBITS_TEN(2) "%30, %31, %32, %33, %34, %35", 36, 37, 38,
               SAMEBITS_D32(0), SAMEBITS_D4(32))
SAMEBITS_WGMMA(96,
               SAMEBITS_TEN() SAMEBITS_TEN(1) SAMEBITS_TEN(2) SAMEBITS_TEN(3) "%40, %41, %42, %43, %44, %45, %46, %47",
               48, 49, 50, SAMEBITS_D32(0), SAMEBITS_D8(32), SAMEBITS_D8(40))
SAMEBITS_WGMMA(112,
               SAMEBITS_TEN() SAMEBITS_TEN(1) SAMEBITS_TEN(2) SAMEBITS_TEN(3)
                   SAMEBITS_TEN(4) "%50, %51, %52, %53, %54, %55",
               56, 57, 58, SAMEBITS_D32(0), SAMEBITS_D8(32), SAMEBITS_D8(40), SAMEBITS_D8(48))
SAMEBITS_WGMMA(128,
               SAMEBITS_TEN() SAMEBITS_TEN(1) SAMEBITS_TEN(2) SAMEBITS_TEN(3) SAMEBITS_TEN(4)
                   SAMEBITS_TEN(5) "%60, %61, %62, %63",
               64, 65, 66, SAMEBITS_D32(0), SAMEBITS_D32(32))
SAMEBITS_WGMMA(144,
               SAMEBITS_TEN() SAMEBITS_TEN(1) SAMEBITS_TEN(2) SAMEBITS_TEN(3) SAMEBITS_TEN(4) SAMEBITS_TEN(5)
                   SAMEBITS_TEN(6) "%70, %71",
               72, 73, 74, SAMEBITS_D32(0), SAMEBITS_D32(32), SAMEBITS_D8(64))
SAMEBITS_WGMMA(192,
               SAMEBITS_TEN() SAMEBITS_TEN(1) SAMEBITS_TEN(2) SAMEBITS_TEN(3) SAMEBITS_TEN(4) SAMEBITS_TEN(5)
                   SAMEBITS_TEN(6) SAMEBITS_TEN(7) SAMEBITS_TEN(8) "%90, %91, %92, %93, %94, %95",
               96, 97, 98, SAMEBITS_D32(0), SAMEBITS_D32(32), SAMEBITS_D32(64))

#undef SAMEBITS_WGMMA
#undef SAMEBITS_D32
#undef SAMEBITS_D8
#undef SAMEBITS_D4
#undef SAMEBITS_TEN

// Before the first wgmma after any other access to its accumulators.
__device__ __forceinline__ void fence_before_wgmma() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
// The wgmmas since the last commit become one group.
__device__ __forceinline__ void commit_wgmma() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most `kPending` groups are not finished.
template <int kPending>
__device__ __forceinline__ void wait_for_wgmma() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Registers of a thread from here on, by all warps of a warpgroup: others of the block must have given theirs before.
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
// Keeps the compiler from moving uses of accumulators across the waits, which do not name them.
template <int kSize>
__device__ __forceinline__ void pin_registers(float (&d)[kSize]) {
#pragma unroll
  for (int i = 0; i < kSize; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

}  // namespace samebits::cuda
