// The arithmetic that a router declares for its logits, and the names under which it is declared.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace samebits::oracle {

struct Arithmetic {
  enum Kind : std::uint8_t {
    kTc256,         // the contract, bit for bit
    kFp32AnyOrder,  // fp32 sums in any order, on tensor cores too; products exact, rounded or fused; gradual underflow
    kBf16Logits,    // the same, rounded to bf16 once
    kFp32Depth,     // fp32 sums in which no term meets more than `depth` roundings, its product among them
  };
  Kind kind = kFp32AnyOrder;
  std::int64_t depth = 0;  // of kFp32Depth, at least 1; else 0

  constexpr Arithmetic() = default;
  constexpr Arithmetic(Kind k, std::int64_t d = 0) : kind(k), depth(d) {}  // NOLINT: a kind without parameter is one
  bool operator==(const Arithmetic&) const = default;
};

// "tc256", "fp32-any-order", "bf16-logits", "fp32-depth:24".
std::string arithmetic_name(const Arithmetic& arithmetic);
// nullopt: none of these; the depth is an integer 1 .. 2^20 without sign or leading zero.
std::optional<Arithmetic> parse_arithmetic(std::string_view name);

}  // namespace samebits::oracle
