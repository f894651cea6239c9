#include "properties/shrink.h"

namespace samebits::properties {

std::vector<LawResult> evaluate(const Case& c, Subject& subject, const std::vector<std::string>& laws) {
  const oracle::RouterInputs inputs = materialize(c);
  const std::vector<Run> runs = subject.run(c, inputs, plan_runs(c, subject.claims()));
  return judge(c, subject.claims(), inputs, runs, laws);
}

}  // namespace samebits::properties
