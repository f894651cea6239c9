// A child process that is never left behind: not as a zombie, not alive when its owner has gone.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "harness/backend/channel.h"

namespace samebits::harness {

class ChildProcess {
 public:
  // File descriptors of the channel in the child.
  static constexpr int kSocket = 3;
  static constexpr int kFile = 4;

  // fork + exec of `program`. The child has the two descriptors above, /dev/null as stdin and our stderr as stdout and
  // stderr, and nothing else open; it leads a process group of its own, so that Ctrl-C reaches the parent alone; it is
  // killed when the thread that called start() ends. Throws std::system_error.
  static ChildProcess start(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                            const FileDescriptor& socket, const FileDescriptor& file);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess() { kill(); }

  // The wait status once the child has ended; its process group is ended then, and it is reaped.
  std::optional<int> ended();
  // As ended(), but waits until the deadline.
  std::optional<int> wait_until(const Deadline& deadline);
  // Ends the whole process group and reaps the child.
  void kill();

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_;  // -1: moved from, or reaped
  std::optional<int> status_;
};

// "SIGSEGV (Segmentation fault)", "exit code 0".
std::string end_text(int wait_status);

}  // namespace samebits::harness
