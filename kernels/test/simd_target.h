// Runs the code under test on one SIMD target after the other.
#pragma once

#include <vector>

#include "kernels/cpu/simd_targets.h"
// After simd_targets.h.
#include <hwy/targets.h>

namespace samebits::cpu::test {

// Every target that was compiled and that this CPU has, best first.
inline std::vector<std::int64_t> simd_targets() {
  return hwy::SupportedAndGeneratedTargets();
}

// All dispatched functions take this target while the object lives.
class ForcedTarget {
 public:
  explicit ForcedTarget(std::int64_t target) { set(target); }
  ~ForcedTarget() { set(0); }
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;

 private:
  static void set(std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

}  // namespace samebits::cpu::test
