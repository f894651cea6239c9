// Rows of runs, compared and written down: shared by the laws.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "oracle/spec/router_spec.h"
#include "properties/certificate.h"
#include "properties/law.h"
#include "properties/run.h"

namespace samebits::properties {

// fp32 in decimal and bits: "0.503125 (0x3f00cccd)".
std::string text(float value);
std::string text(double value);
std::string text(const Interval& interval);  // "[0.1, 0.2]", or the value of a point
std::string text(std::span<const std::int64_t> values);
// "expert 5 (key 0.5 (0x3f000000))", "expert 5 (group rejected)", or "id 5" where it has no key.
std::string expert_text(const oracle::RowAnswer<float>& answer, std::int64_t id);
// ": keys [0.1, 0.2] and [0.3, 0.4]"; empty where one of the ids does not compete by a key.
std::string keys_text(const BoundedRow& row, std::int64_t a, std::int64_t b);
std::string ulp_text(float a, float b);  // "3 ulp apart"; empty when one of them is not finite
inline bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

// Empty, or why the outputs do not have the shape that was asked for.
std::string shape_problem(const Run& run, const oracle::RouterSpec& spec);
// It ended well and has the right shape.
bool is_complete(const Evidence& evidence, const Run& run);
// So, and it is not special (run.h): every law may look at it.
bool is_usable(const Evidence& evidence, const Run& run);
// The run, when it was made and is usable; else nullptr.
const Run* usable(const Evidence& evidence, const std::string& id);

std::int64_t num_rows(const Run& run);
std::int64_t valid_rows(const Run& run);  // rows before the padding
// Row of the case that row r of the run is.
std::int64_t case_row(const Run& run, std::int64_t r);
bool is_kept(const Run& run, std::int64_t r);  // not replaced

// The ids of the contract's answer, as wide as those that routers return.
std::vector<std::int64_t> answer_ids(const oracle::RowAnswer<float>& answer);

struct RowView {
  std::span<const std::int64_t> ids;  // [K]
  std::span<const float> weights;     // [K]
  std::span<const float> logits;      // [G] or empty
};
RowView row_view(const Run& run, std::int64_t r);

// Whether a slot may hold a zero expert under the id 0: where the spec renames these, every slot of id 0 and weight 0.
bool may_be_renamed(const oracle::RouterSpec& spec, const RowView& row, std::size_t slot);
// Empty, or what is wrong: "id 9 in slot 2 is outside 0 .. 7", "id 3 is in slots 0 and 4".
std::string ids_problem(const oracle::RouterSpec& spec, const RowView& row);

// Weights rounded to bf16 as the contract does it: what is not finite then is +0.
std::vector<float> rounded_weights(std::span<const float> weights);

// Compares a complete run of rows of the case with main, bit for bit, and where it is the same call also the padding
// and the bookkeeping. `where` follows what differs: " on a used workspace".
void compare_with_main(const Evidence& evidence, const Run& run, const Law& law, const std::string& where,
                       LawOutcome& outcome);

// false: the token id or the class of this row of the case is out of range, so that it gets ids -1 and weights 0.
bool has_answer(const Evidence& evidence, std::int64_t row);

// A row of the case as one run returned it.
struct JudgedRow {
  const Run* run;
  std::int64_t r;    // row of the run
  std::int64_t row;  // row of the case
  RowView seen;
  bool in_main() const { return run->request.id == "main"; }
};
// The rows that are held against the oracle: those of main and, when the router claims that other rows do not matter,
// the same rows in every other run (so that a fault at 17 rows shrinks to one row of data).
std::vector<JudgedRow> judged_rows(const Evidence& evidence);
// Those of them that have an answer.
std::vector<JudgedRow> answered_rows(const Evidence& evidence);
// Says in which run it was seen, unless that is main.
void name_run(Violation& violation, const JudgedRow& judged);

inline constexpr std::pair<const char*, std::vector<std::int32_t> oracle::Bookkeeping::*> kBookkeepingArrays[] = {
    {"tokens_per_expert", &oracle::Bookkeeping::tokens_per_expert},
    {"expert_offsets", &oracle::Bookkeeping::expert_offsets},
    {"slot_of_position", &oracle::Bookkeeping::slot_of_position},
    {"position_of_slot", &oracle::Bookkeeping::position_of_slot},
    {"sorted_token_ids", &oracle::Bookkeeping::sorted_token_ids},
    {"expert_ids", &oracle::Bookkeeping::expert_ids},
};

struct Difference {
  std::string what;  // "id in slot 3", "weight in slot 0 (expert 17)", "logit of expert 5"
  std::int64_t slot = -1;
  std::string observed;
  std::string expected;
  std::string distance;  // ulp, or empty
};
// The first difference in bits: ids, then weights, then logits where both have them.
std::optional<Difference> first_difference(const RowView& observed, const RowView& expected);
// The first slot that is not id -1 and weight +0, as all are in a row without an answer.
std::optional<Difference> first_answer(const RowView& row);
// "ids differ in 2 of 8 slots, weights in 8 of 8, logits in 280 of 288".
std::string count_differences(const RowView& observed, const RowView& expected);

// `where` follows what differs: "", or " in a repeated call".
Violation violation_of(const Difference& difference, const char* law, std::int64_t row, const std::string& where);

}  // namespace samebits::properties
