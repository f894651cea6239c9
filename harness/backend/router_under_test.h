// A router as the harness drives it: in this process (LocalRouter) or in a worker (WorkerRouter).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "oracle/tensors/router_inputs.h"
#include "properties/run.h"
#include "samebits/samebits.h"

namespace samebits::harness {

class RouterUnderTest {
 public:
  virtual ~RouterUnderTest() = default;
  virtual const samebits_info& info() const = 0;
  // A reason when the router does not support this spec; nullopt: it does.
  virtual std::optional<std::string> unsupported(const samebits_router_spec& spec) = 0;
  // Creates the router with the constants of a case; `inputs` must live until the next begin_case. table_dtype: of the
  // hash table, as hash_table_dtype (abi_adapter.h) says; constants_gap: as in RunRequest. A result: the router could
  // not be created, and this is what every run of the case would return.
  virtual std::optional<properties::RunResult> begin_case(const samebits_router_spec& spec, std::int32_t table_dtype,
                                                          const oracle::RouterInputs& inputs,
                                                          std::int32_t constants_gap) = 0;
  // One run of the case. After kCrashed or kTimedOut the case is over.
  virtual properties::RunResult run(const properties::RunRequest& request) = 0;
  // Destroys the router of the case, if there is one. A result: destroying it failed in this way, and the router is
  // gone. Not called after kCrashed or kTimedOut.
  virtual std::optional<properties::RunResult> end_case() = 0;
};

// The laws' view of a router. A case ends with its first run that crashed or timed out, or whose router could not be
// created: the runs after it are not made. The router is destroyed with its case; if that fails, so does the last run.
std::unique_ptr<properties::Subject> make_subject(std::unique_ptr<RouterUnderTest> router);

}  // namespace samebits::harness
