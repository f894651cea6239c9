#include "harness/cli/interrupt.h"

#include <unistd.h>

#include <csignal>
#include <initializer_list>

namespace samebits::harness {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

extern "C" void on_interrupt(int) {
  g_interrupted = 1;
  constexpr char kText[] = "\nstopping; Ctrl-C or SIGTERM again ends at once\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText, sizeof kText - 1);
}

}  // namespace

void install_interrupt_handler() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  // One shot, so that the second signal meets the default action.
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
}

bool interrupted() {
  return g_interrupted != 0;
}

}  // namespace samebits::harness
