// Progress on stderr: one rewriting line on a terminal, a plain line at the start and every 10 s otherwise.
#pragma once

#include <chrono>
#include <string>

namespace samebits::harness {

enum class ProgressMode { kAuto, kPlain, kNone };

class Progress {
 public:
  explicit Progress(ProgressMode mode);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Shows the line when it is due.
  void update(const std::string& line);
  // Shows a line of its own that stays.
  void message(const std::string& line);
  // Removes the rewriting line, so that other output may follow.
  void clear();

 private:
  bool shown_ = false;  // a rewriting line is on the terminal
  bool started_ = false;
  bool none_;
  bool terminal_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace samebits::harness
