#include "harness/cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include "harness/cli/output.h"
#include "harness/report/printable.h"

namespace samebits::harness {
namespace {

using std::chrono::milliseconds;

std::size_t terminal_width() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

Progress::Progress(ProgressMode mode)
    : none_(mode == ProgressMode::kNone), terminal_(mode == ProgressMode::kAuto && ::isatty(STDERR_FILENO) == 1) {}

void Progress::update(const std::string& line) {
  if (none_) return;
  const auto now = std::chrono::steady_clock::now();
  if (started_ && now - last_ < milliseconds(terminal_ ? 100 : 10'000)) return;
  started_ = true;
  last_ = now;
  if (!terminal_) {
    print_error("{}\n", printable_line(line));
    return;
  }
  std::fputs("\r\x1b[2K", stderr);
  print_error("{}", printable_line(line).substr(0, terminal_width() - 1));
  std::fflush(stderr);
  shown_ = true;
}

void Progress::message(const std::string& line) {
  if (none_) return;
  clear();
  print_error("{}\n", printable_line(line));
}

void Progress::clear() {
  if (!shown_) return;
  std::fputs("\r\x1b[2K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace samebits::harness
