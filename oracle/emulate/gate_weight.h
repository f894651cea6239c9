// The gate weight in the layout of fast_chain, made once and used for many rows.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "oracle/emulate/fast_chain.h"
#include "oracle/emulate/tc256.h"

namespace samebits::oracle {

// w as a sum of three bf16 values, cut off one after the other: exact for |w| >= 2^-110, below that the bits that bf16
// cannot hold are dropped. A non-finite w is (w, 0, 0).
std::array<std::uint16_t, 3> split_fp32(float w);

class PackedGateWeight {
 public:
  // [G, H] of a case that does not start from logits. Throws std::invalid_argument for a weight of another size.
  explicit PackedGateWeight(const RouterInputs& inputs);

  int num_parts() const { return static_cast<int>(parts_.size()); }        // 1: bf16, 3: fp32
  std::int64_t padded_hidden_size() const { return padded_hidden_size_; }  // a multiple of 16, padded with +0
  std::int64_t gate_rows() const { return gate_rows_; }
  std::int64_t num_groups() const { return num_groups_; }  // of fast_chain::kColumns experts

  // Rows of kColumns values from product k on, for the experts of a group. Absent experts are +0.
  const float* values(int part, std::int64_t group, std::int64_t k) const {
    return parts_[static_cast<std::size_t>(part)].values[index(group, k)].data();
  }
  const std::int16_t* exponents(int part, std::int64_t group, std::int64_t k) const {
    return parts_[static_cast<std::size_t>(part)].exponents[index(group, k)].data();
  }

 private:
  struct alignas(64) ValueRow : std::array<float, fast_chain::kColumns> {};
  struct alignas(64) ExponentRow : std::array<std::int16_t, fast_chain::kColumns> {};
  struct Part {
    std::vector<ValueRow> values;  // [num_groups][padded_hidden_size]
    std::vector<ExponentRow> exponents;
  };

  std::size_t index(std::int64_t group, std::int64_t k) const {
    return static_cast<std::size_t>(group * padded_hidden_size_ + k);
  }
  void put(int part, std::int64_t expert, std::int64_t k, std::uint16_t bits);

  std::int64_t hidden_size_, padded_hidden_size_, gate_rows_, num_groups_;
  std::vector<Part> parts_;
};

// The exponent that fast_chain reads for a bf16 value.
std::int16_t chain_exponent(std::uint16_t bits);

// As tc256_logits without a packed weight, for callers that ask for rows of one case again and again.
std::vector<float> tc256_logits(const RouterSpec& spec, const RouterInputs& inputs, const PackedGateWeight& gate_weight,
                                std::span<const std::int64_t> rows);

}  // namespace samebits::oracle
