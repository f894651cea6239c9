// Logits of the contract: chains of 256 products from +0, folded left to right in fp32.

#include <algorithm>
#include <atomic>
#include <thread>

#include "oracle/emulate/fast_chain.h"
#include "oracle/emulate/finish_logit.h"
#include "oracle/emulate/fp32.h"
#include "oracle/emulate/gate_weight.h"
#include "oracle/emulate/packed_chains.h"
#include "oracle/emulate/prepared_input.h"
#include "oracle/emulate/tc256.h"

namespace samebits::oracle {
namespace {

constexpr int kColumns = fast_chain::kColumns;
constexpr std::size_t kRowsPerTask = 16;  // rows that read a group of columns while it is in the cache

// The fold over chunks for the rows of a task and one group of experts; sums is [rows][kColumns].
void fold_chunks(std::span<const DecodedRow> rows, const PackedGateWeight& gate_weight, std::int64_t group,
                 float* sums) {
  for (std::int64_t k = 0; k < gate_weight.padded_hidden_size(); k += kChunk) {
    const std::int64_t length = std::min(kChunk, gate_weight.padded_hidden_size() - k);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      float partial[kColumns];
      packed_chains(sm90(), rows[r], gate_weight, 0, group, k, length, partial);
      for (int part = 1; part < gate_weight.num_parts(); ++part) {
        float next[kColumns];
        packed_chains(sm90(), rows[r], gate_weight, part, group, k, length, next);
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
  const std::size_t experts = static_cast<std::size_t>(gate_weight.gate_rows());
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
  std::vector<float> logits(rows.size() * static_cast<std::size_t>(gate_weight.gate_rows()));
  const std::size_t hardware_threads = std::max(1u, std::thread::hardware_concurrency());
  // Threads pay from about 0.1 ms of work on.
  const std::int64_t products = static_cast<std::int64_t>(rows.size()) * gate_weight.num_parts() *
                                gate_weight.gate_rows() * gate_weight.padded_hidden_size();
  const std::size_t num_threads = products < 2'000'000 ? 1 : std::min(hardware_threads, rows.size());
  const std::size_t task_size = std::clamp<std::size_t>(rows.size() / num_threads, 1, kRowsPerTask);

  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t first = next.fetch_add(task_size); first < rows.size(); first = next.fetch_add(task_size)) {
      const auto task = rows.subspan(first, std::min(task_size, rows.size() - first));
      logits_of_rows(spec, inputs, gate_weight, task,
                     logits.data() + first * static_cast<std::size_t>(gate_weight.gate_rows()));
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
