#include "harness/backend/channel.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <system_error>
#include <utility>

namespace samebits::harness {
namespace {

constexpr std::uint32_t kMagic = 0x53424d32;  // "SBM2"

struct Header {
  std::uint32_t magic;
  Question question;
  Call call;
  std::uint32_t zero;
  std::uint64_t bytes;
};

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

void write_all(int fd, std::span<const std::byte> content) {
  for (std::size_t done = 0; done < content.size();) {
    const ssize_t n = pwrite(fd, content.data() + done, content.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("writing to the worker's memory file");
    done += static_cast<std::size_t>(n);
  }
}

bool read_all(int fd, std::span<std::byte> content) {
  for (std::size_t done = 0; done < content.size();) {
    const ssize_t n = pread(fd, content.data() + done, content.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

int milliseconds_until(const Deadline& deadline) {
  using std::chrono::milliseconds;
  const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX));
}

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

int FileDescriptor::release() {
  return std::exchange(fd_, -1);
}

void FileDescriptor::reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Channel::Channel(FileDescriptor socket, FileDescriptor file) : socket_(std::move(socket)), file_(std::move(file)) {}

bool Channel::send(Question question, std::span<const std::byte> content) {
  write_all(file_.get(), content);
  return send_header(question, Call::kNone, content.size());
}

bool Channel::announce(Call call) {
  return send_header(Question::kCall, call, 0);
}

bool Channel::send_header(Question question, Call call, std::uint64_t bytes) {
  const Header header{kMagic, question, call, 0, bytes};
  for (;;) {
    // MSG_NOSIGNAL: a worker that has gone is an answer, not a reason to die of SIGPIPE.
    if (::send(socket_.get(), &header, sizeof(header), MSG_NOSIGNAL) == sizeof(header)) return true;
    if (errno != EINTR) return false;
  }
}

Channel::Outcome Channel::receive(Message& message, const Deadline* deadline) {
  for (;;) {
    pollfd poll_fd{socket_.get(), POLLIN, 0};
    const int ready = poll(&poll_fd, 1, deadline == nullptr ? -1 : milliseconds_until(*deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return Outcome::kClosed;
    if (ready == 0) return Outcome::kTimeout;
    Header header{};
    const ssize_t n = recv(socket_.get(), &header, sizeof(header), MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return Outcome::kClosed;
    struct stat file_status {};
    if (n != sizeof(header) || header.magic != kMagic || fstat(file_.get(), &file_status) != 0 ||
        header.bytes > static_cast<std::uint64_t>(file_status.st_size)) {
      return Outcome::kGarbage;
    }
    message.question = header.question;
    message.call = header.call;
    message.content.resize(header.bytes);
    return read_all(file_.get(), message.content) ? Outcome::kMessage : Outcome::kGarbage;
  }
}

void Channel::close() {
  socket_.reset();
  file_.reset();
}

ChannelEnds make_channel_ends() {
  int sockets[2];
  // SOCK_SEQPACKET keeps message borders, so a stray write of a plug-in cannot shift the ones that follow.
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) fail("socketpair for the worker");
  ChannelEnds ends{FileDescriptor(sockets[0]), FileDescriptor(sockets[1]), FileDescriptor()};
  ends.file = FileDescriptor(memfd_create("samebits-worker", MFD_CLOEXEC));
  if (ends.file.get() < 0) fail("memfd_create for the worker");
  return ends;
}

}  // namespace samebits::harness
