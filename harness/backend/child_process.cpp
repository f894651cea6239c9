#include "harness/backend/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

namespace samebits::harness {
namespace {

constexpr int kExecFailed = 127;

// Runs in the child between fork and exec: other threads may have held locks at the fork, so only async-signal-safe
// functions are allowed here.
[[noreturn]] void become(const char* program, char* const* arguments, int socket, int file, int null, pid_t parent) {
  setpgid(0, 0);
  // The parent may have died before the request was made.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(kExecFailed);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // Copies above the target numbers first, because a source may have one of those numbers.
  const int high_socket = fcntl(socket, F_DUPFD, ChildProcess::kFile + 1);
  const int high_file = fcntl(file, F_DUPFD, ChildProcess::kFile + 1);
  const int high_null = fcntl(null, F_DUPFD, ChildProcess::kFile + 1);
  if (high_socket < 0 || high_file < 0 || high_null < 0 || dup2(high_null, STDIN_FILENO) < 0 ||
      dup2(STDERR_FILENO, STDOUT_FILENO) < 0 || dup2(high_socket, ChildProcess::kSocket) < 0 ||
      dup2(high_file, ChildProcess::kFile) < 0) {
    _exit(kExecFailed);
  }
  close_range(ChildProcess::kFile + 1, ~0u, 0);
  execv(program, arguments);
  _exit(kExecFailed);
}

}  // namespace

ChildProcess ChildProcess::start(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                                 const FileDescriptor& socket, const FileDescriptor& file) {
  const std::string program_text = program.string();
  std::vector<std::string> storage = {"samebits"};
  storage.insert(storage.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : storage) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const FileDescriptor null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (null.get() < 0) throw std::system_error(errno, std::generic_category(), "opening /dev/null");

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw std::system_error(errno, std::generic_category(), "fork for the worker");
  if (pid == 0) become(program_text.c_str(), argv.data(), socket.get(), file.get(), null.get(), parent);
  setpgid(pid, pid);  // here as well: kill() may come before the child has done it
  return ChildProcess(pid);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), status_(other.status_) {}

std::optional<int> ChildProcess::ended() {
  if (pid_ < 0) return status_;
  siginfo_t info{};
  int found = 0;
  do {
    found = waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  } while (found < 0 && errno == EINTR);
  if (found != 0 || info.si_pid != pid_) return std::nullopt;
  kill();  // what it has started; before it is reaped, because its number may be given away then
  return status_;
}

std::optional<int> ChildProcess::wait_until(const Deadline& deadline) {
  for (;;) {
    if (const auto status = ended()) return status;
    if (std::chrono::steady_clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void ChildProcess::kill() {
  if (pid_ < 0) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  status_ = status;
}

std::string end_text(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    const char* name = sigabbrev_np(signal);
    return fmt::format("SIG{} ({})", name == nullptr ? std::to_string(signal) : name, sigdescr_np(signal));
  }
  return fmt::format("exit code {}", WEXITSTATUS(wait_status));
}

}  // namespace samebits::harness
