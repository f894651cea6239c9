// From a profiler's records to spans (bench/records.h).
#include "kernels/bench/records.h"

#include <gtest/gtest.h>

namespace samebits::bench {
namespace {

// [flush] [mark] a b [mark] a [mark], where b starts before a has ended, and a before the mark has.
std::vector<Record> graph_records() {
  return {{0, 900, kFlushKernel},    {1000, 1100, kMarkKernel}, {1050, 3000, "first"},    {2500, 4500, "second"},
          {5000, 5100, kMarkKernel}, {5200, 6200, "first"},     {6300, 6400, kMarkKernel}};
}

TEST(BenchRecords, ASpanIsFromTheFirstStartToTheLastEndAndOverlapCountsOnce) {
  const std::vector<Segment> segments = segments_of(graph_records());
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_DOUBLE_EQ(segments[0].span_us, 3.45);
  EXPECT_DOUBLE_EQ(segments[1].span_us, 1.0);
  ASSERT_EQ(segments[0].kernels.size(), 2u);
  EXPECT_EQ(segments[0].kernels[1].first, "second");
  EXPECT_DOUBLE_EQ(segments[0].kernels[1].second, 2.0);
}

TEST(BenchRecords, TheOrderOfTheRecordsDoesNotMatter) {
  std::vector<Record> records = graph_records();
  std::swap(records[0], records[6]);
  std::swap(records[1], records[3]);
  EXPECT_EQ(count_marks(records), 3u);
  EXPECT_DOUBLE_EQ(segments_of(records).at(0).span_us, 3.45);
}

TEST(BenchRecords, KernelsOfOneNameAreAddedAndAnEmptySegmentIsZero) {
  const std::vector<Segment> segments = segments_of({{0, 1, kMarkKernel},
                                                     {10, 1010, "slice"},
                                                     {2000, 4000, "slice"},
                                                     {5000, 5001, kMarkKernel},
                                                     {6000, 6001, kMarkKernel}});
  ASSERT_EQ(segments.size(), 2u);
  ASSERT_EQ(segments[0].kernels.size(), 1u);
  EXPECT_DOUBLE_EQ(segments[0].kernels[0].second, 3.0);
  EXPECT_EQ(segments[1].span_us, 0.0);
}

TEST(BenchRecords, KernelNamesAreShort) {
  EXPECT_EQ(short_kernel_name("void samebits::cuda::(anonymous namespace)::decode_kernel<8>(int, float)"),
            "decode_kernel");
  EXPECT_EQ(short_kernel_name("_ZN8samebits4cuda13select_kernelEPKfi"), "select_kernel");
  EXPECT_EQ(short_kernel_name("memset"), "memset");
}

}  // namespace
}  // namespace samebits::bench
