// A router's selection stage on the device, and the same call by the CPU backend.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/cpu/score.h"
#include "kernels/cuda/launch.h"
#include "kernels/test_cuda/device_array.h"
#include "kernels/test_cuda/select_case.h"

namespace samebits::cuda::test {

struct SelectOptions {
  std::vector<std::int64_t> token_ids;  // empty: absent
  bool token_ids_int64 = false;
  std::vector<std::int32_t> row_class;  // empty: absent
  std::optional<std::int32_t> num_valid_rows;
  bool ids_int64 = false, weights_bf16 = false, slot_ids = true, router_logits = true;
  std::int64_t extra_stride = 0;  // of every matrix
};

// Outputs as they lie in memory, row strides and all.
struct Selected {
  std::vector<std::int32_t> ids, slot_ids;
  std::vector<std::int64_t> wide_ids;
  std::vector<float> weights, logits;
  std::vector<std::uint16_t> bf16_weights;
};

inline constexpr std::uint32_t kPoison = 0xabcdef01u;

template <class T>
std::vector<T> poisoned(std::int64_t n) {
  std::vector<T> values(static_cast<std::size_t>(n));
  for (T& value : values) {
    if constexpr (std::is_same_v<T, float>) {
      value = std::bit_cast<float>(kPoison);
    } else {
      value = static_cast<T>(kPoison);
    }
  }
  return values;
}

class DeviceSelection {
 public:
  DeviceSelection(const samebits_router_spec& spec, const Constants& constants)
      : spec_(spec),
        linear_bias_(rounded(spec.linear_bias_dtype, constants.linear_bias)),
        selection_bias_(rounded(spec.selection_bias_dtype, constants.selection_bias)),
        per_expert_scale_(constants.per_expert_scale),
        global_scale_(constants.global_scale),
        hash_table_(constants.hash_table) {
    router_.spec = spec;
    router_.ranked_experts = spec.num_experts + spec.zero_experts;
    router_.gate_rows = static_cast<std::int32_t>(rows_of_gate(spec));
    router_.padded_gate_rows = static_cast<std::int32_t>(round_up(router_.gate_rows, kGateRowPad));
    router_.top_k = spec.top_k;
    router_.columns = static_cast<std::int32_t>(columns_of(spec));
    router_.linear_bias = data_or_null(linear_bias_);
    router_.selection_bias = data_or_null(selection_bias_);
    router_.per_expert_scale = data_or_null(per_expert_scale_);
    router_.global_scale = data_or_null(global_scale_);
    router_.hash_table = data_or_null(hash_table_);
  }

  const samebits_router_spec& spec() const { return spec_; }
  const RouterView& router() const { return router_; }

  // From finished logits [T, G].
  Selected from_logits(const std::vector<float>& logits, const SelectOptions& options) const {
    const std::int64_t columns = router_.gate_rows, stride = columns + options.extra_stride;
    const std::int64_t num_tokens = static_cast<std::int64_t>(logits.size()) / columns;
    std::vector<float> strided(static_cast<std::size_t>(num_tokens * stride), std::bit_cast<float>(0x7fc00000u));
    for (std::int64_t t = 0; t < num_tokens; ++t) {
      std::copy_n(logits.begin() + t * columns, columns, strided.begin() + t * stride);
    }
    const DeviceArray<float> given(strided);
    CallView call{};
    call.num_tokens = num_tokens;
    call.given_logits = given.data();
    call.given_logits_stride = stride;
    return run(call, options);
  }

  // From sums [T][num_sums][Gp].
  Selected from_sums(const std::vector<float>& sums, std::int32_t num_sums, const SelectOptions& options) const {
    const DeviceArray<float> device_sums(sums);
    CallView call{};
    call.num_tokens = static_cast<std::int64_t>(sums.size()) / num_sums / router_.padded_gate_rows;
    call.sums = device_sums.data();
    call.num_sums = num_sums;
    return run(call, options);
  }

 private:
  static std::vector<float> rounded(std::int32_t dtype, const std::vector<float>& bias) {
    std::vector<float> out(bias.size());
    cpu::round_bias(dtype, bias.data(), static_cast<std::int64_t>(bias.size()), out.data());
    return out;
  }
  template <class T>
  static const T* data_or_null(const DeviceArray<T>& array) {
    return array.size() == 0 ? nullptr : array.data();
  }

