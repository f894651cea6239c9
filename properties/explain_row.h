// Which known mistake would have given the observed answer of a row: for the notes of a violation.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "oracle/reference/answer.h"
#include "oracle/spec/router_spec.h"

namespace samebits::properties {

// Whether expert `a` ranks before expert `b` by the contract: larger key, -0 = +0, then the lower id; NaN below -inf,
// excluded below NaN. Both compete, and the spec ranks.
bool ranks_before(const oracle::RowAnswer<float>& answer, std::int64_t a, std::int64_t b);

struct Alternative {
  const char* text;  // "the selection bias rounded to bf16"
  oracle::RowAnswer<float> answer;
};
// The answers of all known mistakes that this spec leaves room for, whether they differ from the right answer or not:
// first those of its features, which say most, last that of ties, which any router may make. `row` is a row of the
// case's tensors `inputs`, `logits` [G] are its finished logits as the contract has them.
std::vector<Alternative> alternatives(const oracle::RouterSpec& spec, const oracle::RouterInputs& inputs,
                                      std::int64_t row, std::span<const float> logits);

// How a note that names causes begins.
inline constexpr const char* kCauseLabel = "reproduced by: ";

// "reproduced by: A; B": all mistakes, in the order above, that reproduce the returned logits `observed` [G] bit for
// bit (any NaN for NaN). One note, so that a report that shows few notes names them all; no note where there is none.
std::vector<std::string> explain_logits(const oracle::RouterSpec& spec, const oracle::RouterInputs& inputs,
                                        std::int64_t row, std::span<const float> logits,
                                        std::span<const float> observed);
// The same for the set `ids`; where a table gives the ids, for their order too.
std::vector<std::string> explain_ids(const oracle::RouterSpec& spec, const oracle::RouterInputs& inputs,
                                     std::int64_t row, std::span<const float> logits,
                                     std::span<const std::int64_t> ids);
// The same for ids and weights, bit for bit.
std::vector<std::string> explain_weights(const oracle::RouterSpec& spec, const oracle::RouterInputs& inputs,
                                         std::int64_t row, std::span<const float> logits,
                                         std::span<const std::int64_t> ids, std::span<const float> weights);

}  // namespace samebits::properties
