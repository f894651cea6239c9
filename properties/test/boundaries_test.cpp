#include "properties/boundaries.h"

#include <gmock/gmock.h>

#include "properties/test/laws_fake_router.h"

namespace samebits::properties {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Changes the last bit of the weights of every row for which `other` holds.
Fault changed_where(bool (*other)(std::int64_t num_tokens, std::int64_t place)) {
  return [other](const RunRequest& request, const oracle::RouterInputs&, RunResult& result) {
    const auto num_tokens = static_cast<std::int64_t>(request.rows.size());
    for (std::int64_t place = 0; place < num_tokens; ++place) {
      if (!other(num_tokens, place)) continue;
      float& weight = result.outputs.topk_weights[static_cast<std::size_t>(place * result.outputs.top_k)];
      weight = std::nextafter(weight, 0.0f);
    }
  };
}

Boundaries search(Fault fault, std::int64_t limit = 300, Claims claims = contract_claims()) {
  FakeRouter router(std::move(claims), std::move(fault));
  const Case c = small_case(small_spec(), 5);
  return find_boundaries(router, c, materialize(c), 2, limit);
}

TEST(Boundaries, ASwitchIsFoundToTheRow) {
  EXPECT_THAT(search(changed_where([](auto T, auto) { return T >= 17; })).counts,
              ElementsAre(BitRange{1, 16, 0}, BitRange{17, 300, 1}));
  EXPECT_THAT(search(changed_where([](auto T, auto) { return T >= 9; })).counts,
              ElementsAre(BitRange{1, 8, 0}, BitRange{9, 300, 1}));
  EXPECT_THAT(search(changed_where([](auto T, auto) { return T >= 129; })).counts,
              ElementsAre(BitRange{1, 128, 0}, BitRange{129, 300, 1}));
  // Where no power of two helps.
  EXPECT_THAT(search(changed_where([](auto T, auto) { return T >= 219; })).counts,
              ElementsAre(BitRange{1, 218, 0}, BitRange{219, 300, 1}));
}

TEST(Boundaries, ASwitchBackIsFoundToo) {
  const Boundaries found = search(changed_where([](auto T, auto) { return T >= 17 && T < 65; }));
  EXPECT_THAT(found.counts, ElementsAre(BitRange{1, 16, 0}, BitRange{17, 64, 1}, BitRange{65, 300, 0}));
  EXPECT_THAT(boundary_notes(found).front(), HasSubstr("the bits change at T = 17, 65"));
}

TEST(Boundaries, PlacesAreTold) {
  const Boundaries found = search(changed_where([](auto, auto place) { return place >= 7; }));
  EXPECT_THAT(found.counts, ElementsAre(BitRange{1, 300, 0}));
  EXPECT_EQ(found.place_count, 8);
  EXPECT_THAT(found.places, ElementsAre(BitRange{0, 6, 0}, BitRange{7, 7, 1}));
  EXPECT_THAT(boundary_notes(found), ElementsAre(HasSubstr("from T = 8 on the bits depend on the place")));
}

TEST(Boundaries, NotesSayWhereRowsAgree) {
  const Boundaries found = search(changed_where([](auto T, auto) { return T >= 17; }));
  EXPECT_TRUE(found.found());
  EXPECT_THAT(boundary_notes(found), ElementsAre("row 2: rows agree for T <= 16, differ from 17 (up to 300 were run)"));
}

TEST(Boundaries, ARouterWithoutOnesHasNone) {
  const Boundaries found = search({});
  EXPECT_FALSE(found.found());
  EXPECT_THAT(found.counts, ElementsAre(BitRange{1, 300, 0}));
  EXPECT_LT(found.runs, 60);
  EXPECT_THAT(boundary_notes(found), ElementsAre(HasSubstr("the same bits at every number of rows, T = 1 .. 300")));
}

TEST(Boundaries, ALimitOfTheRouterIsKept) {
  Claims claims = contract_claims();
  claims.max_tokens = 20;
  EXPECT_EQ(search({}, 300, claims).limit, 20);
}

TEST(Boundaries, AFailingRunEndsTheSearch) {
  const Boundaries found = search([](const RunRequest& request, const oracle::RouterInputs&, RunResult& result) {
    if (request.rows.size() < 40) return;
    result.status = RunResult::Status::kError;
    result.message = "too many";
  });
  EXPECT_LT(found.limit, 40);
  EXPECT_THAT(found.failure, HasSubstr("too many"));
}

}  // namespace
}  // namespace samebits::properties
