#include "oracle/emulate/fast_chain.h"

#include <atomic>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace samebits::oracle::fast_chain {
namespace {

std::vector<Isa> find_isas() {
  std::vector<Isa> isas;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq")) {
    isas.push_back({"avx512", avx512});
  }
  if (__builtin_cpu_supports("avx2")) isas.push_back({"avx2", avx2});
#endif
  isas.push_back({"baseline", baseline});
  return isas;
}

std::atomic<Function> forced{nullptr};

}  // namespace

std::span<const Isa> available_isas() {
  static const std::vector<Isa> isas = find_isas();
  return isas;
}

Function selected() {
  const Function function = forced.load(std::memory_order_relaxed);
  return function != nullptr ? function : available_isas().front().function;
}

void select_for_test(const char* name) {
  if (name == nullptr) {
    forced = nullptr;
    return;
  }
  for (const Isa& isa : available_isas()) {
    if (std::string_view(isa.name) == name) {
      forced = isa.function;
      return;
    }
  }
  throw std::invalid_argument(std::string("this CPU has no ") + name);
}

}  // namespace samebits::oracle::fast_chain
