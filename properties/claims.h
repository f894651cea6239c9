// What a router promises; it is judged against exactly this.
#pragma once

#include <cstdint>
#include <string>

#include "oracle/exact/logit_bounds.h"

namespace samebits::properties {

enum class Determinism { kNone, kRunToRun, kBatchInvariant };
enum class TieRule { kAny, kLowestIndex };
enum class OutputOrder { kAny, kKeyDescThenIndex };

struct Claims {
  std::string name;
  std::string version;
  oracle::Arithmetic arithmetic = oracle::Arithmetic::kFp32AnyOrder;
  Determinism determinism = Determinism::kNone;
  TieRule tie_rule = TieRule::kAny;
  OutputOrder output_order = OutputOrder::kAny;
  bool returns_logits = false;
  bool returns_bookkeeping = false;
  std::int64_t max_tokens = 0;  // 0: none
  bool device_memory = false;   // inputs and outputs lie in device memory, and calls go to a stream

  bool bit_exact() const { return arithmetic == oracle::Arithmetic::kTc256; }
};

}  // namespace samebits::properties
