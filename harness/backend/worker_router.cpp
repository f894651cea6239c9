#include "harness/backend/worker_router.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "harness/backend/backend.h"
#include "harness/backend/wire.h"

namespace samebits::harness {
namespace {

using properties::RunResult;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Our own program has to start within this; the plug-in's time starts after it.
constexpr milliseconds kStartTimeout{60000};
// For the plug-in's exit handlers, after the last question.
constexpr milliseconds kStopTimeout{2000};
// A descendant of the worker may hold the socket open after its death, so the process is looked at as well.
constexpr milliseconds kLookInterval{50};

std::filesystem::path& worker_program() {
  static std::filesystem::path program = "/proc/self/exe";
  return program;
}

RunResult crashed(std::string message) {
  RunResult result;
  result.status = RunResult::Status::kCrashed;
  result.message = std::move(message);
  return result;
}

RunResult result_of_end(int wait_status, const std::string& what) {
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == kExitConnectionLost) {
    return crashed(fmt::format("the plug-in closed the worker's file descriptors in {}", what));
  }
  if (WIFEXITED(wait_status)) {
    return crashed(fmt::format("{} in {}: the process was ended from inside", end_text(wait_status), what));
  }
  return crashed(fmt::format("{} in {}", end_text(wait_status), what));
}

}  // namespace

void set_worker_program(const std::filesystem::path& program) {
  worker_program() = program;
}

WorkerRouter::WorkerRouter(std::filesystem::path plugin, milliseconds timeout)
    : plugin_(std::move(plugin)), timeout_(timeout) {
  start();
}

WorkerRouter::~WorkerRouter() {
  stop();
}

void WorkerRouter::stop() {
  if (!worker_) return;
  worker_->channel.close();
  worker_->process.wait_until(Clock::now() + kStopTimeout);
  worker_.reset();
}

void WorkerRouter::start() {
  const auto fail = [this](const std::string& text) {
    worker_.reset();
    throw BackendError(fmt::format("plug-in {}: {}", plugin_.string(), text));
  };
  std::error_code error;
  const auto status = std::filesystem::status(plugin_, error);
  if (!std::filesystem::exists(status)) fail("no such file");
  if (!std::filesystem::is_regular_file(status)) fail("it is not a file; expected is a shared library");

  try {
    ChannelEnds ends = make_channel_ends();
    ChildProcess process = ChildProcess::start(worker_program(), {"worker"}, ends.theirs, ends.file);
    worker_.emplace(Worker{Channel(std::move(ends.ours), std::move(ends.file)), std::move(process)});
  } catch (const std::system_error& failure) {
    fail(fmt::format("its worker could not be started: {}", failure.what()));
  }
  if (const auto ready = await(Question::kReady, "its start", kStartTimeout); ready.index() == 1) {
    fail(fmt::format("its worker ({} worker) could not be started: {}", worker_program().string(),
                     std::get<1>(ready).message));
  }

  std::string problem;  // empty: none
  const auto loaded = ask(Question::kLoad, to_wire(plugin_.string()), "dlopen (the library's constructors)", timeout_);
  if (loaded.index() == 1) fail(std::get<1>(loaded).message);
  try {
    from_wire(std::get<0>(loaded), problem);
    if (!problem.empty()) fail(problem);
    const auto described = ask(Question::kDescribe, {}, "samebits_describe", timeout_);
    if (described.index() == 1) fail(std::get<1>(described).message);
    from_wire(std::get<0>(described), problem, info_);
    if (!problem.empty()) fail(problem);
  } catch (const WireError& damage) {
    fail(fmt::format("its worker answered nonsense: {}", damage.what()));
  }
}

std::variant<WorkerRouter::Answer, RunResult> WorkerRouter::ask(Question question, std::span<const std::byte> content,
                                                                const std::string& what, milliseconds timeout) {
  if (!worker_->channel.send(question, content)) {
    return lost(what, Clock::now() + timeout);
  }
  return await(question, what, timeout);
}

std::variant<WorkerRouter::Answer, RunResult> WorkerRouter::await(Question question, const std::string& what,
                                                                  milliseconds timeout) {
  const Deadline deadline = Clock::now() + timeout;
  bool process_ended = false;
  for (;;) {
    const Deadline look = std::min<Deadline>(deadline, Clock::now() + kLookInterval);
    Question answered{};
    Answer answer;
    switch (worker_->channel.receive(answered, answer, &look)) {
      case Channel::Outcome::kMessage:
        if (answered == question) return answer;
        [[fallthrough]];
      case Channel::Outcome::kGarbage:
        worker_.reset();
        return crashed(fmt::format("the plug-in wrote into the worker's connection in {}", what));
      case Channel::Outcome::kClosed:
        return lost(what, deadline);
      case Channel::Outcome::kTimeout:
        // An answer sent just before the end is still read: the process is seen to end one look before we give up.
        if (process_ended) return lost(what, deadline);
        process_ended = worker_->process.ended().has_value();
        if (!process_ended && Clock::now() >= deadline) {
          worker_.reset();
          RunResult result;
          result.status = RunResult::Status::kTimedOut;
          result.message = fmt::format("no answer from {} within {} ms; the worker was killed", what, timeout.count());
          return result;
        }
    }
  }
}

// The connection is closed: by the end of the process, or by the plug-in while the process goes on.
RunResult WorkerRouter::lost(const std::string& what, const Deadline& deadline) {
  const std::optional<int> status = worker_->process.wait_until(deadline);
  worker_.reset();
  if (status) return result_of_end(*status, what);
  return crashed(fmt::format("the plug-in closed the worker's connection in {}; the worker was killed", what));
}

std::optional<std::string> WorkerRouter::unsupported(const samebits_router_spec& spec) {
  if (!worker_) start();
  const auto answer = ask(Question::kSupports, to_wire(spec), "samebits_supports", timeout_);
  if (answer.index() == 1) return std::nullopt;  // begin_case meets it again and reports it as a result of the case
  std::optional<std::string> reason;
  try {
    from_wire(std::get<0>(answer), reason);
  } catch (const WireError&) {
    worker_.reset();
  }
  return reason;
}

std::optional<RunResult> WorkerRouter::begin_case(const samebits_router_spec& spec,
                                                  const oracle::RouterInputs& inputs) {
  if (!worker_) start();
  const auto answer =
      ask(Question::kBeginCase, to_wire(spec, inputs), "samebits_supports or samebits_create", timeout_);
  if (answer.index() == 1) return std::get<1>(answer);
  std::optional<RunResult> failure;
  try {
    from_wire(std::get<0>(answer), failure);
  } catch (const WireError& damage) {
    failure = crashed(fmt::format("the worker answered nonsense after samebits_create: {}", damage.what()));
  }
  // A process in which the plug-in threw, or whose device faulted, is not used again.
  if (failure && failure->status == RunResult::Status::kCrashed) worker_.reset();
  return failure;
}

RunResult WorkerRouter::run(const properties::RunRequest& request) {
  const auto answer = ask(Question::kRun, to_wire(request), "samebits_route", timeout_);
  if (answer.index() == 1) return std::get<1>(answer);
  RunResult result;
  try {
    from_wire(std::get<0>(answer), result);
  } catch (const WireError& damage) {
    result = crashed(fmt::format("the worker answered nonsense after samebits_route: {}", damage.what()));
  }
  if (result.status == RunResult::Status::kCrashed) worker_.reset();
  return result;
}

}  // namespace samebits::harness
