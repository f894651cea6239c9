#include "oracle/exact/declared_arithmetic.h"

#include <charconv>

namespace samebits::oracle {
namespace {

constexpr std::string_view kDepthPrefix = "fp32-depth:";
constexpr std::int64_t kMaxDepth = std::int64_t{1} << 20;  // the bounds assume fewer roundings than 2^24

}  // namespace

std::string arithmetic_name(const Arithmetic& arithmetic) {
  switch (arithmetic.kind) {
    case Arithmetic::kTc256:
      return "tc256";
    case Arithmetic::kFp32AnyOrder:
      return "fp32-any-order";
    case Arithmetic::kBf16Logits:
      return "bf16-logits";
    case Arithmetic::kFp32Depth:
      break;
  }
  return std::string(kDepthPrefix) + std::to_string(arithmetic.depth);
}

std::optional<Arithmetic> parse_arithmetic(std::string_view name) {
  for (const Arithmetic::Kind kind : {Arithmetic::kTc256, Arithmetic::kFp32AnyOrder, Arithmetic::kBf16Logits}) {
    if (name == arithmetic_name(kind)) return Arithmetic(kind);
  }
  if (!name.starts_with(kDepthPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kDepthPrefix.size());
  std::int64_t depth = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), depth);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  if (!whole || digits.front() == '0' || depth < 1 || depth > kMaxDepth) return std::nullopt;
  return Arithmetic(Arithmetic::kFp32Depth, depth);
}

}  // namespace samebits::oracle
