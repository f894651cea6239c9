#include <stdexcept>
#include <utility>

#include "harness/backend/abi_adapter.h"
#include "harness/backend/router_under_test.h"

namespace samebits::harness {
namespace {

using properties::Run;
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

  std::vector<Run> run(const properties::Case& c, const oracle::RouterInputs& inputs,
                       const std::vector<properties::RunRequest>& requests) override {
    std::vector<Run> runs;
    if (requests.empty()) return runs;
    if (auto failure = router_->begin_case(to_abi(c.spec), hash_table_dtype(c.spec), inputs)) {
      runs.push_back({requests.front(), *std::move(failure)});
    } else {
      for (const properties::RunRequest& request : requests) {
        runs.push_back({request, router_->run(request)});
        if (ended(runs.back().result)) break;
      }
    }
    end_case(runs.back().result);
    return runs;
  }

 private:
  static bool ended(const RunResult& result) {
    return result.status == RunResult::Status::kCrashed || result.status == RunResult::Status::kTimedOut;
  }

  // How the router is destroyed is part of its own case: the last run of the case bears it, unless that has failed by
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
