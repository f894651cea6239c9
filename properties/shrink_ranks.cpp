// Rows that hold ranks: where a fault depends on the order of the keys alone, a few small integers and zeros can take
// the place of all values at once. Single values cannot get there: among negative keys a zero is the largest.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "oracle/tensors/bf16.h"
#include "properties/explain_row.h"
#include "properties/oracle_answers.h"
#include "properties/shrink_edit.h"
#include "properties/shrink_passes.h"
#include "properties/spec_features.h"

namespace samebits::properties {
namespace {

using oracle::RouterInputs;

// What a row keeps of its order.
enum class Form : std::uint8_t {
  kFirstAreOne,  // the first `count` experts become 1, all others 0
  kFirstCount,   // they become count .. 1
  kLastCount,    // the last `count` become -1 .. -count
  kOnly,         // the one with `count` before it becomes 1, all others 0
};
constexpr Form kForms[] = {Form::kFirstAreOne, Form::kFirstCount, Form::kLastCount};

// The k-th step of 1, 2, 4, ..., and first of all k itself.
std::int64_t steps(std::int64_t experts) {
  std::int64_t number = 1;
  for (std::int64_t count = 1; count < experts; count *= 2) ++number;
  return number;
}
std::int64_t count_of(const Case& c, std::int64_t step) {
  return step == 0 ? c.description.top_k : std::int64_t{1} << (step - 1);
}

// [G] for one row of the case.
std::vector<float> ranks(const oracle::RowAnswer<float>& answer, std::int64_t gate_rows, Form form,
                         std::int64_t count) {
  std::vector<std::int64_t> order(answer.keys.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return ranks_before(answer, a, b); });
  if (form == Form::kLastCount) std::reverse(order.begin(), order.end());
  std::vector<float> values(static_cast<std::size_t>(gate_rows));
  if (form == Form::kOnly) {
    if (count < static_cast<std::int64_t>(order.size())) {
      values[static_cast<std::size_t>(order[static_cast<std::size_t>(count)])] = 1.0f;
    }
    return values;
  }
  const std::int64_t most = std::min(count, static_cast<std::int64_t>(order.size()));
  for (std::int64_t i = 0; i < most; ++i) {
    const float rank = static_cast<float>(most - i);
    values[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])] = form == Form::kFirstAreOne  ? 1.0f
                                                                           : form == Form::kFirstCount ? rank
                                                                                                       : -rank;
  }
  return values;
}

// Every row becomes its ranks, and the biases 0. From hidden states row r is 1 in column r alone.
std::optional<Case> with_ranks(const Case& c, Form form, std::int64_t count) {
  const RouterInputs inputs = materialize(c);
  const std::int64_t T = inputs.num_tokens, G = inputs.gate_rows, H = inputs.hidden_size, valid = inputs.valid_rows();
  const bool full = !inputs.from_logits();
  if (T == 0 || valid == 0 || (full && T > H)) return std::nullopt;
  const Claims claims;
  OracleAnswers answers(c, inputs, valid, claims);
  std::vector<std::vector<float>> rows;
  for (std::int64_t row = 0; row < valid; ++row) rows.push_back(ranks(answers.row(row), G, form, count));

  Case out = c;
  RouterInputs& data = *out.description.data;
  const auto fill = [](auto& tensor, auto value) { std::fill(tensor.begin(), tensor.end(), value); };
  fill(data.selection_bias, 0.0f);
  if (full) {
    constexpr std::uint16_t kOne = 0x3f80;  // bf16
    fill(data.linear_bias, 0.0f);
    fill(data.input_scale_vector, 1.0f);
    fill(data.hidden_states, std::uint16_t{0});
    data.gate_weight_bf16.assign(static_cast<std::size_t>(G * H), 0);
    data.gate_weight_fp32.clear();
    for (std::int64_t row = 0; row < valid; ++row) {
      data.hidden_states[static_cast<std::size_t>(row * H + row)] = kOne;
      for (std::int64_t e = 0; e < G; ++e) {
        data.gate_weight_bf16[static_cast<std::size_t>(e * H + row)] =
            oracle::fp32_to_bf16(rows[static_cast<std::size_t>(row)][static_cast<std::size_t>(e)]);
      }
    }
  } else {
    fill(data.router_logits, 0.0f);
    for (std::int64_t row = 0; row < valid; ++row) {
      std::copy(rows[static_cast<std::size_t>(row)].begin(), rows[static_cast<std::size_t>(row)].end(),
                data.router_logits.begin() + row * G);
    }
  }
  return out;
}

}  // namespace

Pass ranks_for_values() {
  constexpr auto kNumForms = static_cast<std::int64_t>(std::size(kForms));
  return {[=](const Case& c) {
            const bool ranked = c.spec.selection.method == oracle::SelectionMethod::kTopk;
            return ranked && has_small_data(c) ? steps(c.description.num_experts) * kNumForms : std::int64_t{0};
          },
          [=](const Case& c, std::int64_t i) -> std::optional<Case> {
            std::optional<Case> out = with_ranks(c, kForms[i % kNumForms], count_of(c, i / kNumForms));
            if (!out || total_complexity(*out) >= total_complexity(c)) return std::nullopt;
            return out;
          }};
}

Pass one_of_the_chosen() {
  return {[](const Case& c) {
            const bool ranked = c.spec.selection.method == oracle::SelectionMethod::kTopk;
            return ranked && has_small_data(c) && c.description.top_k > 1 ? c.description.top_k : std::int64_t{0};
          },
          [](const Case& c, std::int64_t i) -> std::optional<Case> {
            const std::optional<Case> out = with_ranks(c, Form::kOnly, i);
            return out ? with_top_k(*out, selects_per_group(c.spec) ? c.description.n_group : 1) : std::nullopt;
          }};
}

}  // namespace samebits::properties
