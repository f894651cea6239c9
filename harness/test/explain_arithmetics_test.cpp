// What `samebits explain` says about exact logits and other arithmetics. Every case has k = 1.
#include <gmock/gmock.h>

#include <regex>
#include <sstream>

#include "harness/test/cli_child.h"
#include "oracle/emulate/arithmetic_model.h"

namespace samebits::harness {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kHeader = "arithmetic|logits at the cut|weights of experts in both|experts";

class Arithmetics : public ::testing::Test {
 protected:
  // A case of one row of H products; `spec` is the rest of the spec, `x` and `w` list the elements that are not 0.
  void write_case(int hidden_size, int experts, const std::string& spec, const std::string& x, const std::string& w,
                  const std::string& more = "") const {
    folder_.write("case.yaml",
                  with_sizes("samebits_case: 1\nspec:\n  spec_version: 1\n  name: small\n  shape: {hidden_size: HID, "
                             "num_experts: EXP, top_k: 1}\n",
                             hidden_size, experts) +
                      spec + "tensors:\n" +
                      with_sizes("  hidden_states: {dtype: bf16, shape: [1, HID], nonzero: [", hidden_size, experts) +
                      x + "]}\n" +
                      with_sizes("  gate_weight: {dtype: bf16, shape: [EXP, HID], nonzero: [", hidden_size, experts) +
                      w + "]}\n" + more);
  }
  ChildResult run(std::vector<std::string> options = {}) const {
    options.insert(options.begin(), {"explain", "--case", "case.yaml"});
    return run_program_in(folder_, options);
  }
  std::string explain(const std::vector<std::string>& options = {}) const {
    const ChildResult result = run(options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }
  // The lines of the table, with | between columns.
  static std::vector<std::string> table(const std::string& out) {
    std::istringstream lines(out.substr(out.find("the same row in other arithmetics")));
    std::vector<std::string> result;
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line) && line.starts_with("  ")) {
      result.push_back(std::regex_replace(line.substr(2), std::regex("  +"), "|"));
    }
    return result;
  }
  TempFolder folder_;

 private:
  static std::string with_sizes(std::string text, int hidden_size, int experts) {
    for (const auto& [word, value] : {std::pair("HID", hidden_size), std::pair("EXP", experts)}) {
      for (std::size_t at; (at = text.find(word)) != std::string::npos;) text.replace(at, 3, std::to_string(value));
    }
    return text;
  }
};

// -20 of expert 1 beats -20.03125 of expert 0 in every arithmetic but one: in bf16 both are -20, and the lower id wins.
// Their sigmoids are 3 % apart, which bf16 holds; that of -20, 1.1066 * 2^-29, becomes 142/128 * 2^-29.
TEST_F(Arithmetics, OnlyBf16LogitsChangeTheSet) {
  write_case(192, 2, "  score: {func: sigmoid}\n  selection: {bias: fp32}\n", "[0, 0, 1], [0, 100, 0.03125]",
             "[0, 0, -20], [0, 100, -1], [1, 0, -20]", "  selection_bias: {dtype: fp32, shape: [2], values: [0, 0]}\n");
  const std::string out = explain();
  EXPECT_THAT(out, HasSubstr("infinitely precise logits choose 1: the set of the contract\n"
                             "  decided by an error bound; gap 6.34"));
  EXPECT_EQ(table(out), (std::vector<std::string>{
                            kHeader,
                            "tc256|same bits|same bits|same",
                            "tc-chain|same bits|same bits|same",
                            "cublas-split-k:2|same bits|same bits|same",
                            "cublas-split-k:3|same bits|same bits|same",
                            "fp32-fma-sequential|same bits|same bits|same",
                            "fp32-fma-chains:8|same bits|same bits|same",
                            "exact|same bits|same bits|same",
                            "bf16-logits|16,384 ulp|-|expert 0 instead of 1",
                            "bf16-bias|same bits|same bits|same",
                            "bf16-scores|same bits|2.5e-03|same",
                        }));
}

