// Reading and writing whole files: limits on what is read, and writes that are seen complete or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace samebits::harness {

// The bytes of a regular file. Throws FileError when it is missing, not a regular file or longer than max_bytes.
std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes);

// Writes a temporary file in the same folder and renames it. A device or pipe (/dev/stdout) is written directly.
void write_file(const std::filesystem::path& path, std::string_view content);

// Throw FileError now rather than after the work: the file could not be written, or the folder not created or used.
void check_writable_file(const std::filesystem::path& path);
// Creates the folder where it is missing; returns true when it did.
bool check_writable_folder(const std::filesystem::path& folder);

// The text as one word of a POSIX shell.
std::string shell_word(const std::string& text);

// FNV-1a, 64 bits: file names and identity of cases, no security.
std::uint64_t content_hash(std::string_view bytes, std::uint64_t start = 0xcbf29ce484222325u);

}  // namespace samebits::harness
