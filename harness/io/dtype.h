// The dtype strings of safetensors files: the one table of them, with the words of those that tensors of a case have.
#pragma once

#include <cstdint>
#include <string_view>

namespace samebits::harness {

struct DtypeInfo {
  std::string_view name;
  std::int64_t bytes;     // of one element
  std::string_view word;  // in YAML, as the specs spell it; empty: no tensor of a case has it
};

inline constexpr DtypeInfo kDtypes[] = {
    {"BOOL", 1, ""},     {"U8", 1, ""},      {"I8", 1, ""},  {"F8_E4M3", 1, ""},  {"F8_E5M2", 1, ""},
    {"U16", 2, ""},      {"I16", 2, ""},     {"F16", 2, ""}, {"BF16", 2, "bf16"}, {"U32", 4, ""},
    {"I32", 4, "int32"}, {"F32", 4, "fp32"}, {"U64", 8, ""}, {"I64", 8, "int64"}, {"F64", 8, ""},
};
inline constexpr std::string_view kDtypeWords = "bf16, fp32, int32, int64";

// nullptr: no such dtype.
inline const DtypeInfo* find_dtype(std::string_view name) {
  for (const DtypeInfo& dtype : kDtypes) {
    if (dtype.name == name) return &dtype;
  }
  return nullptr;
}

// By its YAML word; nullptr: no tensor of a case has it.
inline const DtypeInfo* find_dtype_word(std::string_view word) {
  for (const DtypeInfo& dtype : kDtypes) {
    if (!dtype.word.empty() && dtype.word == word) return &dtype;
  }
  return nullptr;
}

}  // namespace samebits::harness
