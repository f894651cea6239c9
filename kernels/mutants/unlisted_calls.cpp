// A call whose counts, token ids, classes or hidden states are read wrongly.
#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/cpu/router.h"
#include "kernels/mutants/abi_faults.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

// Calls with another count of valid rows.
samebits_status with_count(RouteCall& call, std::int64_t count) {
  const auto narrow = static_cast<std::int32_t>(count);
  call.inputs.num_valid_rows = &narrow;
  return call.run();
}

samebits_status count_rounded_up_to_8(RouteCall& call) {
  return call.inputs.num_valid_rows == nullptr ? call.run() : with_count(call, (call.valid_rows() + 7) / 8 * 8);
}

// Calls with token ids of 32 bits: word(tokens, t) of the 64-bit ones.
template <class Word>
samebits_status with_narrow_tokens(RouteCall& call, Word word) {
  if (call.inputs.token_ids.data == nullptr || call.inputs.token_ids.dtype != SAMEBITS_INT64) return call.run();
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(call.inputs.num_tokens) + 1);
  for (std::int64_t t = 0; t < call.inputs.num_tokens; ++t) {
    tokens[static_cast<std::size_t>(t)] = word(static_cast<const std::int64_t*>(call.inputs.token_ids.data), t);
  }
  call.inputs.token_ids.data = tokens.data(), call.inputs.token_ids.dtype = SAMEBITS_INT32;
  call.inputs.token_ids.row_stride = call.inputs.num_tokens;
  return call.run();
}

samebits_status token_id_low_half(RouteCall& call) {
  return with_narrow_tokens(
      call, [](const std::int64_t* tokens, std::int64_t t) { return static_cast<std::int32_t>(tokens[t]); });
}

samebits_status int64_tokens_read_as_int32(RouteCall& call) {
  const auto word = [](const std::int64_t* tokens, std::int64_t t) {
    return static_cast<std::int32_t>(tokens[t / 2] >> (t % 2 * 32));
  };
  return with_narrow_tokens(call, word);
}

samebits_status class_clamped(RouteCall& call) {
  if (call.inputs.row_class.data == nullptr) return call.run();
  const auto* given = static_cast<const std::int32_t*>(call.inputs.row_class.data);
  std::vector<std::int32_t> classes(given, given + call.inputs.num_tokens);
  const std::int32_t last = std::max(call.spec().num_bias_variants - 1, 0);
  for (std::int32_t& c : classes) c = std::clamp(c, 0, last);
  classes.push_back(0);
  call.inputs.row_class.data = classes.data(), call.inputs.row_class.row_stride = call.inputs.num_tokens;
  return call.run();
}

// Calls with a copy of the hidden states that edit(first value of row t, its address, t) has changed.
template <class Edit>
samebits_status with_hidden_states(RouteCall& call, Edit edit) {
  samebits_tensor& hidden = call.inputs.hidden_states;
  if (hidden.data == nullptr || call.inputs.num_tokens == 0) return call.run();
  const std::int64_t width = call.spec().hidden_size;
  std::vector<std::uint16_t> rows(static_cast<std::size_t>(call.inputs.num_tokens * width));
  const auto* given = static_cast<const std::uint16_t*>(hidden.data);
  for (std::int64_t t = 0; t < call.inputs.num_tokens; ++t) {
    std::copy_n(given + t * hidden.row_stride, width, rows.begin() + t * width);
    edit(rows.data() + t * width, given + t * hidden.row_stride, t);
  }
  hidden.data = rows.data(), hidden.row_stride = width;
  return call.run();
}

samebits_status block_edge_reads_row_before(RouteCall& call) {
  const std::int64_t width = call.spec().hidden_size, stride = call.inputs.hidden_states.row_stride;
  const auto edit = [=](std::uint16_t* row, const std::uint16_t* given, std::int64_t t) {
    if (t > 0 && t % 64 == 0) std::copy_n(given - stride, width, row);
  };
  return with_hidden_states(call, edit);
}

