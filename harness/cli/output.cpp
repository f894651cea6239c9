#include "harness/cli/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "harness/io/files.h"
#include "harness/report/printable.h"

namespace samebits::harness {
namespace {

int g_lost_because = 0;  // errno of the first failed write to standard output

}  // namespace

void write_text(std::FILE* stream, std::string_view text) {
  const std::string safe = printable(text);
  errno = 0;
  const bool written = std::fwrite(safe.data(), 1, safe.size(), stream) == safe.size();
  if (!written && stream == stdout && g_lost_because == 0) g_lost_because = errno == 0 ? EIO : errno;
}

void hold_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is this one. Reading from a closed input gives its end, writing to an output an error.
    [[maybe_unused]] const int held = ::open("/dev/null", descriptor == STDIN_FILENO ? O_RDWR : O_RDONLY);
  }
}

void flush_output() {
  errno = 0;
  if (std::fflush(stdout) != 0 && g_lost_because == 0) g_lost_because = errno == 0 ? EIO : errno;
}

void publish(const Report& report, const std::string& json_path) {
  print_out("{}", to_console(report, ::isatty(STDOUT_FILENO) == 1 ? Output::kTerminal : Output::kFile));
  flush_output();
  if (!json_path.empty()) write_file(json_path, to_json(report));
}

int finish_output(int code) {
  flush_output();
  if (g_lost_because == 0 && std::ferror(stdout) != 0) g_lost_because = EIO;
  if (g_lost_because == 0 || g_lost_because == EPIPE) return code;
  print_error("samebits: standard output cannot be written: {}; what was printed is lost\n",
              std::strerror(g_lost_because));
  constexpr int kClean = 0, kUsage = 2, kTooLittle = 4;
  return code == kClean || code == kTooLittle ? kUsage : code;
}

}  // namespace samebits::harness
