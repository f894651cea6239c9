// The runs that the laws need, as data: a backend executes them, laws only read what they returned. So the same
// verdicts come from `fuzz` and from `gen | run | check`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "oracle/tensors/router_inputs.h"
#include "oracle/tensors/router_outputs.h"
#include "properties/case.h"
#include "properties/claims.h"

namespace samebits::properties {

enum class RowReplacement : std::uint8_t { kKeep, kNaN, kInf, kHuge };

struct RunRequest {
  std::string id;                       // "main", "repeat", "alone/5", "prefix/17", "permuted", "loud_neighbours", ...
  std::vector<std::int64_t> rows;       // row r of the run is row rows[r] of the case
  std::vector<RowReplacement> replace;  // per row of the run, or empty: the whole row becomes NaN, Inf or huge values
  std::optional<std::int32_t> num_valid_rows;
  std::uint32_t poison = 0xffffffffu;  // every output buffer is filled with this pattern before the call
  bool want_logits = false;
  bool want_bookkeeping = false;
  std::int32_t block_size = 0;
};

struct RunResult {
  enum class Status { kOk, kError, kCrashed, kTimedOut };
  Status status = Status::kOk;
  std::string message;      // error text of the backend, signal name, or time limit
  std::string kernel_name;  // which kernel ran, as the router tells
  oracle::RouterOutputs outputs;
  bool guards_intact = true;  // guard bands around every buffer
  bool inputs_intact = true;
  std::string damage;  // which buffer, which offset, when one of the two is false
};

struct Run {
  RunRequest request;
  RunResult result;
};

// The runs of one case, "main" (all rows in order) first.
std::vector<RunRequest> plan_runs(const Case& c, const Claims& claims);

// The inputs of one run: rows selected and replaced. Constants (gate weight, biases) are those of the case.
oracle::RouterInputs select_rows(const oracle::RouterInputs& inputs, const RunRequest& request);

// A router under test, as the laws' driver sees it.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual const Claims& claims() const = 0;
  // A reason when the router does not support this spec and shape.
  virtual std::optional<std::string> unsupported(const oracle::RouterSpec& spec) = 0;
  // Never throws for what the router does (errors, crashes and hangs are results); throws std::runtime_error when the
  // router could not be reached at all.
  virtual std::vector<Run> run(const Case& c, const oracle::RouterInputs& inputs,
                               const std::vector<RunRequest>& requests) = 0;
};

}  // namespace samebits::properties
