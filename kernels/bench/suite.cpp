#include "kernels/bench/suite.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <regex>
#include <set>
#include <stdexcept>
#include <unordered_map>

namespace samebits::bench {
namespace {

using Run = benchmark::BenchmarkReporter::Run;

constexpr const char* kMedian = "median";

bool is_median(const Run& run) {
  return run.run_type == Run::RT_Aggregate && run.aggregate_name == kMedian;
}

// The name without what Google Benchmark adds: "/iterations:1/repeats:60/manual_time".
std::string name_of(const Run& run) {
  return run.run_name.function_name;
}

// Keeps all runs, since a ratio needs the floor, which may be measured last.
class Collector : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override { runs_.insert(runs_.end(), runs.begin(), runs.end()); }
  const std::vector<Run>& runs() const { return runs_; }

 private:
  std::vector<Run> runs_;
};

class Floors {
 public:
  Floors(const std::vector<Measurement>& measurements, const std::vector<Run>& runs) {
    for (const Measurement& measurement : measurements) {
      groups_[measurement.name] = measurement.floor_group;
      if (measurement.is_floor) floors_.insert(measurement.name);
    }
    for (const Run& run : runs) {
      const std::string name = name_of(run);
      if (run.error_occurred || !is_median(run) || floors_.count(name) == 0) continue;
      double& least = least_.try_emplace(groups_[name], run.GetAdjustedRealTime()).first->second;
      least = std::min(least, run.GetAdjustedRealTime());
    }
  }
  double ratio(const Run& run) const {  // 0: there is no floor
    const auto group = groups_.find(name_of(run));
    const auto floor = group == groups_.end() ? least_.end() : least_.find(group->second);
    return floor == least_.end() || !(floor->second > 0) ? 0 : run.GetAdjustedRealTime() / floor->second;
  }

 private:
  std::unordered_map<std::string, std::string> groups_;
  std::unordered_map<std::string, double> least_;
  std::set<std::string> floors_;
};

// Google Benchmark's JSON, in which medians have their ratio to the floor.
class JsonWithRatios : public benchmark::JSONReporter {
 public:
  explicit JsonWithRatios(const std::vector<Measurement>& measurements) : measurements_(measurements) {}
  void ReportRuns(const std::vector<Run>& runs) override { runs_.insert(runs_.end(), runs.begin(), runs.end()); }
  void Finalize() override {
    const Floors floors(measurements_, runs_);
    for (Run& run : runs_) {
      const double ratio = is_median(run) ? floors.ratio(run) : 0;
      if (ratio > 0) run.counters["floor_ratio"] = benchmark::Counter(ratio);
    }
    JSONReporter::ReportRuns(runs_);
    JSONReporter::Finalize();
  }

 private:
  const std::vector<Measurement>& measurements_;
  std::vector<Run> runs_;
};

void initialise(const SuiteOptions& options) {
  static std::vector<std::string> words;  // the library keeps the first
  words = {"samebits", "--benchmark_enable_random_interleaving=true"};
  if (!options.json.empty()) {
    words.push_back("--benchmark_out=" + options.json);
    words.push_back("--benchmark_out_format=json");
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  for (const auto& [key, value] : options.context) benchmark::AddCustomContext(key, value);
}

}  // namespace

std::vector<Measurement> filtered(const std::vector<Measurement>& measurements, const std::string& filter) {
  if (filter.empty()) return measurements;
  std::regex expression;
  try {
    expression = std::regex(filter, std::regex::extended);
  } catch (const std::regex_error& error) {
    throw std::invalid_argument(filter + ": " + error.what());
  }
  std::set<std::string> groups;
  for (const Measurement& measurement : measurements) {
    if (std::regex_search(measurement.name, expression)) groups.insert(measurement.floor_group);
  }
  std::vector<Measurement> picked;
  for (const Measurement& measurement : measurements) {
    const bool floor_is_needed = measurement.is_floor && groups.count(measurement.floor_group) != 0;
    if (floor_is_needed || std::regex_search(measurement.name, expression)) picked.push_back(measurement);
  }
  return picked;
}

std::vector<Result> run_suite(const std::vector<Measurement>& measurements, const SuiteOptions& options) {
  initialise(options);
  std::int64_t done = 0;
  const std::int64_t all = static_cast<std::int64_t>(measurements.size()) * options.repetitions;
  for (const Measurement& measurement : measurements) {
    const auto body = [&measurement, &options, &done, all](benchmark::State& state) {
      Sample sample;
      for (auto _ : state) {  // NOLINT(clang-analyzer-deadcode.DeadStores): the library's own idiom
        try {
          sample = measurement.take();
        } catch (const std::exception& error) {
          state.SkipWithError(error.what());
          break;
        }
        state.SetIterationTime(sample.us * 1e-6);
      }
      for (const auto& [name, value] : sample.details) state.counters[name] = benchmark::Counter(value);
      state.SetLabel(measurement.label);
      if (options.progress) options.progress(++done, all);
    };
    benchmark::RegisterBenchmark(measurement.name.c_str(), body)
        ->UseManualTime()
        ->Iterations(1)
        ->Repetitions(options.repetitions)
        ->ReportAggregatesOnly(options.repetitions > 1)
        ->Unit(benchmark::kMicrosecond);
  }
  Collector collector;
  JsonWithRatios json(measurements);
  benchmark::RunSpecifiedBenchmarks(&collector, options.json.empty() ? nullptr : &json);
  benchmark::Shutdown();

  const Floors floors(measurements, collector.runs());
  std::unordered_map<std::string, Result> results;
  for (const Run& run : collector.runs()) {
    Result& result = results[name_of(run)];
    if (run.error_occurred) {
      result.error = run.error_message;
    } else if (is_median(run)) {
      result.label = run.report_label;
      result.us = run.GetAdjustedRealTime();
      result.floor_ratio = floors.ratio(run);
      for (const auto& [name, counter] : run.counters) result.details[name] = counter.value;
    }
  }
  std::vector<Result> ordered;
  for (const Measurement& measurement : measurements) {
    Result& result = results[measurement.name];
    result.name = measurement.name;
    if (result.error.empty() && result.label.empty()) result.error = "was not measured";
    ordered.push_back(std::move(result));
  }
  return ordered;
}

}  // namespace samebits::bench
