// Logits of the contract: chains of 256 products from +0, folded left to right in fp32.

#include <algorithm>
#include <atomic>
#include <bit>
#include <thread>
#include <utility>

#include "oracle/emulate/fast_chain.h"
#include "oracle/emulate/finish_logit.h"
#include "oracle/emulate/fp32.h"
#include "oracle/emulate/gate_weight.h"
#include "oracle/emulate/prepared_input.h"
#include "oracle/emulate/tc256.h"
#include "oracle/tensors/bf16.h"

namespace samebits::oracle {
namespace {

constexpr int kColumns = fast_chain::kColumns;
constexpr std::size_t kRowsPerTask = 16;  // rows that read a group of columns while it is in the cache

// One row of what the gate reads, in the form of fast_chain.
struct DecodedRow {
  std::vector<std::uint16_t> bits;
  std::vector<float> values;
  std::vector<std::int16_t> exponents;
};

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

// CHAIN(+0, row, column) by the definition, for a column that fast_chain could not do.
float chain_by_definition(const DecodedRow& row, const float* values, int column, std::int64_t k, std::int64_t length) {
  std::vector<std::uint16_t> weights(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = static_cast<std::uint16_t>(
        std::bit_cast<std::uint32_t>(values[i * kColumns + static_cast<std::size_t>(column)]) >> 16);
  }
  const std::span<const std::uint16_t> operands(row.bits.data() + k, weights.size());
  return std::bit_cast<float>(chain(sm90(), 0, operands, weights));
}

// Chains over the products [k, k + length) of one row with the experts of one group.
void chains(const DecodedRow& row, const PackedGateWeight& gate_weight, int part, std::int64_t group, std::int64_t k,
            std::int64_t length, float* result) {
  const float* values = gate_weight.values(part, group, k);
  const std::uint32_t invalid =
      fast_chain::selected()({row.values.data() + k, row.exponents.data() + k, values,
                              gate_weight.exponents(part, group, k), static_cast<int>(length / 16)},
                             result);
  for (std::uint32_t rest = invalid; rest != 0; rest &= rest - 1) {
    const int column = std::countr_zero(rest);
    result[column] = chain_by_definition(row, values, column, k, length);
  }
}

// The fold over chunks for the rows of a task and one group of experts; sums is [rows][kColumns].
void fold_chunks(std::span<const DecodedRow> rows, const PackedGateWeight& gate_weight, std::int64_t group,
                 float* sums) {
  for (std::int64_t k = 0; k < gate_weight.padded_hidden_size(); k += kChunk) {
    const std::int64_t length = std::min(kChunk, gate_weight.padded_hidden_size() - k);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      float partial[kColumns];
      chains(rows[r], gate_weight, 0, group, k, length, partial);
      for (int part = 1; part < gate_weight.num_parts(); ++part) {
        float next[kColumns];
        chains(rows[r], gate_weight, part, group, k, length, next);
        for (int n = 0; n < kColumns; ++n) partial[n] = fadd_rn(partial[n], next[n]);
      }
      float* sum = sums + r * kColumns;
      for (int n = 0; n < kColumns; ++n) sum[n] = k == 0 ? partial[n] : fadd_rn(sum[n], partial[n]);
    }
  }
}

void logits_of_rows(const RouterSpec& spec, const RouterInputs& inputs, const PackedGateWeight& gate_weight,
                    std::span<const std::int64_t> rows, float* logits) {
  std::vector<DecodedRow> decoded;
  for (const std::int64_t row : rows) {
    decoded.push_back(decode_row(prepared_input(spec, inputs, row), gate_weight.padded_hidden_size()));
  }
  std::vector<float> sums(rows.size() * kColumns);
  const std::size_t experts = static_cast<std::size_t>(gate_weight.num_experts());
  for (std::int64_t group = 0; group < gate_weight.num_groups(); ++group) {
    fold_chunks(decoded, gate_weight, group, sums.data());
    const std::size_t first = static_cast<std::size_t>(group) * kColumns;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (std::size_t e = first; e < std::min(first + kColumns, experts); ++e) {
        logits[r * experts + e] =
            finish_logit(spec, inputs, static_cast<std::int64_t>(e), sums[r * kColumns + e - first]);
      }
    }
  }
}

std::vector<float> given_logits(const RouterInputs& inputs, std::span<const std::int64_t> rows) {
  std::vector<float> logits;
  for (const std::int64_t row : rows) {
    const auto first = inputs.router_logits.begin() + row * inputs.gate_rows;
    std::transform(first, first + inputs.gate_rows, std::back_inserter(logits), one_nan);
  }
  return logits;
}

}  // namespace

std::vector<float> tc256_logits(const RouterSpec& spec, const RouterInputs& inputs, const PackedGateWeight& gate_weight,
                                std::span<const std::int64_t> rows) {
  std::vector<float> logits(rows.size() * static_cast<std::size_t>(gate_weight.num_experts()));
  const std::size_t hardware_threads = std::max(1u, std::thread::hardware_concurrency());
  // Threads pay from about 0.1 ms of work on.
  const std::int64_t products = static_cast<std::int64_t>(rows.size()) * gate_weight.num_parts() *
                                gate_weight.num_experts() * gate_weight.padded_hidden_size();
  const std::size_t num_threads = products < 2'000'000 ? 1 : std::min(hardware_threads, rows.size());
  const std::size_t task_size = std::clamp<std::size_t>(rows.size() / num_threads, 1, kRowsPerTask);

  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t first = next.fetch_add(task_size); first < rows.size(); first = next.fetch_add(task_size)) {
      const auto task = rows.subspan(first, std::min(task_size, rows.size() - first));
      logits_of_rows(spec, inputs, gate_weight, task,
                     logits.data() + first * static_cast<std::size_t>(gate_weight.num_experts()));
    }
  };
  std::vector<std::jthread> threads;
  for (std::size_t i = 1; i < num_threads; ++i) threads.emplace_back(work);
  work();
  threads.clear();
  return logits;
}

std::vector<float> tc256_logits(const RouterSpec& spec, const RouterInputs& inputs,
                                std::span<const std::int64_t> rows) {
  if (inputs.from_logits()) return given_logits(inputs, rows);
  return tc256_logits(spec, inputs, PackedGateWeight(inputs), rows);
}

}  // namespace samebits::oracle
