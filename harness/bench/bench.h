// samebits bench: what is measured, and where.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/bench/router_data.h"
#include "kernels/bench/suite.h"

namespace samebits::harness {

struct BenchPlan {
  std::vector<BenchSpec> specs;
  std::vector<std::int64_t> rows;
  std::vector<BenchOutputs> outputs;
};

// One line of the table: the measurements of one spec at one row count, by what they write.
struct BenchCell {
  std::string spec;
  std::int64_t rows;
  std::string column;       // a name of kBenchOutputs, "front", "oracle logits"
  std::string measurement;  // its name
};

// Measurements, and what they use; they live as long as this does.
struct Bench {
  virtual ~Bench() = default;
  std::vector<bench::Measurement> measurements;
  std::vector<BenchCell> cells;
  std::vector<std::pair<std::string, std::string>> context;  // "gpu", "clock", ...
  std::vector<std::string> refusals;                         // of specs that the router does not take
};

// Time of calls in host memory. `embedded`: the logits of the oracle are timed too.
std::unique_ptr<Bench> host_bench(const AbiTable& table, const BenchPlan& plan, bool embedded);
// Spans on the GPU. `library`: where the front projection is looked for; empty: it is not. Throws BackendError where
// there is no GPU or the program was built without CUDA.
std::unique_ptr<Bench> gpu_bench(const AbiTable& table, const BenchPlan& plan, const std::filesystem::path& library);

// The row counts, and around each at which the name of the kernel changes: the last of the old, the first of the new,
// and one more on either side.
std::vector<std::int64_t> with_boundaries(std::vector<std::int64_t> rows,
                                          const std::function<std::string(std::int64_t)>& name_of);

// The table, one block a spec. `kernels`: the median of every kernel below it.
std::string bench_table(const Bench& bench, const std::vector<bench::Result>& results, bool kernels);

}  // namespace samebits::harness
