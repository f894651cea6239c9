#include <stdexcept>
#include <utility>

#include "harness/backend/abi_adapter.h"
#include "harness/backend/router_under_test.h"

namespace samebits::harness {
namespace {

using properties::Run;
using properties::RunRequest;
using properties::RunResult;

class BackendSubject final : public properties::Subject {
 public:
  explicit BackendSubject(std::unique_ptr<RouterUnderTest> router)
      : router_(std::move(router)), claims_(to_claims(router_->info())) {}

  const properties::Claims& claims() const override { return claims_; }

  std::optional<std::string> unsupported(const oracle::RouterSpec& spec) override {
    try {
      return router_->unsupported(to_abi(spec));
    } catch (const std::invalid_argument& error) {
      return error.what();  // a size that the ABI cannot hold
    }
  }

  // Consecutive requests to the same router share it.
  std::vector<Run> run(const properties::Case& c, const oracle::RouterInputs& inputs,
                       const std::vector<RunRequest>& requests) override {
    std::vector<Run> runs;
    std::optional<properties::DerivedRouter> derived;  // outlives its router
    std::optional<RunResult> not_created;
    for (const RunRequest& request : requests) {
      if (runs.empty() || !same_router(request, runs.back().request)) {
        if (!runs.empty()) end_case(runs.back().result);
        if (!runs.empty() && ended(runs.back().result)) return runs;
        if (request.variation == properties::Variation::kNone) {
          not_created = begin_case(c.spec, inputs, request);
        } else {
          derived = properties::derive(c.spec, inputs, request.variation);
          not_created = begin_case(derived->spec, derived->inputs, request);
        }
      }
      runs.push_back({request, not_created ? *not_created : router_->run(request)});
      if (ended(runs.back().result)) return runs;
      if (not_created && runs.size() == 1) break;  // there is nothing to compare the others with
    }
    if (!runs.empty()) end_case(runs.back().result);
    return runs;
  }

 private:
  static bool same_router(const RunRequest& a, const RunRequest& b) {
    return a.variation == b.variation && a.constants_gap == b.constants_gap;
  }
  std::optional<RunResult> begin_case(const oracle::RouterSpec& spec, const oracle::RouterInputs& inputs,
                                      const RunRequest& request) {
    return router_->begin_case(to_abi(spec), hash_table_dtype(spec), inputs, request.constants_gap);
  }
  static bool ended(const RunResult& result) {
    return result.status == RunResult::Status::kCrashed || result.status == RunResult::Status::kTimedOut;
  }

  // How the router is destroyed is part of its own case: the last run that it made bears it, unless that has failed by
  // itself.
  void end_case(RunResult& last) {
    if (ended(last)) return;
    const auto failure = router_->end_case();
    if (!failure || last.status != RunResult::Status::kOk) return;
    last.status = failure->status;
    last.message = failure->message;
  }

  std::unique_ptr<RouterUnderTest> router_;
  properties::Claims claims_;
};

}  // namespace

std::unique_ptr<properties::Subject> make_subject(std::unique_ptr<RouterUnderTest> router) {
  return std::make_unique<BackendSubject>(std::move(router));
}

}  // namespace samebits::harness
