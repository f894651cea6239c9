#include "kernels/cuda/limits.h"

#include <string>

#include "kernels/common/error.h"
#include "kernels/common/sizes.h"

namespace samebits::cuda {
namespace {

void check_at_most(const char* name, std::int64_t found, std::int64_t most) {
  if (found <= most) return;
  fail_unsupported(std::string(name) + ": found " + std::to_string(found) + ", this router has at most " +
                   std::to_string(most));
}

}  // namespace

void check_limits(const samebits_router_spec& spec) {
  check_at_most("num_experts, zero_experts and shared experts in the gate together", gate_rows(spec), kMaxGateRows);
  check_at_most("top_k", spec.top_k, kMaxTopK);
}

}  // namespace samebits::cuda
