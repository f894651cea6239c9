// Routers that do one stage alone, and plug-ins that crash, hang or write where they must not: each is judged, and the
// run goes on.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "harness/io/safetensors.h"
#include "harness/test/backend_fixture.h"
#include "harness/test/cli_child.h"

namespace samebits::harness {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class Stages : public SmallSpec {
 protected:
  json report() const { return json::parse(content_of(folder_ / "r.json")); }
  ChildResult fuzz(const std::string& plugin, std::vector<std::string> more) const {
    std::vector<std::string> arguments = {
        "fuzz",   "--spec", "small.yaml",  "--plugin",         fixture::plugin(plugin).string(),
        "--json", "r.json", "--no-shrink", "--no-known-cases", "--progress",
        "none"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  // Every result file of `results` without its weights.
  void drop_weights() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "results")) {
      SafeTensors content = read_safetensors(entry.path());
      content.metadata.erase("runs");
      std::erase_if(content.tensors, [](const auto& tensor) { return !tensor.first.starts_with("main/"); });
      content.tensors.erase("main/topk_weights");
      write_safetensors(entry.path(), content);
    }
  }
};

TEST_F(Stages, ARouterOfGivenLogitsAlone) {
  const ChildResult result = run({"fuzz", "--spec", "small.yaml", "--backend", "cpu", "--cases", "60", "--stage",
                                  "from_logits", "--laws", "selection,order,weights,sum", "--json", "r.json"});
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_EQ(report()["shapes"]["hidden_size"]["max"], 0);
  EXPECT_EQ(run({"fuzz", "--spec", "small.yaml", "--backend", "cpu", "--cases", "10", "--stage", "logits"}).exit_code,
            2);
}

TEST_F(Stages, BookkeepingAloneIsJudgedFromGivenIds) {
  ASSERT_EQ(run({"gen", "--spec", "small.yaml", "--cases", "20", "--out", "cases", "--with-data"}).exit_code, 0);
  ASSERT_EQ(run({"run", "--cases", "cases", "--backend", "cpu", "--out", "results"}).exit_code, 0);
  drop_weights();
  const std::vector<std::string> check = {"check", "--cases", "cases", "--results", "results", "--json", "r.json"};
  std::vector<std::string> alone = check;
  alone.insert(alone.end(), {"--laws", "bookkeeping"});
  const ChildResult right = run(alone);
  EXPECT_EQ(right.exit_code, 0) << right.out << right.err;
  EXPECT_EQ(report()["laws"]["bookkeeping"]["verdict"], "pass");
  const ChildResult all = run(check);
  EXPECT_EQ(all.exit_code, 2);
  EXPECT_THAT(all.err, HasSubstr("topk_weights are needed; weights may be left out where"));
  // Two slots change places in the permutation of the first case.
  const auto file = folder_ / "results/case-000000.safetensors";
  SafeTensors content = read_safetensors(file);
  auto& bytes = content.tensors.at("main/slot_of_position").bytes;
  std::swap_ranges(bytes.begin(), bytes.begin() + 4, bytes.begin() + 4);
  write_safetensors(file, content);
  EXPECT_EQ(run(alone).exit_code, 1);
  EXPECT_EQ(report()["laws"]["bookkeeping"]["failed"], 1);
}

TEST_F(Stages, ACaseTellsTheBlockSizeItIsJudgedWith) {
  ASSERT_EQ(run({"gen", "--spec", "small.yaml", "--cases", "1", "--out", "cases", "--with-data"}).exit_code, 0);
  const std::string size = read_safetensors(folder_ / "cases/case-000000.safetensors").metadata.at("block_size");
  EXPECT_THAT(size, testing::AnyOf("16", "64"));
}

TEST_F(Stages, ACrashIsAFindingOfItsCaseAndTheNextOneRuns) {
  const ChildResult result = fuzz("crash_at_three_tokens", {"--cases", "20", "--laws", "termination"});
  EXPECT_EQ(result.exit_code, 1) << result.out;
  const json root = report();
  EXPECT_EQ(root["cases"], 20);
  EXPECT_GT(root["laws"]["termination"]["failed"], 0);
  EXPECT_LT(root["laws"]["termination"]["failed"], 20);
  EXPECT_THAT(std::string(root["failures"][0]["summary"]), HasSubstr("SIGSEGV (Segmentation fault) in samebits_route"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / std::string(root["failures"][0]["case_file"])));
}

TEST_F(Stages, AHangIsAFindingOfItsCaseAndTheNextOneRuns) {
  const ChildResult result = fuzz("hang_in_route", {"--cases", "3", "--timeout", "200ms", "--laws", "termination"});
  EXPECT_EQ(result.exit_code, 1) << result.out;
  const json root = report();
  EXPECT_EQ(root["cases"], 3);
  EXPECT_EQ(root["laws"]["termination"]["failed"], 3);
  EXPECT_THAT(std::string(root["failures"][0]["summary"]), HasSubstr("within 200 ms"));
}

TEST_F(Stages, ADamagedGuardBandIsAFindingOfItsCaseAndTheNextOneRuns) {
  const ChildResult result = fuzz("write_after", {"--cases", "20", "--laws", "buffers"});
  EXPECT_EQ(result.exit_code, 1) << result.out;
  const json root = report();
  EXPECT_EQ(root["cases"], 20);
  EXPECT_EQ(root["laws"]["buffers"]["failed"], 20);
  EXPECT_THAT(std::string(root["failures"][0]["summary"]), HasSubstr("topk_ids"));
}

TEST_F(Stages, ARefusalNamesTheFieldOfTheSpec) {
  const ChildResult result = run({"fuzz", "--spec", "mixtral-8x7b", "--plugin",
                                  fixture::plugin("sigmoid_example").string(), "--cases", "2", "--no-known-cases"});
  EXPECT_EQ(result.exit_code, 4) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("logits_dtype (gate.logits_dtype in a spec): found bf16 (2)"));
}

}  // namespace
}  // namespace samebits::harness
