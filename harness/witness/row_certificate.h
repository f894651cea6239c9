// Whether one row of a recorded router is an answer that a reading allows: the certificate of properties/certificate.h,
// widened by the roundings of the reading. Ties may go to either expert.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "harness/witness/reading.h"
#include "oracle/exact/logit_bounds.h"
#include "oracle/tensors/router_inputs.h"
#include "properties/certificate.h"

namespace samebits::harness {

inline constexpr double kBf16Rounding = 0x1p-8;  // relative error of one rounding to bf16: 8 bits of significand

class RowCertificate {
 public:
  // `inputs` must outlive the certificate. exact: the logits are points, given by the router.
  RowCertificate(const Reading& reading, const oracle::RouterInputs& inputs, std::int64_t row,
                 const oracle::LogitBounds& logits, bool exact);

  // Why the reading does not allow this answer; empty when it does. ids and weights [K].
  std::string objection(std::span<const std::int64_t> ids, std::span<const float> weights) const;
  // Whether the weakest of the chosen certainly ranks before the strongest of the others.
  bool decides(std::span<const std::int64_t> ids) const;

 private:
  void round_scores_and_keys();
  void open_groups();
  std::vector<oracle::Interval> weight_bounds(std::span<const std::int64_t> ids) const;
  std::vector<oracle::Interval> logs_rounded(std::vector<oracle::Interval> weights,
                                             std::span<const std::int64_t> ids) const;

  Reading reading_;
  properties::BoundedRow bounded_;
};

}  // namespace samebits::harness
