// What a router does must not end the harness: its errors, and what it must not do at all, become results.
#pragma once

#include <fmt/format.h>

#include <new>
#include <stdexcept>
#include <string>

#include "harness/backend/memory.h"
#include "properties/run.h"
#include "samebits/samebits.h"

namespace samebits::harness {

class RouterError : public std::runtime_error {
 public:
  explicit RouterError(const std::string& text, samebits_status status = SAMEBITS_INTERNAL_ERROR)
      : std::runtime_error(text), refused(status == SAMEBITS_INVALID_ARGUMENT || status == SAMEBITS_UNSUPPORTED) {}
  const bool refused;
};
class RouterThrew : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Runs `body`; what the router did wrong becomes a result.
template <class Body>
properties::RunResult as_result(Body body) {
  using properties::RunResult;
  RunResult result;
  try {
    body(result);
  } catch (const RouterError& error) {
    result.status = RunResult::Status::kError;
    result.message = error.what();
    result.refused = error.refused;
  } catch (const RouterThrew& error) {
    result.status = RunResult::Status::kCrashed;
    result.message = error.what();
  } catch (const DeviceFault& fault) {
    result.status = RunResult::Status::kCrashed;
    result.message = fmt::format("device fault: {}", fault.what());
    result.device_problem = fault.what();
  } catch (const std::bad_alloc&) {
    result.status = RunResult::Status::kError;
    result.message = "out of memory for the buffers of this call";
  }
  return result;
}

}  // namespace samebits::harness
