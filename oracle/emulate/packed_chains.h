// Chains of a row with many columns at once: the vector form where it applies, else the definition.
#pragma once

#include <cstdint>
#include <vector>

#include "oracle/emulate/gate_weight.h"
#include "oracle/emulate/tc256.h"

namespace samebits::oracle {

// What the gate reads of one row, in the form of fast_chain, padded with +0.
struct DecodedRow {
  std::vector<std::uint16_t> bits;
  std::vector<float> values;
  std::vector<std::int16_t> exponents;
};
DecodedRow decode_row(std::vector<std::uint16_t> bits, std::int64_t padded_hidden_size);

// CHAIN(+0, ...) over the products [first, first + length) of a row and the fast_chain::kColumns experts of a group of
// one part of the weight. `first` and `length` are multiples of 16. Output [kColumns].
void packed_chains(const StepParameters& parameters, const DecodedRow& row, const PackedGateWeight& gate_weight,
                   int part, std::int64_t group, std::int64_t first, std::int64_t length, float* result);

}  // namespace samebits::oracle
