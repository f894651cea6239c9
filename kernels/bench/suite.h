// Measurements that take turns: every one is repeated as often, in an order that is drawn anew, so that a clock that
// drifts reaches all alike. Google Benchmark draws the order, forms the medians and writes the JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace samebits::bench {

struct Sample {
  double us = 0;                                        // cold where there is a cache to be cold
  std::vector<std::pair<std::string, double>> details;  // name and value, e.g. "warm_us"
};

struct Measurement {
  std::string name;              // "glm-5.3-flash/rows:16/ids"
  std::string floor_group;       // the floor that it is divided by: least median of the group; "": none
  bool is_floor = false;         // one of the floors of its group
  std::string label;             // which kernel ran, and by which clock
  std::function<Sample()> take;  // may throw; the measurement is then reported as failed
};

// Medians.
struct Result {
  std::string name, label, error;  // error: nothing else is known
  double us = 0;
  double floor_ratio = 0;  // 0: no floor
  std::map<std::string, double> details;
};

struct SuiteOptions {
  int repetitions = 60;
  std::string filter;                                        // regular expression on names; "": all
  std::string json;                                          // file, in Google Benchmark's form; "": none
  std::vector<std::pair<std::string, std::string>> context;  // into the JSON
  std::function<void(std::int64_t done, std::int64_t of)> progress;
};

// Results in the order of the measurements. Once a process: Google Benchmark keeps its options in globals.
std::vector<Result> run_suite(const std::vector<Measurement>& measurements, const SuiteOptions& options);

// Those of `measurements` whose names the filter picks, and all floors of their groups. Throws std::invalid_argument
// for what is no regular expression.
std::vector<Measurement> filtered(const std::vector<Measurement>& measurements, const std::string& filter);

}  // namespace samebits::bench
