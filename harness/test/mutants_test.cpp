// Every mutant breaks the law that it names, on a published spec whose rule it breaks.
#include "kernels/mutants/mutants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "harness/backend/backend.h"
#include "harness/io/spec_library.h"
#include "properties/generate.h"
#include "properties/shrink.h"

namespace samebits::harness {
namespace {

struct Router {
  const char* spec;
  std::optional<std::string> layer = std::nullopt;
};

// Where the fault of each mutant is one.
const std::map<std::string, Router> kRouters = {
    {"row_dependent_split", {"glm-5.3-flash"}},
    {"bf16_bias", {"glm-5.3-flash"}},
    {"ties_to_higher_id", {"qwen3-30b-a3b"}},
    {"softcap_by_exponentials", {"grok-2"}},
    {"softmax_without_zero_experts", {"longcat-flash"}},
    {"text_bias_for_image_rows", {"deepseek-v4-flash-vision-exp"}},
    {"hash_ids_by_score", {"deepseek-v4-flash", "0"}},
    {"uniform_hash_weights", {"deepseek-v4-flash", "0"}},
    {"biased_weights", {"glm-5.3-flash"}},
    {"sparsemixer_with_kept_mask", {"phi-3.5-moe"}},
    {"sum_without_shared_experts", {"inkling-small"}},
    {"expert_scale_by_slot", {"gemma-4-26b-a4b"}},
};

// The laws that `backend` breaks in the directed cases of a router.
std::set<std::string> broken_laws(const std::string& backend, const Router& router) {
  oracle::Resolution resolution;
  resolution.layer = router.layer;
  resolution.set = {{"shape.hidden_size", "64"}};
  const oracle::RouterSpec spec = oracle::resolve(load_spec(router.spec), resolution);
  const auto subject = open_backend({.name = backend, .plugin = std::nullopt});
  const properties::GenerateOptions options{.max_tokens = 40};
  std::set<std::string> broken;
  for (std::int64_t i = 0; i < properties::directed_cases(spec, options); ++i) {
    const properties::Case c =
        properties::generate_case(router.spec, "", spec, 1, static_cast<std::uint64_t>(i), options);
    for (const properties::LawResult& result : properties::evaluate(c, *subject, {})) {
      if (result.outcome.violation) broken.insert(result.law->id);
    }
  }
  return broken;
}

TEST(Mutants, EachBreaksTheLawThatItNames) {
  for (const mutants::Mutant& mutant : mutants::all_mutants()) {
    const auto router = kRouters.find(mutant.name);
    ASSERT_NE(router, kRouters.end()) << mutant.name;
    EXPECT_THAT(broken_laws("cpu", router->second), testing::IsEmpty()) << router->second.spec;
    EXPECT_THAT(broken_laws(std::string("mutant:") + mutant.name, router->second), testing::Contains(mutant.caught_by))
        << mutant.name;
  }
}

}  // namespace
}  // namespace samebits::harness
