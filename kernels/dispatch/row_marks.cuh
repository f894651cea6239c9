// A byte in shared memory for each expert and row, 1 where the row has the expert: those of four rows are a word. Or a
// bit, in words of 32 rows: an eighth of the memory, but an atomic takes eight times as long as a store.
//
// Places are addresses, and accesses that have a condition are instructions with one: the compiler would compute the
// former again at every access, and branch around the latter.
#pragma once

#include "kernels/logits/exchange.cuh"
#include "kernels/select/threads.cuh"

namespace samebits::cuda {

inline constexpr int kMarkRows = 32, kRowsOfMark = 4, kMarkWords = kMarkRows / kRowsOfMark;
inline constexpr unsigned kAddBytes = 0x01010101u;  // __dp4a with it adds the bytes of a word

// part_rows: a multiple of kMarkRows. Arrays of 4-byte words, by expert.
struct RowMarks {
  std::uint32_t marks;          // [part_rows / kRowsOfMark][G], of bits [part_rows / kMarkRows][G]
  std::uint32_t earlier;        // [own_groups][G], slots in the rows of the part before
  std::uint32_t scratch;        // of the caller
  std::uint32_t all;            // [G], slots of all rows
  std::uint32_t to_position;    // [G], from the place of a slot among those of the part
  std::uint32_t to_place;       // [G]
  std::uint32_t first_block;    // [G + 1], of the padded form; and one more: slots that have an expert
  std::uint32_t own;            // ids of the share of the block
  std::uint32_t row_bytes;      // of a row of experts
  int groups;                   // of kMarkRows rows
  int first_group, own_groups;  // of the share of the block
};
// Words of kMarkRows rows.
template <bool kBits>
inline constexpr int kGroupWords = kBits ? 1 : kMarkWords;
inline std::size_t row_marks_bytes(std::int64_t experts, std::int64_t part_rows, std::int64_t own_groups,
                                   std::int64_t own, std::size_t scratch, bool bits) {
  const std::int64_t groups = part_rows / kMarkRows, words = bits ? kGroupWords<true> : kGroupWords<false>;
  return (static_cast<std::size_t>((groups * words + own_groups + 4) * experts + own) + 2 + 6 + scratch) *
         sizeof(std::uint32_t);
}
// The compiler computes what depends on it once.
__device__ __forceinline__ std::uint32_t keep(std::uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}
// base: 16-byte aligned, and so is scratch, of so many words.
template <bool kBits>
__device__ __forceinline__ RowMarks row_marks(int experts, int part_rows, int first_own_row, int own_groups,
                                              int scratch, const unsigned char* base) {
  RowMarks memory{};
  memory.groups = part_rows / kMarkRows;
  memory.first_group = first_own_row / kMarkRows;
  memory.own_groups = own_groups;
  memory.row_bytes = keep(4u * static_cast<std::uint32_t>(experts));
  memory.marks = keep(shared_address(base));
  memory.scratch =
      memory.marks + (static_cast<unsigned>(memory.groups * kGroupWords<kBits>) * memory.row_bytes + 15) / 16 * 16;
  memory.earlier = memory.scratch + 4u * static_cast<unsigned>(scratch);
  memory.all = memory.earlier + static_cast<unsigned>(own_groups) * memory.row_bytes;
  memory.to_position = memory.all + memory.row_bytes;
  memory.to_place = memory.to_position + memory.row_bytes;
  memory.first_block = memory.to_place + memory.row_bytes;
  memory.own = memory.first_block + memory.row_bytes + 8;
  return memory;
}

__device__ __forceinline__ int read_shared(std::uint32_t address) {
  int value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}
__device__ __forceinline__ void write_shared(std::uint32_t address, int value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
__device__ __forceinline__ void write_shared_if(bool writes, std::uint32_t address, int value) {
  asm volatile("{\n.reg .pred writes;\nsetp.ne.u32 writes, %2, 0;\n@writes st.shared.u32 [%0], %1;\n}" ::"r"(address),
               "r"(value), "r"(writes ? 1 : 0)
               : "memory");
}
// Clusters; can_bookkeep_rows refuses devices without.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// To the same address in another block of the cluster.
__device__ __forceinline__ void write_to_block(std::uint32_t address, unsigned block, int value) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address_in_block(address, static_cast<int>(block))), "r"(value)
               : "memory");
}
// Whoever waits sees what all threads of the cluster wrote before they arrived.
__device__ __forceinline__ void arrive_in_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
#else
__device__ __forceinline__ void write_to_block(std::uint32_t, unsigned, int) {
  __trap();
}
__device__ __forceinline__ void arrive_in_cluster() {
  __trap();
}
__device__ __forceinline__ void wait_for_cluster() {
  __trap();
}
#endif
__device__ __forceinline__ std::int32_t load_if(bool loads, const std::int32_t* from, std::int32_t otherwise) {
  std::int32_t value = otherwise;
  asm volatile("{\n.reg .pred loads;\nsetp.ne.u32 loads, %2, 0;\n@loads ld.relaxed.gpu.global.u32 %0, [%1];\n}"
               : "+r"(value)
               : "l"(from), "r"(loads ? 1 : 0)
               : "memory");
  return value;
}
__device__ __forceinline__ void store_if(bool stores, std::int32_t* to, int value) {
  asm volatile("{\n.reg .pred stores;\nsetp.ne.u32 stores, %2, 0;\n@stores st.global.u32 [%0], %1;\n}" ::"l"(to),
               "r"(value), "r"(stores ? 1 : 0)
               : "memory");
}