// Like a captured graph whose inputs were copied in once: the first hidden states of each row count are used again.
samebits_status first_inputs_replayed(RouteCall& call) {
  static std::mutex mutex;
  static std::map<std::pair<const void*, std::int64_t>, std::vector<std::uint16_t>> captured;
  const std::int64_t width = call.spec().hidden_size;
  const std::lock_guard lock(mutex);
  std::vector<std::uint16_t>& kept = captured[{call.router, call.inputs.num_tokens}];
  const auto size = static_cast<std::size_t>(width * call.inputs.num_tokens);
  const bool first = kept.size() != size;
  kept.resize(size);
  const auto edit = [&](std::uint16_t* row, const std::uint16_t*, std::int64_t t) {
    if (first) {
      std::copy_n(row, width, kept.begin() + t * width);
    } else {
      std::copy_n(kept.begin() + t * width, width, row);
    }
  };
  return with_hidden_states(call, edit);
}

samebits_status negative_count_is_all(RouteCall& call) {
  const bool negative = call.inputs.num_valid_rows != nullptr && *call.inputs.num_valid_rows < 0;
  return negative ? with_count(call, call.inputs.num_tokens) : call.run();
}

samebits_status count_above_rows_is_none(RouteCall& call) {
  const bool above = call.inputs.num_valid_rows != nullptr && *call.inputs.num_valid_rows > call.inputs.num_tokens;
  return above ? with_count(call, 0) : call.run();
}

samebits_status zero_count_returns_at_once(RouteCall& call) {
  const bool none = call.inputs.num_valid_rows != nullptr && *call.inputs.num_valid_rows == 0;
  return none ? samebits_status{SAMEBITS_OK} : call.run();
}

samebits_status empty_call_returns_at_once(RouteCall& call) {
  return call.inputs.num_tokens == 0 ? samebits_status{SAMEBITS_OK} : call.run();
}

samebits_status misaligned_head_skipped(RouteCall& call) {
  const std::int64_t width = call.spec().hidden_size;
  const auto edit = [=](std::uint16_t* row, const std::uint16_t* given, std::int64_t) {
    const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(given) % 16 / 2);
    if (past != 0) std::fill_n(row, std::min(8 - past, width), std::uint16_t{0});
  };
  return with_hidden_states(call, edit);
}

}  // namespace

std::vector<Mutant> unlisted_call_mutants() {
  const cpu::Steps& good = cpu::tc256_steps();
  return {
      {"U71",
       "negative_count_is_all",
       "a negative count of valid rows makes all rows valid",
       "padding",
       "an unsigned minimum",
       {"glm-5.3-flash"},
       good,
       around_route<negative_count_is_all>()},
      {"U72",
       "count_above_rows_is_none",
       "a count of valid rows above T makes no row valid",
       "padding",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<count_above_rows_is_none>()},
      {"U73",
       "count_rounded_up_to_8",
       "the count of valid rows is rounded up to a multiple of eight",
       "padding",
       "a mask by tile instead of by row",
       {"glm-5.3-flash"},
       good,
       around_route<count_rounded_up_to_8>()},
      {"U74",
       "zero_count_returns_at_once",
       "no valid row: the call returns and writes nothing",
       "buffers",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<zero_count_returns_at_once>()},
      {"U75",
       "empty_call_returns_at_once",
       "T = 0: the call returns and writes no counts",
       "bookkeeping",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<empty_call_returns_at_once>()},
      {"U76",
       "token_id_low_half",
       "of a 64-bit token id the lower 32 bits are read",
       "hash_routing",
       "a cast to int",
       {"deepseek-v4-flash", "0"},
       good,
       around_route<token_id_low_half>()},
      {"U77",
       "int64_tokens_read_as_int32",
       "64-bit token ids are read as pairs of 32-bit ones",
       "hash_routing",
       "",
       {"deepseek-v4-flash", "0"},
       good,
       around_route<int64_tokens_read_as_int32>()},
      {"U78",
       "class_clamped",
       "a class out of range becomes the nearest one in range",
       "unique_in_range",
       "",
       {"deepseek-v4.1-flash"},
       good,
       around_route<class_clamped>()},
      {"U79",
       "block_edge_reads_row_before",
       "the first row of every block of 64 reads the row before it",
       "batch_invariance",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<block_edge_reads_row_before>()},
      {"U80",
       "misaligned_head_skipped",
       "a row that starts between 16-byte boundaries loses its head",
       "layout",
       "vector loads from the next boundary on",
       {"glm-5.3-flash"},
       good,
       around_route<misaligned_head_skipped>()},
      {"U81",
       "first_inputs_replayed",
       "a second call with as many rows routes the rows of the first",
       "batch_invariance",
       "CUDA graphs whose inputs are not copied in again",
       {"glm-5.3-flash"},
       good,
       around_route<first_inputs_replayed>()},
  };
}

}  // namespace samebits::mutants
