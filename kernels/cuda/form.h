// The forms of a call, and which of them serves it. All forms give the same bits.
#pragma once

#include <cstdint>
#include <optional>

namespace samebits::cuda {

// Three forms of the logits, which the selection follows, and one launch for both.
enum class Form { kPlain, kDecode, kPrefill, kFused };

inline constexpr std::int64_t kDecodeRows = 256;  // the most rows of a call that the decode form serves

const char* form_name(Form form);

}  // namespace samebits::cuda
