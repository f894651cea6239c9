// Runs the built program as a child, as a user does.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "harness/test/io_temp_folder.h"

namespace samebits::harness {

struct ChildResult {
  int exit_code = -1;  // 128 + signal when it was killed
  std::string out, err;
};

// A started child. Its streams go to files of `folder`, which is also its current folder.
class Child {
 public:
  Child(const TempFolder& folder, const std::vector<std::string>& arguments,
        const std::string& program = SAMEBITS_PROGRAM)
      : folder_(folder) {
    std::vector<char*> words = {const_cast<char*>(program.c_str())};
    for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
    words.push_back(nullptr);
    const std::string out = folder / ".stdout", err = folder / ".stderr";
    std::filesystem::remove(err);
    pid_ = ::fork();
    if (pid_ != 0) return;
    const int out_file = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int err_file = ::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (::chdir(folder.path().c_str()) != 0 || ::dup2(out_file, 1) < 0 || ::dup2(err_file, 2) < 0) ::_exit(99);
    ::execv(words[0], words.data());
    ::_exit(98);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void interrupt(int signal = SIGINT) const { ::kill(pid_, signal); }
  // Waits until the child has written this to stderr, or has ended.
  bool wait_for_stderr(const std::string& text) const {
    while (content_of(folder_ / ".stderr").find(text) == std::string::npos) {
      siginfo_t state{};
      if (::waitid(P_PID, static_cast<id_t>(pid_), &state, WEXITED | WNOHANG | WNOWAIT) != 0 || state.si_pid != 0)
        return false;
      ::usleep(1000);
    }
    return true;
  }
  ChildResult wait() const {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    ChildResult result;
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    result.out = content_of(folder_ / ".stdout");
    result.err = content_of(folder_ / ".stderr");
    return result;
  }

 private:
  const TempFolder& folder_;
  pid_t pid_ = -1;
};

inline ChildResult run_program_in(const TempFolder& folder, const std::vector<std::string>& arguments) {
  return Child(folder, arguments).wait();
}

// A folder with a router small enough for whole runs in a test.
class SmallSpec : public ::testing::Test {
 protected:
  SmallSpec() {
    folder_.write("small.yaml",
                  "spec_version: 1\n"
                  "name: small\n"
                  "shape: {hidden_size: 64, num_experts: 8, top_k: 2}\n"
                  "score: {func: sigmoid}\n"
                  "selection: {bias: fp32}\n"
                  "weights: {renormalize: l1, eps: 1e-20, eps_mode: add, routed_scaling_factor: 2.5}\n");
  }
  ChildResult run(const std::vector<std::string>& arguments) const { return run_program_in(folder_, arguments); }
  TempFolder folder_;
};

}  // namespace samebits::harness
