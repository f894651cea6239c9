#include "kernels/bench/records.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace samebits::bench {
namespace {

bool is_mark(const Record& record) {
  return record.name == kMarkKernel;
}

Segment segment_of(const Record* first, const Record* last) {
  Segment segment;
  std::uint64_t start = UINT64_MAX, end = 0;
  for (const Record* record = first; record != last; ++record) {
    if (record->name == kFlushKernel) continue;
    start = std::min(start, record->start_ns);
    end = std::max(end, record->end_ns);
    const std::string name = short_kernel_name(record->name);
    const double us = static_cast<double>(record->end_ns - record->start_ns) * 1e-3;
    const auto known = std::find_if(segment.kernels.begin(), segment.kernels.end(),
                                    [&](const auto& kernel) { return kernel.first == name; });
    if (known == segment.kernels.end()) {
      segment.kernels.emplace_back(name, us);
    } else {
      known->second += us;
    }
  }
  if (end > 0) segment.span_us = static_cast<double>(end - start) * 1e-3;
  return segment;
}

}  // namespace

std::vector<Segment> segments_of(std::vector<Record> records) {
  std::stable_sort(records.begin(), records.end(),
                   [](const Record& a, const Record& b) { return a.start_ns < b.start_ns; });
  std::vector<Segment> segments;
  const Record* mark = nullptr;
  for (const Record& record : records) {
    if (!is_mark(record)) continue;
    if (mark != nullptr) segments.push_back(segment_of(mark + 1, &record));
    mark = &record;
  }
  return segments;
}

std::size_t count_marks(const std::vector<Record>& records) {
  return static_cast<std::size_t>(std::count_if(records.begin(), records.end(), is_mark));
}

std::string short_kernel_name(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  std::string text = status == 0 ? demangled.get() : name;
  for (std::size_t at; (at = text.find("(anonymous namespace)::")) != std::string::npos;) text.erase(at, 23);
  text.erase(std::min(text.size(), text.find_first_of("<(")));
  text.erase(0, text.rfind(' ') == std::string::npos ? 0 : text.rfind(' ') + 1);  // the result type of a template
  text.erase(0, text.rfind(':') == std::string::npos ? 0 : text.rfind(':') + 1);
  return text;
}

}  // namespace samebits::bench
