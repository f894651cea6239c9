#include <algorithm>

#include "properties/shrink.h"

namespace samebits::properties {

namespace {

// Whether the laws look at special runs (run.h); all laws do where `laws` is empty. Shrinking asks for one law many
// times, and most laws need none.
bool need_special_runs(const std::vector<std::string>& laws) {
  constexpr const char* kLaws[] = {"termination", "total_dispatch", "buffers",       "bookkeeping", "layout",
                                   "history",     "ordering",       "device_health", "metamorphic"};
  return laws.empty() || std::any_of(laws.begin(), laws.end(), [&](const std::string& law) {
           return std::find(std::begin(kLaws), std::end(kLaws), law) != std::end(kLaws);
         });
}

}  // namespace

std::vector<LawResult> evaluate(const Case& c, Subject& subject, const std::vector<std::string>& laws) {
  const oracle::RouterInputs inputs = materialize(c);
  std::vector<RunRequest> plan = plan_runs(c, subject.claims());
  if (!need_special_runs(laws)) std::erase_if(plan, [](const RunRequest& run) { return !is_ordinary(run); });
  const std::vector<Run> runs = subject.run(c, inputs, plan);
  return judge(c, subject.claims(), inputs, runs, laws);
}

}  // namespace samebits::properties