// Expert 0: 2^24 and two products of 1.5, each in a step of its own. A chain cuts 2^24 + 1.5 to 2^24 twice; the
// contract has 3 in another chunk and rounds 2^24 + 3 to 2^24 + 4, as fp32 does in any order here. Expert 1: 2^24 + 2
// in one step.
TEST_F(Arithmetics, OnlyOneLongChainChangesTheSet) {
  write_case(512, 2, "  score: {func: identity}\n", "[0, 0, 4096], [0, 1, 1], [0, 300, 1], [0, 320, 1]",
             "[0, 0, 4096], [0, 300, 1.5], [0, 320, 1.5], [1, 0, 4096], [1, 1, 2]");
  const std::string out = explain();
  EXPECT_THAT(out, HasSubstr("infinitely precise logits choose 0: the set of the contract\n"
                             "  decided by an error bound; gap 1, of which "));
  EXPECT_EQ(table(out), (std::vector<std::string>{
                            kHeader,
                            "tc256|same bits|same bits|same",
                            "tc-chain|2 ulp|-|expert 1 instead of 0",
                            "cublas-split-k:2|same bits|same bits|same",
                            "cublas-split-k:3|same bits|same bits|same",
                            "fp32-fma-sequential|same bits|same bits|same",
                            "fp32-fma-chains:8|same bits|same bits|same",
                            "exact|same bits|same bits|same",
                            "bf16-logits|2 ulp|2.4e-07|same",
                            "bf16-scores|same bits|2.4e-07|same",
                        }))
      << "the spec has no bias to round";
  EXPECT_EQ(table(explain({"--arithmetic", "tc-chunks:304+bf16-scores", "--arithmetic", "tc-chain@sm_80"})).size(), 3u);
  EXPECT_EQ(table(explain({"--arithmetic", "split-k:4,4"})).at(1), "split-k:4,4|same bits|same bits|same");
}

TEST_F(Arithmetics, HowTheExactChoiceIsKnown) {
  // 1 and 1 + 2^-100.
  write_case(2, 2, "  score: {func: sigmoid}\n", "[0, 0, 1], [0, 1, 0x0d80]", "[0, 0, 1], [1, 0, 1], [1, 1, 1]");
  EXPECT_THAT(explain(), HasSubstr("infinitely precise logits choose 1: expert 1 instead of 0\n"
                                   "  decided by sums without error; gap 0, of which "));
  // Equal rows.
  write_case(2, 2, "  score: {func: sigmoid}\n", "[0, 0, 1], [0, 1, 0x0d80]",
             "[0, 0, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1]");
  EXPECT_THAT(explain(), HasSubstr("infinitely precise logits choose 0: the set of the contract\n"
                                   "  equal keys by construction, the lower id wins; gap 0, of which "));
  // sigmoid(0) + 0.5 and sigmoid(2^-100) + 0.5, with biases that differ by less than double holds of the keys.
  write_case(2, 2, "  score: {func: sigmoid}\n  selection: {bias: fp32}\n", "[0, 1, 1]", "[1, 1, 0x0d80]",
             "  selection_bias: {dtype: fp32, shape: [2], values: [0x0d800000, 0]}\n");
  EXPECT_THAT(explain(), HasSubstr("\n  undecided, the likeliest: the keys differ by less than the error of the steps "
                                   "after the sum; gap 0, of which "));
  write_case(2, 1, "  score: {func: sigmoid}\n", "[0, 0, 1]", "[0, 0, 1]");
  EXPECT_THAT(explain(),
              AllOf(HasSubstr("infinitely precise logits choose 0: the set of the contract\n"
                              "  decided by an error bound; no expert is rejected\n"),
                    HasSubstr("  tc256                -                  same bits                   same\n")));
  write_case(2, 2, "  score: {func: sigmoid}\n", "[0, 0, .inf]", "[0, 0, 1], [1, 0, 2]");
  EXPECT_THAT(explain(),
              HasSubstr("infinitely precise logits: not judged, because an operand or a logit is not finite"));
}

TEST_F(Arithmetics, AreNamedCheckedAndListed) {
  write_case(64, 2, "  score: {func: sigmoid}\n", "[0, 0, 1]", "[0, 0, 1]");
  const auto refused = [&](const std::string& name, const std::string& message) {
    const ChildResult result = run({"--arithmetic", name});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, HasSubstr(message));
  };
  const std::vector<std::string> forms = oracle::arithmetic_model_forms();
  std::string allowed;
  for (const std::string& form : forms) allowed += form + ", ";
  refused("fp64", "arithmetic \"fp64\": found \"fp64\"; allowed: " + allowed + "joined by +");
  refused("split-k:2", "found 2 blocks of 64; allowed: parts that sum to 1, for hidden size 64");
  const std::string list = run_program_in(folder_, {"list", "arithmetics"}).out;
  for (const std::string& form : forms) {
    EXPECT_THAT("\n" + list, HasSubstr("\n" + form + "  "));
  }
  folder_.write("case.yaml",
                "samebits_case: 1\nspec:\n  spec_version: 1\n  name: small\n  shape: {num_experts: 2, top_k: 1}\n"
                "tensors:\n  router_logits: {dtype: fp32, shape: [1, 2], values: [[0, 1]]}\n");
  refused("tc256", "--arithmetic tc256: found a case of given logits");
  EXPECT_THAT(explain(), AllOf(Not(HasSubstr("infinitely precise")), Not(HasSubstr("other arithmetics"))));
}

}  // namespace
}  // namespace samebits::harness
