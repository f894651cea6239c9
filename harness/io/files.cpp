#include "harness/io/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "harness/io/safetensors.h"

namespace samebits::harness {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail(const fs::path& path, const std::string& what) {
  throw FileError(fmt::format("{}: {}", path.string(), what));
}

void write_all(int descriptor, std::string_view content, const fs::path& path) {
  while (!content.empty()) {
    const ssize_t written = ::write(descriptor, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path, fmt::format("cannot write: {}", std::strerror(errno)));
    content.remove_prefix(static_cast<std::size_t>(written));
  }
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  // Closing reports delayed write errors of network file systems.
  int close() {
    const int result = ::close(value_);
    value_ = -1;
    return result;
  }

 private:
  int value_;
};

class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& target) {
    static std::atomic<unsigned> counter{0};
    path_ = target.parent_path() / fmt::format(".{}.{}-{}.tmp", target.filename().string(), ::getpid(), counter++);
  }
  ~TemporaryFile() {
    if (!kept_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const fs::path& path() const { return path_; }
  void keep() { kept_ = true; }

 private:
  fs::path path_;
  bool kept_ = false;
};

int create_exclusively(const fs::path& temporary, const fs::path& target) {
  const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    fail(target, fmt::format("cannot be written ({}); choose a file in a folder that exists and is writable",
                             std::strerror(errno)));
  }
  return descriptor;
}

// Through symbolic links, so that renaming replaces the file that a link means and not the link.
fs::path real_target(const fs::path& path) {
  std::error_code error;
  const fs::path resolved = fs::canonical(path, error);
  return error ? path : resolved;
}

}  // namespace

std::string read_file(const fs::path& path, std::uint64_t max_bytes) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) fail(path, "no such file");
  if (error) fail(path, error.message());
  if (status.type() != fs::file_type::regular) fail(path, "not a regular file");
  const std::uint64_t size = fs::file_size(path, error);
  if (error) fail(path, error.message());
  if (size > max_bytes) fail(path, fmt::format("{} bytes; allowed are at most {}", size, max_bytes));
  std::ifstream stream(path, std::ios::binary);
  if (!stream) fail(path, fmt::format("cannot be opened: {}", std::strerror(errno)));
  std::string content(size, '\0');
  stream.read(content.data(), static_cast<std::streamsize>(size));
  if (static_cast<std::uint64_t>(stream.gcount()) != size) fail(path, "cannot be read to its end");
  return content;
}

void write_file(const fs::path& path, std::string_view content) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::directory) fail(path, "is a folder; a file name is needed");
  if (fs::exists(status) && status.type() != fs::file_type::regular) {
    Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (file.get() < 0) fail(path, fmt::format("cannot be opened for writing: {}", std::strerror(errno)));
    write_all(file.get(), content, path);
    return;
  }
  const fs::path target = real_target(path);
  TemporaryFile temporary(target);
  Descriptor file(create_exclusively(temporary.path(), path));
  write_all(file.get(), content, path);
  if (file.close() != 0) fail(path, fmt::format("cannot write: {}", std::strerror(errno)));
  if (::rename(temporary.path().c_str(), target.c_str()) != 0) {
    fail(path, fmt::format("cannot be replaced: {}", std::strerror(errno)));
  }
  temporary.keep();
}

void check_writable_file(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::directory) fail(path, "is a folder; a file name is needed");
  if (fs::exists(status) && status.type() != fs::file_type::regular) {
    if (::access(path.c_str(), W_OK) != 0) fail(path, fmt::format("cannot be written: {}", std::strerror(errno)));
    return;
  }
  const TemporaryFile temporary(real_target(path));
  const Descriptor file(create_exclusively(temporary.path(), path));
}

bool check_writable_folder(const fs::path& folder) {
  std::error_code error;
  const bool created = fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder)) {
    fail(folder, fmt::format("cannot be used as a folder ({}); choose another folder",
                             error ? error.message() : "not a directory"));
  }
  const TemporaryFile temporary(folder / "probe");
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    fail(folder, fmt::format("is not writable ({}); choose another folder", std::strerror(errno)));
  }
  const Descriptor file(create_exclusively(temporary.path(), folder));
  return created;
}

std::string shell_word(const std::string& text) {
  const bool plain = !text.empty() && text.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789_-./:=,+@%") == std::string::npos;
  if (plain) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::uint64_t content_hash(std::string_view bytes, std::uint64_t start) {
  std::uint64_t hash = start;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace samebits::harness
