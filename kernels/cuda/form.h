// The forms of the logits, and which of them serves a call. All forms give the same bits.
#pragma once

#include <cstdint>
#include <optional>

namespace samebits::cuda {

enum class Form { kPlain, kDecode, kPrefill };

inline constexpr std::int64_t kDecodeRows = 256;  // the most rows of a call that the decode form serves

const char* form_name(Form form);

}  // namespace samebits::cuda
