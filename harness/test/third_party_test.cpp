// No false alarm: routers that keep what they claim pass over every spec, ours and one that has nothing in common with
// it. And every claim too many is refuted, by the law that covers it.
//
// SAMEBITS_EXHAUSTIVE=1 judges 10^7 rows each instead of 10^5; `samebits fuzz --all-specs --rows N` is the same by
// hand.
#include <gmock/gmock.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/backend/backend.h"
#include "harness/test/backend_fixture.h"
#include "harness/test/cli_child.h"

namespace samebits::harness {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;

class ThirdParty : public SmallSpec {
 protected:
  static std::string plugin(const std::string& claim) { return fixture::plugin("third_party_" + claim).string(); }
  json report() const { return json::parse(content_of(folder_ / "r.json")); }

  // Every spec, with a hidden size at which a row is cheap.
  ChildResult all_specs(const std::vector<std::string>& router) const {
    const bool exhaustive = std::getenv("SAMEBITS_EXHAUSTIVE") != nullptr;
    std::vector<std::string> arguments = {"fuzz",       "--all-specs",
                                          "--rows",     exhaustive ? "10000000" : "100000",
                                          "--set",      "shape.hidden_size=64",
                                          "--json",     "r.json",
                                          "--progress", "none"};
    arguments.insert(arguments.end(), router.begin(), router.end());
    return run(arguments);
  }
  // The laws that the router breaks on the small spec.
  std::set<std::string> broken(const std::string& claim) const {
    run({"fuzz", "--spec", "small.yaml", "--plugin", plugin(claim), "--cases", "40", "--json", "r.json", "--no-shrink",
         "--no-known-cases", "--progress", "none"});
    std::set<std::string> laws;
    const json root = report();
    for (const json& failure : root["failures"]) laws.insert(failure["law"]);
    return laws;
  }
  // Of a claim: "verified", "refuted", "not_verified".
  std::string state(const std::string& claim) const {
    const json root = report();
    for (const json& judged : root["claims_judged"]) {
      if (judged["claim"] == claim) return judged["state"];
    }
    return "not claimed";
  }
};

// What `fuzz --all-specs --time 60s` begins with: one round over the specs meets enough for every law and claim.
TEST_F(ThirdParty, OneCaseOfEverySpecIsEnoughForEveryLaw) {
  const ChildResult result = run({"fuzz", "--all-specs", "--backend", "cpu", "--cases", "1", "--set",
                                  "shape.hidden_size=64", "--json", "r.json", "--progress", "none"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  const json root = report();
  for (const auto& [law, entry] : root["laws"].items()) {
    const bool of_devices = law == "ordering" || law == "device_health";
    EXPECT_EQ(entry["verdict"], of_devices ? "not_applicable" : "pass") << law;
  }
  for (const json& claim : root["claims_judged"]) EXPECT_EQ(claim["state"], "verified") << claim;
}

TEST_F(ThirdParty, IsRightOnEverySpec) {
  const ChildResult result = all_specs({"--plugin", plugin("nothing")});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_TRUE(report()["failures"].empty()) << result.out;
  EXPECT_GE(report()["rows"], 100000);
  EXPECT_GT(report()["known_cases"], 80);
  EXPECT_EQ(report()["skipped"], 0);
  EXPECT_EQ(state("batch_invariant"), "verified");
  EXPECT_EQ(state("bookkeeping"), "verified");
  EXPECT_EQ(state("ties lowest_index"), "not claimed");
}

TEST_F(ThirdParty, SoIsTheCpuRouter) {
  const ChildResult result = all_specs({"--backend", "cpu"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_TRUE(report()["failures"].empty()) << result.out;
  EXPECT_EQ(report()["laws"]["known_answer"]["verdict"], "pass");
}

TEST_F(ThirdParty, EveryClaimTooManyIsRefutedByItsLaw) {
  const struct {
    const char *plugin, *law, *claim;
  } claims[] = {{"tc256", "precision", "arithmetic tc256"},
                {"depth", "precision", "arithmetic fp32-depth:2"},
                {"bf16_logits", "precision", "arithmetic bf16-logits"},
                {"lowest_index", "selection", "ties lowest_index"},
                {"order", "order", "order key_desc_then_index"},
                {"batch_invariant", "batch_invariance", "batch_invariant"},
                {"run_to_run", "run_to_run", "run_to_run"},
                {"bookkeeping", "bookkeeping", "bookkeeping"}};
  for (const auto& [name, law, claim] : claims) {
    EXPECT_THAT(broken(name), Contains(law)) << name;
    EXPECT_EQ(state(claim), "refuted") << name;
  }
  EXPECT_THAT(broken("logits"), Contains("buffers")) << "logits that were promised and never written";
}

TEST_F(ThirdParty, WithoutTheClaimTheSameRouterIsRight) {
  EXPECT_THAT(broken("nothing"), testing::IsEmpty());
}

TEST_F(ThirdParty, ClaimsThatWereNotExercisedAreNotVerified) {
  const ChildResult result =
      run({"fuzz", "--spec", "small.yaml", "--plugin", plugin("lowest_index"), "--cases", "40", "--json", "r.json",
           "--laws", "termination,buffers", "--no-known-cases", "--progress", "none"});
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr("not verified:  arithmetic fp32-any-order (precision was not judged)"));
  const json root = report();
  for (const json& judged : root["claims_judged"]) EXPECT_EQ(judged["state"], "not_verified") << judged;
  // From given logits alone the arithmetic of the gate is not met.
  const ChildResult given = run({"fuzz", "--spec", "small.yaml", "--backend", "cpu", "--cases", "60", "--stage",
                                 "from_logits", "--json", "r.json", "--no-known-cases", "--progress", "none"});
  EXPECT_EQ(state("arithmetic tc256"), "not_verified") << given.out;
  EXPECT_EQ(state("returned logits"), "not_verified");
  EXPECT_EQ(state("ties lowest_index"), "verified");
}

}  // namespace
}  // namespace samebits::harness
