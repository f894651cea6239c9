// One end of the connection between the program and its worker: small messages over a socket, their content in one
// file in memory that both have open. Strictly question and answer, so the file holds one content at a time. Between
// the two the worker announces which function of the plug-in it is about to call; an announcement has no content.
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

#include "harness/backend/call.h"

namespace samebits::harness {

// kReady is the worker's first word, kCall an announcement; every other message of the worker answers the question of
// the same name.
enum class Question : std::uint32_t { kReady = 1, kLoad, kDescribe, kSupports, kBeginCase, kRun, kEndCase, kCall };

struct Message {
  Question question = Question::kReady;
  Call call = Call::kNone;  // of kCall
  std::vector<std::byte> content;
};

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
  // kCall, without content. false: the other side has gone.
  bool announce(Call call);
  // Waits for one message; without a deadline for ever.
  Outcome receive(Message& message, const Deadline* deadline = nullptr);

  void close();

 private:
  bool send_header(Question question, Call call, std::uint64_t bytes);

  FileDescriptor socket_;
  FileDescriptor file_;
};

struct ChannelEnds {
  FileDescriptor ours, theirs, file;
};
// A connected pair of sockets and an empty file, none of which survives an exec. Throws std::system_error.
ChannelEnds make_channel_ends();

}  // namespace samebits::harness