  Selected run(CallView call, const SelectOptions& options) const {
    const std::int64_t rows = call.num_tokens, stride = router_.columns + options.extra_stride;
    const std::int64_t logits_stride = router_.gate_rows + options.extra_stride;
    const DeviceArray<std::int32_t> ids(poisoned<std::int32_t>(rows * stride)),
        slots(poisoned<std::int32_t>(rows * router_.columns));
    const DeviceArray<std::int64_t> wide_ids(poisoned<std::int64_t>(rows * stride));
    const DeviceArray<float> weights(poisoned<float>(rows * stride)), logits(poisoned<float>(rows * logits_stride));
    const DeviceArray<std::uint16_t> bf16_weights(poisoned<std::uint16_t>(rows * stride));
    const DeviceArray<std::int64_t> token_ids(options.token_ids);
    const DeviceArray<std::int32_t> narrow_token_ids(
        std::vector<std::int32_t>(options.token_ids.begin(), options.token_ids.end()));
    const DeviceArray<std::int32_t> row_class(options.row_class);
    const DeviceArray<std::int32_t> num_valid_rows(std::vector<std::int32_t>{options.num_valid_rows.value_or(0)});

    call.token_ids_int64 = options.token_ids_int64;
    call.token_ids = options.token_ids_int64 ? static_cast<const void*>(data_or_null(token_ids))
                                             : static_cast<const void*>(data_or_null(narrow_token_ids));
    call.row_class = data_or_null(row_class);
    call.num_valid_rows = options.num_valid_rows ? num_valid_rows.data() : nullptr;
    call.ids_int64 = options.ids_int64;
    call.topk_ids = options.ids_int64 ? static_cast<void*>(wide_ids.data()) : static_cast<void*>(ids.data());
    call.weights_bf16 = options.weights_bf16;
    call.topk_weights =
        options.weights_bf16 ? static_cast<void*>(bf16_weights.data()) : static_cast<void*>(weights.data());
    call.ids_stride = call.weights_stride = stride;
    call.router_logits = options.router_logits ? logits.data() : nullptr;
    call.router_logits_stride = logits_stride;
    call.slot_ids = options.slot_ids ? slots.data() : nullptr;
    check(launch_select(router_, call, nullptr), "launch_select");
    check(cudaDeviceSynchronize(), "select");
    return {ids.read(), slots.read(), wide_ids.read(), weights.read(), logits.read(), bf16_weights.read()};
  }

  samebits_router_spec spec_;
  DeviceArray<float> linear_bias_, selection_bias_, per_expert_scale_, global_scale_;
  DeviceArray<std::int32_t> hash_table_;
  RouterView router_{};
};

// What the outputs hold after a call that the CPU backend answers with `routed`.
inline Selected expected_of(const samebits_router_spec& spec, const cpu::test::Routed& routed,
                            const SelectOptions& options) {
  const std::int64_t columns = columns_of(spec), experts = rows_of_gate(spec);
  const std::int64_t rows = static_cast<std::int64_t>(routed.ids.size()) / columns;
  const std::int64_t stride = columns + options.extra_stride, logits_stride = experts + options.extra_stride;
  Selected out{poisoned<std::int32_t>(rows * stride), poisoned<std::int32_t>(rows * columns),
               poisoned<std::int64_t>(rows * stride), poisoned<float>(rows * stride),
               poisoned<float>(rows * logits_stride), poisoned<std::uint16_t>(rows * stride)};
  if (options.slot_ids) out.slot_ids = routed.ids;
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const auto from = static_cast<std::size_t>(t * columns + c), to = static_cast<std::size_t>(t * stride + c);
      if (options.ids_int64) {
        out.wide_ids[to] = routed.ids[from];
      } else {
        out.ids[to] = routed.ids[from];
      }
      if (options.weights_bf16) {
        out.bf16_weights[to] = weight_to_bf16(routed.weights[from]);
      } else {
        out.weights[to] = routed.weights[from];
      }
    }
    if (!options.router_logits) continue;
    std::copy_n(routed.logits.begin() + t * experts, experts, out.logits.begin() + t * logits_stride);
  }
  return out;
}

// One line for the spec, so that a failure can be read.
inline std::string text_of(const samebits_router_spec& spec) {
  std::string text = "E " + std::to_string(spec.num_experts) + ", k " + std::to_string(spec.top_k) + ", groups " +
                     std::to_string(spec.topk_group) + "/" + std::to_string(spec.n_group) + ", zero " +
                     std::to_string(spec.zero_experts) + ", shared " + std::to_string(spec.shared_experts);
  for (const SpecField& field : spec_fields()) {
    text += std::string(", ") + field.name + " " + std::to_string(spec.*field.member);
  }
  return text;
}

// Fails at the first element that differs in a bit; `width` elements are a row.
template <class T>
bool expect_same(const char* what, const std::vector<T>& found, const std::vector<T>& expected, std::int64_t width) {
  if (cpu::test::same_bits(found, expected)) return true;
  if (found.size() != expected.size()) {
    ADD_FAILURE() << what << ": " << found.size() << " elements, expected " << expected.size();
    return false;
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::memcmp(&found[i], &expected[i], sizeof(T)) == 0) continue;
    const auto row = static_cast<std::int64_t>(i) / width;
    ADD_FAILURE() << what << ": row " << row << " (kind " << row % kRowKinds << "), column "
                  << static_cast<std::int64_t>(i) % width << ": " << found[i] << ", expected " << expected[i];
    return false;
  }
  return false;
}

inline bool expect_same(const samebits_router_spec& spec, const Selected& found, const Selected& expected,
                        const SelectOptions& options) {
  const std::int64_t stride = columns_of(spec) + options.extra_stride;
  return expect_same("logits", found.logits, expected.logits, rows_of_gate(spec) + options.extra_stride) &&
         expect_same("ids", found.ids, expected.ids, stride) &&
         expect_same("int64 ids", found.wide_ids, expected.wide_ids, stride) &&
         expect_same("weights", found.weights, expected.weights, stride) &&
         expect_same("bf16 weights", found.bf16_weights, expected.bf16_weights, stride) &&
         expect_same("slot ids", found.slot_ids, expected.slot_ids, columns_of(spec));
}

}  // namespace samebits::cuda::test
