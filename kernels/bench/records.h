// From kernel records to times: what ran between two marker kernels.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace samebits::bench {

inline constexpr const char* kMarkKernel = "samebits_bench_mark_kernel";
inline constexpr const char* kFlushKernel = "samebits_bench_flush_kernel";

// One kernel, memset or copy, as a profiler recorded it.
struct Record {
  std::uint64_t start_ns, end_ns;
  std::string name;  // mangled
};

// Start of the first to the end of the last kernel between two marks; kernels that overlap count once.
struct Segment {
  double span_us = 0;
  std::vector<std::pair<std::string, double>> kernels;  // short name, us; kernels of one name are added
};

// The segments between consecutive marks, in the order of time. A kernel launched over a mark (programmatic dependent
// launch) starts after the mark has started, so starts tell on which side it lies. Flush kernels are left out.
// A segment without kernels has a span of 0.
std::vector<Segment> segments_of(std::vector<Record> records);

std::size_t count_marks(const std::vector<Record>& records);

// "samebits::cuda::(anonymous namespace)::decode_kernel<8>(...)" and its mangled form: "decode_kernel".
std::string short_kernel_name(const std::string& name);

}  // namespace samebits::bench
