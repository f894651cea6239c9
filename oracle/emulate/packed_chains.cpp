#include "oracle/emulate/packed_chains.h"

#include <bit>
#include <utility>

#include "oracle/emulate/fast_chain.h"
#include "oracle/tensors/bf16.h"

namespace samebits::oracle {
namespace {

constexpr int kColumns = fast_chain::kColumns;

// fast_chain has the parameters of sm_90 built in.
bool is_fast(const StepParameters& p) {
  return p.products == sm90().products && p.fraction_bits == sm90().fraction_bits &&
         p.exponent_floor == sm90().exponent_floor;
}

float chain_by_definition(const StepParameters& parameters, const DecodedRow& row, const float* values, int column,
                          std::int64_t first, std::int64_t length) {
  std::vector<std::uint16_t> weights(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = static_cast<std::uint16_t>(
        std::bit_cast<std::uint32_t>(values[i * kColumns + static_cast<std::size_t>(column)]) >> 16);
  }
  const std::span<const std::uint16_t> operands(row.bits.data() + first, weights.size());
  return std::bit_cast<float>(chain(parameters, 0, operands, weights));
}

}  // namespace

DecodedRow decode_row(std::vector<std::uint16_t> bits, std::int64_t padded_hidden_size) {
  const std::size_t padded = static_cast<std::size_t>(padded_hidden_size);
  DecodedRow decoded{std::move(bits), std::vector<float>(padded), {}};
  decoded.bits.resize(padded, 0);
  decoded.exponents.resize(padded);
  for (std::size_t k = 0; k < padded; ++k) {
    decoded.values[k] = bf16_to_fp32(decoded.bits[k]);
    decoded.exponents[k] = chain_exponent(decoded.bits[k]);
  }
  return decoded;
}

void packed_chains(const StepParameters& parameters, const DecodedRow& row, const PackedGateWeight& gate_weight,
                   int part, std::int64_t group, std::int64_t first, std::int64_t length, float* result) {
  const float* values = gate_weight.values(part, group, first);
  std::uint32_t open = 0xffffffffu;  // columns that fast_chain has not done
  static_assert(kColumns == 32);
  if (is_fast(parameters)) {
    open = fast_chain::selected()({row.values.data() + first, row.exponents.data() + first, values,
                                   gate_weight.exponents(part, group, first), static_cast<int>(length / 16)},
                                  result);
  }
  for (; open != 0; open &= open - 1) {
    const int column = std::countr_zero(open);
    result[column] = chain_by_definition(parameters, row, values, column, first, length);
  }
}

}  // namespace samebits::oracle
