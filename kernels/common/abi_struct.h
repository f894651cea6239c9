// Reading the structs of the C ABI, whose size may differ from the one this router was built with.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "kernels/common/error.h"

namespace samebits {

// What a caller of the first version passes: no field of it may be cut off.
inline constexpr std::size_t kLeastInfoSize = offsetof(samebits_info, max_tokens) + sizeof(std::int64_t);

// Larger than a struct of any version: what was never set, so that nothing as far as that may be read or written.
inline constexpr std::size_t kMostStructSize = 65536;

// A copy in which the fields beyond struct_size are zero. Fields that only a newer caller knows must be zero.
template <class Struct>
Struct read_struct(const Struct* from, const std::string& name) {
  if (from == nullptr) fail_invalid(name + " is null");
  const std::size_t size = from->struct_size;
  if (size < 2 * sizeof(std::uint32_t) || size > kMostStructSize) {
    fail_invalid(name + ".struct_size: found " + std::to_string(size) + "; set it to sizeof of the struct, " +
                 std::to_string(sizeof(Struct)) + " in this version");
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  if (size > sizeof(Struct) && std::any_of(bytes + sizeof(Struct), bytes + size, [](auto b) { return b != 0; })) {
    fail_unsupported(name + " sets fields beyond the " + std::to_string(sizeof(Struct)) +
                     " bytes that this router knows; leave them zero or use a newer router");
  }
  Struct copy{};
  std::memcpy(&copy, from, std::min(size, sizeof(Struct)));
  return copy;
}

}  // namespace samebits
