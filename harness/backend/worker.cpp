// The worker's side: loads one plug-in and answers the parent's questions until the parent hangs up.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>

#include "harness/backend/abi_table.h"
#include "harness/backend/backend.h"
#include "harness/backend/channel.h"
#include "harness/backend/child_process.h"
#include "harness/backend/local_router.h"
#include "harness/backend/wire.h"
#include "harness/backend/worker_router.h"

namespace samebits::harness {
namespace {

class Worker {
 public:
  explicit Worker(Channel& channel)
      : watch_([&channel](Call call) {
          if (!channel.announce(call)) _exit(kExitConnectionLost);
        }) {}

  std::vector<std::byte> answer(Question question, std::span<const std::byte> content) {
    switch (question) {
      case Question::kLoad: {
        std::string library;
        from_wire(content, library);
        return to_wire(load(library));
      }
      case Question::kDescribe: {
        const std::string problem = describe_router();
        return to_wire(problem, router_ ? router_->info() : samebits_info{});
      }
      case Question::kSupports: {
        samebits_router_spec spec{};
        from_wire(content, spec);
        return to_wire(router_->unsupported(spec));
      }
      case Question::kBeginCase: {
        samebits_router_spec spec{};
        std::int32_t table_dtype = SAMEBITS_DTYPE_NONE;
        std::int32_t constants_gap = 0;
        from_wire(content, spec, table_dtype, inputs_, constants_gap);
        return to_wire(router_->begin_case(spec, table_dtype, inputs_, constants_gap));
      }
      case Question::kRun: {
        properties::RunRequest request;
        from_wire(content, request);
        return to_wire(router_->run(request));
      }
      case Question::kEndCase:
        return to_wire(router_->end_case());
      case Question::kReady:
      case Question::kCall:
        break;
    }
    throw WireError("unknown question");
  }

 private:
  // What is wrong; empty: nothing.
  std::string load(const std::string& library) {
    try {
      table_ = load_table(library, watch_);
      return {};
    } catch (const AbiError& error) {
      return error.what();
    }
  }

  std::string describe_router() {
    try {
      router_.emplace(table_, watch_);
      return {};
    } catch (const AbiError& error) {
      return error.what();
    }
  }

  CallWatch watch_;
  AbiTable table_;
  std::optional<LocalRouter> router_;
  oracle::RouterInputs inputs_;
};

void set_up_process() {
  for (const int fd : {ChildProcess::kSocket, ChildProcess::kFile}) fcntl(fd, F_SETFD, FD_CLOEXEC);
  // A sanitizer's handlers would turn a signal into an exit code; the parent wants to name the signal.
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) std::signal(signal, SIG_DFL);
  // Shrinking repeats a crash many times; core files would fill the disk.
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
}

bool started_by_parent() {
  int type = 0;
  socklen_t size = sizeof(type);
  return getsockopt(ChildProcess::kSocket, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
}

}  // namespace

int run_worker(int, char**) {
  if (!started_by_parent()) {
    std::fputs(
        "samebits worker: this command is started by samebits itself to run a plug-in (samebits fuzz --plugin FILE)\n",
        stderr);
    return 2;
  }
  set_up_process();
  Channel channel{FileDescriptor(ChildProcess::kSocket), FileDescriptor(ChildProcess::kFile)};
  Worker worker(channel);
  try {
    if (!channel.send(Question::kReady, {})) return 0;
    Message asked;
    while (channel.receive(asked) == Channel::Outcome::kMessage) {
      if (!channel.send(asked.question, worker.answer(asked.question, asked.content))) _exit(kExitConnectionLost);
    }
  } catch (const std::system_error&) {
    _exit(kExitConnectionLost);  // the file in memory is gone
  } catch (const std::exception& error) {
    std::fprintf(stderr, "samebits worker: %s\n", error.what());
    _exit(kExitNonsense);
  }
  return 0;
}

}  // namespace samebits::harness
