// samebits_witness INDEX.yaml: holds routers that ran elsewhere (fixtures/golden/live.py) against the oracle.
//
// For each run, a row is accepted when its ids and weights could come from the spec in the declared arithmetic (the
// certificate of properties/certificate.h). Where they could not, the differences that the index names for the run are
// added one after the other; the row is counted under the first that explains it. What is left is unexplained.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "harness/witness/compare.h"
#include "harness/witness/index.h"

namespace samebits::harness {
namespace {

int compare_all(const std::vector<RecordedRun>& runs) {
  constexpr const char* kRow = "{:<48} {:<5} {:>6} {:>8} {:>10} {:>6} {:>7} {:>9} {:>11} {:>8} {:>6}\n";
  fmt::print(fmt::runtime(kRow), "router and hidden size", "", "rows", "decided", "by logits", "equal", "inside",
             "explained", "unexplained", "weights", "wrong");
  Comparison total;
  std::map<std::string, std::int64_t> explained;
  for (const RecordedRun& run : runs) {
    const Comparison c = compare(run);
    std::int64_t run_explained = 0;
    for (const auto& [kind, count] : c.explained) {
      explained[run.dtype + ": " + kind] += count;
      run_explained += count;
    }
    const std::int64_t wrong_rules = std::ssize(c.wrong_rules);
    fmt::print(fmt::runtime(kRow), run.name, run.dtype, c.rows, c.decided, c.decided_by_logits, c.equal_sets,
               c.inside_bound, run_explained, c.unexplained, fmt::format("{:.1e}", c.largest_weight_difference),
               fmt::format("{}/{}", wrong_rules - c.unnoticed, wrong_rules));
    for (const std::string& line : c.examples) fmt::print("    {}\n", line);
    std::fflush(stdout);
    total += c;
  }
  for (const auto& [kind, count] : explained) fmt::print("explained, {}: {}\n", kind, count);
  fmt::print("{} runs, {} rows: {} with the oracle's set, {} inside the bound, {} unexplained\n", runs.size(),
             total.rows, total.equal_sets, total.inside_bound, total.unexplained);
  fmt::print("{} rows decided from the hidden states, {} from the router's own logits\n", total.decided,
             total.decided_by_logits);
  fmt::print("{} prepared rows outside their bound, {} wrong rules not noticed\n", total.inputs_outside,
             total.unnoticed);
  return total.unexplained + total.inputs_outside + total.unnoticed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace samebits::harness

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: samebits_witness INDEX.yaml (written by fixtures/golden/live.py)\n");
    return 2;
  }
  try {
    return samebits::harness::compare_all(samebits::harness::read_index(argv[1]));
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
