// The contract needs round-to-nearest and subnormal numbers, whatever the calling thread has set.
#pragma once

#include <cfenv>

namespace samebits::cpu {

// Default floating-point environment (nearest even, no flush to zero, no denormals-are-zero) for one scope.
class DefaultFpEnvironment {
 public:
  DefaultFpEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFpEnvironment() { std::fesetenv(&saved_); }
  DefaultFpEnvironment(const DefaultFpEnvironment&) = delete;
  DefaultFpEnvironment& operator=(const DefaultFpEnvironment&) = delete;

 private:
  std::fenv_t saved_;
};

}  // namespace samebits::cpu
