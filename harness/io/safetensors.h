// safetensors files: 8-byte little-endian header length, JSON header, raw bytes. A file is hostile until it is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace samebits::harness {

// Message: FILE: what was found; what is allowed.
class FileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct SafeTensor {
  std::string dtype;  // "F32", "BF16", "I32", "I64", "U8", ...
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

struct SafeTensors {
  std::map<std::string, SafeTensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Checks header length (<= 100 MB), JSON, ranges inside the file, no overlap or hole, dtype x shape == length.
SafeTensors read_safetensors(const std::filesystem::path& path);
// Written to a temporary file in the same folder and renamed, so that no half-written file is ever seen.
void write_safetensors(const std::filesystem::path& path, const SafeTensors& content);

}  // namespace samebits::harness
