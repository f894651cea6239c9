// The dtype strings of safetensors files: the one table of them.
#pragma once

#include <cstdint>
#include <string_view>

namespace samebits::harness {

struct DtypeInfo {
  std::string_view name;
  std::int64_t bytes;  // of one element
};

inline constexpr DtypeInfo kDtypes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"U16", 2}, {"I16", 2}, {"F16", 2},
    {"BF16", 2}, {"U32", 4}, {"I32", 4}, {"F32", 4},     {"U64", 8},     {"I64", 8}, {"F64", 8},
};

// nullptr: no such dtype.
inline const DtypeInfo* find_dtype(std::string_view name) {
  for (const DtypeInfo& dtype : kDtypes) {
    if (dtype.name == name) return &dtype;
  }
  return nullptr;
}

}  // namespace samebits::harness
