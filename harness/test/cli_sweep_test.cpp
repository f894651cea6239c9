// samebits sweep: one pool of rows at every row count where kernels change.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "harness/test/cli_child.h"

namespace samebits::harness {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class Sweep : public SmallSpec {
 protected:
  ChildResult sweep(const std::string& backend, const std::string& rows, const std::string& seed = "1") const {
    return run({"sweep", "--spec", "small.yaml", "--backend", backend, "--rows", rows, "--seed", seed, "--json",
                "report.json", "--progress", "none"});
  }
  json report() const { return json::parse(content_of(folder_ / "report.json")); }
};

TEST_F(Sweep, ACleanRouterPasses) {
  for (const char* seed : {"1", "2"}) {
    const ChildResult result = sweep("cpu", "1025", seed);
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    const json root = report();
    EXPECT_EQ(root["command"], "sweep");
    EXPECT_EQ(root["rows"], 1025);
    EXPECT_EQ(root["shapes"]["num_tokens"]["max"], 1025);
    for (const char* law : {"batch_invariance", "precision", "selection", "weights", "bookkeeping", "non_finite"}) {
      EXPECT_EQ(root["laws"][law]["verdict"], "pass") << law;
    }
    // All row counts up to 1,025, each with all of its rows.
    EXPECT_EQ(root["laws"]["termination"]["relevant"], 33);
    EXPECT_EQ(root["laws"]["batch_invariance"]["relevant"], 6616);
  }
}

TEST_F(Sweep, ARouterWhoseBitsDependOnTheRowsIsFoundAndTheReproLineShowsIt) {
  const ChildResult result = sweep("mutant:row_dependent_split", "65");
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("FAILED batch_invariance"));
  EXPECT_THAT(result.out, HasSubstr("sweep --spec small.yaml --backend mutant:row_dependent_split --seed 1 --rows 65"));
  EXPECT_EQ(report()["laws"]["batch_invariance"]["verdict"], "fail");
}

TEST_F(Sweep, RowsOutOfRangeAreAUsageError) {
  for (const char* rows : {"0", "65538", "many"}) EXPECT_EQ(sweep("cpu", rows).exit_code, 2) << rows;
}

}  // namespace
}  // namespace samebits::harness
