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
#include "properties/variation.h"

namespace samebits::properties {

enum class RowReplacement : std::uint8_t { kKeep, kNaN, kInf, kHuge };

// Where the matrices of a call lie, if not without gaps from the start of an aligned buffer. Gaps between rows of an
// input hold loud values; gaps in an output hold the poison, which must stay.
struct Layout {
  std::int32_t input_gap = 0;   // elements between rows of the hidden states or given logits
  std::int32_t output_gap = 0;  // elements between rows of ids; of weights one more, of logits two more
  bool shifted = false;         // everything begins one element past the start of its buffer
  bool ids_int64 = false;
  bool weights_bf16 = false;
  bool operator==(const Layout&) const = default;
};

// Calls made before the run itself, on the same workspace; their outputs are dropped.
struct EarlierCall {
  std::vector<std::int64_t> rows;
  std::vector<RowReplacement> replace;
  std::optional<std::int32_t> num_valid_rows;
  std::int32_t times = 1;     // in a row; kDirect alone makes more than one
  bool given_logits = false;  // samebits_route_from_logits, with values of its own; where the run has hidden states
};

// Another router of twice the scale, from the same constants in reverse order, that routes the first row before the run
// is made, and then is destroyed, or lives on until the run is over. kAtOnce, host memory only: it lives on and is
// called again and again by the thread that created both, while a new thread makes the call of the run.
enum class OtherRouter : std::uint8_t { kNone, kBefore, kBeside, kAtOnce };

enum class Launch : std::uint8_t {
  kDirect,
  // Device memory only. Every call is captured in a graph of its own while its inputs hold other values, then all are
  // replayed in turn, twice, with the right inputs.
  kGraph,
  // Device memory only. One input is still being written when the call is made: by a kernel before it on the stream,
  // which lets the next kernel start at once and takes its time.
  kLateInput,
};
enum class InputTensor : std::uint8_t { kRows, kTokenIds, kRowClass, kNumValidRows };  // kRows: hidden states or logits

// Calls that must be refused with an error, before anything is written.
enum class Misuse : std::uint8_t {
  kNone,
  // Of samebits_route or samebits_route_from_logits.
  kInputColumns,  // one column less than the spec has
  kInputDtype,    // fp32 hidden states, bf16 logits
  kAbsentInput,   // no hidden states, no logits
  kIdsDtype,      // fp32
  kIdsColumns,    // K - 1
  kIdsRows,       // one row less than the input has
  kAbsentIds,
  kWeightsDtype,    // int32
  kWeightsColumns,  // K - 1
  kAbsentWeights,
  kNegativeTokens,   // num_tokens -1
  kTooManyTokens,    // one more than max_tokens
  kAbsentTokenIds,   // of a hash table
  kTokenIdsDtype,    // fp32
  kTokenIdsColumns,  // T - 1
  kRowClassDtype,    // int64
  kRowClassColumns,  // T - 1
  // Of samebits_create.
  kUnknownScore,  // a score function that does not exist
  kTopKTooLarge,  // one more than there are experts
  kGateColumns,   // a gate weight of H - 1 columns
  kAbsentBias,    // a selection bias that the spec asks for
  kTableId,       // an id past the last expert in the hash table
  kTableRepeat,   // one id twice in a row of it
};
inline constexpr int kNumMisuses = static_cast<int>(Misuse::kTableRepeat) + 1;
constexpr bool is_of_create(Misuse misuse) {
  return misuse >= Misuse::kUnknownScore;
}
const char* name_of(Misuse misuse);  // "input_columns", ...

struct RunRequest {
  std::string id;                       // "main", "repeat", "alone/5", "prefix/17", "permuted", "loud_neighbours", ...
  std::vector<std::int64_t> rows;       // row r of the run is row rows[r] of the case
  std::vector<RowReplacement> replace;  // per row of the run, or empty: the whole row becomes NaN, Inf or huge values
  std::optional<std::int32_t> num_valid_rows;
  std::uint32_t poison = 0xffffffffu;  // every output buffer is filled with this pattern before the call
  bool want_logits = false;
  bool want_bookkeeping = false;
  std::int32_t block_size = 0;
  std::uint8_t omitted_books = 0;  // of want_bookkeeping: bit i: output i of samebits_outputs' seven is not wanted

  // What makes a run special: each is for one law, and no other law looks at its outputs;
  // the bookkeeping is held against the returned ids in all of them.
  Layout layout;
  std::int32_t constants_gap = 0;    // elements between the rows of the matrices that the router is created from
  std::vector<EarlierCall> earlier;  // in this order; the workspace is made for the largest call
  OtherRouter other_router = OtherRouter::kNone;
  Launch launch = Launch::kDirect;
  InputTensor late_input = InputTensor::kRows;  // of kLateInput
  Misuse misuse = Misuse::kNone;
  Variation variation = Variation::kNone;  // the run asks another router, derived from that of the case
};

// Not special: rows of the case, asked of its router in the usual way.
bool is_ordinary(const RunRequest& request);

struct RunResult {
  enum class Status { kOk, kError, kCrashed, kTimedOut };
  Status status = Status::kOk;
  std::string message;      // error text of the backend, signal name, or time limit
  std::string kernel_name;  // which kernel ran, as the router tells
  oracle::RouterOutputs outputs;
  bool guards_intact = true;  // guard bands around every buffer
  bool inputs_intact = true;
  bool gaps_intact = true;        // gaps between the rows of outputs
  bool outputs_untouched = true;  // of kError: the outputs hold what they held before the call
  std::string damage;             // which buffer, which offset, when one of the four is false
  bool refused = false;           // kError: the router called the request invalid or unsupported
  std::string device_problem;     // device memory: what the call did to the device; empty: nothing
};

struct Run {
  RunRequest request;
  RunResult result;
};

// The runs of one case, "main" (all rows in order) first.
std::vector<RunRequest> plan_runs(const Case& c, const Claims& claims);

// The inputs of one run: rows selected and replaced. Constants (gate weight, biases) are those of the case.
oracle::RouterInputs select_rows(const oracle::RouterInputs& inputs, const RunRequest& request);
// The same without the constants: what a call passes to a router that was created before.
oracle::RouterInputs only_rows(const oracle::RouterInputs& inputs, const RunRequest& request);

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
