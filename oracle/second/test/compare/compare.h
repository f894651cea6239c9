// Holds the rows of a case against the second oracle, twice:
//   bits       each step fed with the fp32 values of the first oracle: input of the gate, logits, scores, keys, groups,
//              selection, weights and bookkeeping must be equal, bit for bit
//   published  from the inputs alone, over the reals: every value must lie within the error bound of fp32, and where
//              the bounds leave one expert set only, the set must be that one
#pragma once

#include <string>

#include "oracle/second/test/compare/first_oracle.h"
#include "oracle/second/test/compare/tally.h"

namespace samebits::second {

struct Case {
  std::string name;
  oracle::RouterSpec spec;
  oracle::RouterInputs inputs;
  // Tensor-core steps are slow in this oracle; of a large gate only this many logits of a row are computed by them.
  std::int64_t most_contract_logits = 64;
};

Tally compare(const FirstOracle& first, const Case& test_case);

}  // namespace samebits::second
