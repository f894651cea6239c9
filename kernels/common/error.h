// Failures inside the router; the C ABI turns them into a status and a text.
#pragma once

#include <stdexcept>
#include <string>

#include "samebits/samebits.h"

namespace samebits {

class Error : public std::runtime_error {
 public:
  Error(samebits_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  samebits_status status() const { return status_; }

 private:
  samebits_status status_;
};

[[noreturn]] inline void fail_invalid(const std::string& text) {
  throw Error(SAMEBITS_INVALID_ARGUMENT, text);
}
[[noreturn]] inline void fail_unsupported(const std::string& text) {
  throw Error(SAMEBITS_UNSUPPORTED, text);
}

}  // namespace samebits
