// Every mutant breaks the law that it names, on a published spec whose rule it breaks.
#include "kernels/mutants/mutants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "harness/backend/backend.h"
#include "harness/io/spec_library.h"
#include "properties/generate.h"
#include "properties/shrink.h"

namespace samebits::harness {
namespace {

// The laws that `backend` breaks in the directed cases of a router.
std::set<std::string> broken_laws(const std::string& backend, const mutants::Router& router) {
  oracle::Resolution resolution;
  if (router.layer != nullptr) resolution.layer = router.layer;
  resolution.set = {{"shape.hidden_size", "64"}};
  for (const mutants::Setting& setting : router.set) resolution.set.push_back({setting.path, setting.value});
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
    EXPECT_THAT(broken_laws("cpu", mutant.router), testing::IsEmpty()) << mutant.router.spec;
    EXPECT_THAT(broken_laws(std::string("mutant:") + mutant.name, mutant.router), testing::Contains(mutant.caught_by))
        << mutant.name;
  }
}

}  // namespace
}  // namespace samebits::harness