__device__ __forceinline__ void clear_marks(const RowMarks& memory, int rank, int threads) {
  const int pieces = static_cast<int>((memory.scratch - memory.marks) / 16);
#pragma unroll 1
  for (int i = rank; i < pieces; i += threads)
    asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(memory.marks + 16 * static_cast<unsigned>(i)), "r"(0)
                 : "memory");
}
__device__ __forceinline__ unsigned row_of_slot(int slot, std::uint32_t row_magic) {
  return __umulhi(2u * static_cast<unsigned>(slot), row_magic);
}
template <bool kBits>
__device__ __forceinline__ void set_mark_if(bool sets, const RowMarks& memory, unsigned row, int id) {
  if constexpr (kBits) {
    const std::uint32_t address = memory.marks + row / kMarkRows * memory.row_bytes + 4 * static_cast<unsigned>(id);
    asm volatile("{\n.reg .pred sets;\nsetp.ne.u32 sets, %1, 0;\n@sets red.shared.or.b32 [%0], %2;\n}" ::"r"(address),
                 "r"(sets ? 1 : 0), "r"(1u << row % kMarkRows)
                 : "memory");
    return;
  }
  const std::uint32_t address =
      memory.marks + row / kRowsOfMark * memory.row_bytes + 4 * static_cast<unsigned>(id) + row % kRowsOfMark;
  asm volatile("{\n.reg .pred sets;\nsetp.ne.u32 sets, %1, 0;\n@sets st.shared.u8 [%0], %2;\n}" ::"r"(address),
               "r"(sets ? 1 : 0), "r"(1)
               : "memory");
}
// The slots of an expert, and those in earlier rows into memory.earlier. Then a barrier.
template <bool kBits>
__device__ __forceinline__ int count_marks(const RowMarks& memory, int expert) {
  std::uint32_t marks = memory.marks + 4 * static_cast<unsigned>(expert);
  const std::uint32_t earlier = memory.earlier + 4 * static_cast<unsigned>(expert);
  const auto first_group = static_cast<unsigned>(memory.first_group),
             own_groups = static_cast<unsigned>(memory.own_groups);
  unsigned count = 0;
  if constexpr (kBits) {
    constexpr int kAtOnce = 4;
#pragma unroll 1
    for (int first = 0; first < memory.groups; first += kAtOnce) {
      unsigned bits[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const auto group = static_cast<unsigned>(min(first + i, memory.groups - 1));
        bits[i] = static_cast<unsigned>(read_shared(marks + group * memory.row_bytes));
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const auto group = static_cast<unsigned>(first + i);
        if (first + i >= memory.groups) break;
        write_shared_if(group - first_group < own_groups, earlier + (group - first_group) * memory.row_bytes,
                        static_cast<int>(count));
        count += __popc(bits[i]);
      }
    }
  } else {
#pragma unroll 1
    for (int group = 0; group < memory.groups; ++group) {
      const unsigned own = static_cast<unsigned>(group) - first_group;
      write_shared_if(own < own_groups, earlier + own * memory.row_bytes, static_cast<int>(count));
      int words[kMarkWords];
#pragma unroll
      for (int i = 0; i < kMarkWords; ++i) words[i] = read_shared(marks + static_cast<unsigned>(i) * memory.row_bytes);
#pragma unroll
      for (int i = 0; i < kMarkWords; ++i) count = __dp4a(static_cast<unsigned>(words[i]), kAddBytes, count);
      marks += kMarkWords * memory.row_bytes;
    }
  }
  return static_cast<int>(count);
}
// The slots of the expert at this byte of a row of experts in the rows of the part before this one.
template <bool kBits>
__device__ __forceinline__ int count_before(const RowMarks& memory, unsigned row, unsigned at) {
  const unsigned group = row / kMarkRows, word = row / kRowsOfMark % kMarkWords;
  if constexpr (kBits) {
    const auto bits = static_cast<unsigned>(read_shared(memory.marks + group * memory.row_bytes + at));
    return read_shared(memory.earlier + (group - static_cast<unsigned>(memory.first_group)) * memory.row_bytes + at) +
           __popc(bits & ((1u << row % kMarkRows) - 1u));
  }
  const std::uint32_t marks = memory.marks + group * kMarkWords * memory.row_bytes + at;
  const unsigned some_bytes = kAddBytes & ((1u << 8 * (row % kRowsOfMark)) - 1u);
  auto count = static_cast<unsigned>(
      read_shared(memory.earlier + (group - static_cast<unsigned>(memory.first_group)) * memory.row_bytes + at));
  int words[kMarkWords];
#pragma unroll
  for (unsigned i = 0; i < kMarkWords; ++i) words[i] = read_shared(marks + i * memory.row_bytes);
#pragma unroll
  for (unsigned i = 0; i < kMarkWords; ++i) {
    const unsigned bytes = i < word ? kAddBytes : i == word ? some_bytes : 0;
    count = __dp4a(static_cast<unsigned>(words[i]), bytes, count);
  }
  return static_cast<int>(count);
}

}  // namespace samebits::cuda
