// One end of the connection between the program and its worker: small messages over a socket, their content in one
// file in memory that both have open. Strictly question and answer, so the file holds one content at a time.
//
// The file is read and written with system calls and never mapped, so a plug-in with a wild pointer cannot change what
// the other side reads.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace samebits::harness {

// kReady is the worker's first word; every other message of the worker answers the question of the same name.
enum class Question : std::uint32_t { kReady = 1, kLoad, kDescribe, kSupports, kBeginCase, kRun };

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor() { reset(); }
  int get() const { return fd_; }
  int release();
  void reset();

 private:
  int fd_;
};

using Deadline = std::chrono::steady_clock::time_point;

class Channel {
 public:
  Channel(FileDescriptor socket, FileDescriptor file);

  enum class Outcome {
    kMessage,
    kClosed,   // the other side has gone
    kTimeout,  // nothing came until the deadline
    kGarbage,  // what came is no message of this protocol
  };

  // false: the other side has gone. Throws std::system_error when the content cannot be stored.
  bool send(Question question, std::span<const std::byte> content);
  // Waits for one message; without a deadline for ever.
  Outcome receive(Question& question, std::vector<std::byte>& content, const Deadline* deadline = nullptr);

  void close();

 private:
  FileDescriptor socket_;
  FileDescriptor file_;
};

struct ChannelEnds {
  FileDescriptor ours, theirs, file;
};
// A connected pair of sockets and an empty file, none of which survives an exec. Throws std::system_error.
ChannelEnds make_channel_ends();

}  // namespace samebits::harness
