// CUPTI's records of kernels. libcupti is looked for at run time and never linked: programs that measure must start
// where it is missing.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/bench/records.h"

namespace samebits::bench {

class CuptiError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// At most one at a time. It must exist before the graphs whose kernels are to be recorded.
class Cupti {
 public:
  // Takes the libcupti that the process already has, the one that SAMEBITS_CUPTI names, or one in the usual folders,
  // and starts recording. Throws CuptiError with what was tried and why it failed.
  Cupti();
  ~Cupti();  // ends recording
  Cupti(const Cupti&) = delete;
  Cupti& operator=(const Cupti&) = delete;

  std::string version() const;  // "CUPTI 130001"

  // The records since the last call. The device must have been waited for.
  std::vector<Record> take(std::size_t expected_marks);

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace samebits::bench
