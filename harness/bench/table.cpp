#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/bench/bench.h"

namespace samebits::harness {
namespace {

using bench::Result;

constexpr std::string_view kKernelPrefix = "kernel_us:";

std::string number(double value) {
  return value < 99.95 ? fmt::format("{:.2f}", value) : fmt::format("{:.0f}", value);
}

double detail(const Result& result, const std::string& name) {
  const auto known = result.details.find(name);
  return known == result.details.end() ? 0 : known->second;
}

// "cold / warm (ratio)", "us (rows/s)", or "failed".
std::string cell_text(const Result& result) {
  if (!result.error.empty()) return "failed";
  if (result.details.count("warm_us") != 0) {
    std::string text = fmt::format("{} / {}", number(result.us), number(detail(result, "warm_us")));
    if (result.floor_ratio > 0) text += fmt::format(" ({:.2f}x)", result.floor_ratio);
    return text;
  }
  return fmt::format("{} ({} rows/s)", number(result.us), number(detail(result, "rows_per_s")));
}

std::vector<std::string> columns_of(const Bench& bench, const std::string& spec) {
  std::vector<std::string> columns;
  for (const BenchCell& cell : bench.cells) {
    if (cell.spec == spec && std::find(columns.begin(), columns.end(), cell.column) == columns.end()) {
      columns.push_back(cell.column);
    }
  }
  return columns;
}

class Results {
 public:
  explicit Results(const std::vector<Result>& results) {
    for (const Result& result : results) by_name_[result.name] = &result;
  }
  const Result* find(const std::string& name) const {  // null: filtered away
    const auto known = by_name_.find(name);
    return known == by_name_.end() ? nullptr : known->second;
  }

 private:
  std::map<std::string, const Result*> by_name_;
};

std::string floor_line(const Bench& bench, const Results& results, const std::string& spec) {
  const Result* best = nullptr;
  for (const bench::Measurement& measurement : bench.measurements) {
    const Result* result =
        measurement.is_floor && measurement.floor_group == spec ? results.find(measurement.name) : nullptr;
    if (result == nullptr || !result->error.empty()) continue;
    if (best == nullptr || result->us < best->us) best = result;
  }
  if (best == nullptr) return "";
  return fmt::format("; floor (one read of the weights) {} / {}", number(best->us), number(detail(*best, "warm_us")));
}

std::string spec_block(const Bench& bench, const Results& results, const std::string& spec, bool kernels) {
  const std::vector<std::string> columns = columns_of(bench, spec);
  std::map<std::int64_t, std::map<std::string, const Result*>> lines;
  for (const BenchCell& cell : bench.cells) {
    if (const Result* result = cell.spec == spec ? results.find(cell.measurement) : nullptr) {
      lines[cell.rows][cell.column] = result;
    }
  }
  if (lines.empty()) return "";
  std::string text = fmt::format("\n{}{}\n{:>6}", spec, floor_line(bench, results, spec), "rows");
  for (const std::string& column : columns) text += fmt::format("  {:<22}", column);
  text += "  kernel\n";
  for (const auto& [rows, cells] : lines) {
    text += fmt::format("{:>6}", rows);
    std::vector<std::string> kernels_of_row;  // of the columns, each once
    for (const std::string& column : columns) {
      const auto cell = cells.find(column);
      text += fmt::format("  {:<22}", cell == cells.end() ? "-" : cell_text(*cell->second));
      if (cell == cells.end()) continue;
      const std::string& kernel = cell->second->label;
      if (!kernel.empty() && std::find(kernels_of_row.begin(), kernels_of_row.end(), kernel) == kernels_of_row.end())
        kernels_of_row.push_back(kernel);
    }
    text += fmt::format("  {}\n", fmt::join(kernels_of_row, ", "));
    if (!kernels) continue;
    for (const auto& [column, result] : cells) {
      for (const auto& [name, us] : result->details) {
        if (!name.starts_with(kKernelPrefix)) continue;
        text += fmt::format("{:>6}  {:<12} {:<40} {}\n", "", column, name.substr(kKernelPrefix.size()), number(us));
      }
    }
  }
  return text;
}

}  // namespace

std::string bench_table(const Bench& bench, const std::vector<Result>& results, bool kernels) {
  std::string text;
  for (const auto& [key, value] : bench.context) text += fmt::format("{}: {}\n", key, value);
  for (const std::string& refusal : bench.refusals) text += fmt::format("refused: {}\n", refusal);
  for (const Result& result : results) {
    if (!result.error.empty()) text += fmt::format("failed: {}: {}\n", result.name, result.error);
    if (result.name.starts_with("empty/") && result.error.empty()) {
      text += fmt::format("{}: {}\n", result.name, cell_text(result));
    }
  }
  text += "medians, us; on a GPU cold / warm (cold in floors)\n";
  const Results by_name(results);
  std::vector<std::string> specs;
  for (const BenchCell& cell : bench.cells) {
    if (std::find(specs.begin(), specs.end(), cell.spec) == specs.end()) specs.push_back(cell.spec);
  }
  for (const std::string& spec : specs) text += spec_block(bench, by_name, spec, kernels);
  return text;
}

}  // namespace samebits::harness
