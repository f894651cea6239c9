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

// For the harness's own work in the worker: its start, and the filling and reading of buffers. Reached only when the
// plug-in has stopped the process or damaged its memory.
constexpr milliseconds kOwnWorkTimeout{120000};
// From the first sight of an interrupt to the end of a worker that has not answered.
constexpr milliseconds kInterruptGrace{500};
// For the plug-in's exit handlers, after the last question.
constexpr milliseconds kStopTimeout{2000};
// A descendant of the worker may hold the socket open after its death, so the process is looked at as well.
constexpr milliseconds kLookInterval{50};

std::filesystem::path& program_of_workers() {
  static std::filesystem::path program = "/proc/self/exe";
  return program;
}

RunResult crashed(std::string message) {
  RunResult result;
  result.status = RunResult::Status::kCrashed;
  result.message = std::move(message);
  return result;
}

RunResult result_of_end(int wait_status, const std::string& place) {
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == kExitConnectionLost) {
    return crashed(fmt::format("the plug-in closed the worker's file descriptors {}", place));
  }
  if (WIFEXITED(wait_status)) {
    return crashed(fmt::format("{} {}: the process was ended from inside", end_text(wait_status), place));
  }
  return crashed(fmt::format("{} {}", end_text(wait_status), place));
}

}  // namespace

void set_worker_program(const std::filesystem::path& program) {
  program_of_workers() = program;
}
const std::filesystem::path& worker_program() {
  return program_of_workers();
}

WorkerRouter::WorkerRouter(std::filesystem::path plugin, milliseconds timeout, bool (*interrupted)())
    : plugin_(std::move(plugin)), timeout_(timeout), interrupted_(interrupted) {
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
    worker_.emplace(
        Worker{Channel(std::move(ends.ours), std::move(ends.file)), std::move(process), Call::kNone, false});
  } catch (const std::system_error& failure) {
    fail(fmt::format("its worker could not be started: {}", failure.what()));
  }
  if (const auto ready = await(Question::kReady); ready.index() == 1) {
    fail(fmt::format("its worker ({} worker) could not be started: {}", worker_program().string(),
                     std::get<1>(ready).message));
  }

  std::string problem;  // empty: none
  const auto loaded = ask(Question::kLoad, to_wire(plugin_.string()));
  if (loaded.index() == 1) fail(std::get<1>(loaded).message);
  try {
    from_wire(std::get<0>(loaded), problem);
    if (!problem.empty()) fail(problem);
    const auto described = ask(Question::kDescribe, {});
    if (described.index() == 1) fail(std::get<1>(described).message);
    from_wire(std::get<0>(described), problem, info_);
    if (!problem.empty()) fail(problem);
  } catch (const WireError& damage) {
    fail(fmt::format("its worker answered nonsense: {}", damage.what()));
  }
}

std::string WorkerRouter::place() const {
  return fmt::format("{} {}", worker_->in_call || worker_->last_call == Call::kNone ? "in" : "after",
                     name_of(worker_->last_call));
}

milliseconds WorkerRouter::time_allowed() const {
  return worker_->in_call ? timeout_ : kOwnWorkTimeout;
}

// The plug-in may never answer, so the user's wish to stop ends the worker.
void WorkerRouter::heed_interrupt() {
  if (interrupted_ == nullptr || !interrupted_()) return;
  if (!interrupt_seen_) interrupt_seen_ = Clock::now();
  if (Clock::now() - *interrupt_seen_ < kInterruptGrace) return;
  const std::string text = fmt::format("interrupted; the worker was killed {}", place());
  worker_.reset();
  throw Interrupted(text);
}

std::variant<WorkerRouter::Answer, RunResult> WorkerRouter::ask(Question question, std::span<const std::byte> content) {
  if (!worker_->channel.send(question, content)) return lost(Clock::now() + time_allowed());
  return await(question);
}

std::variant<WorkerRouter::Answer, RunResult> WorkerRouter::await(Question question) {
  Deadline deadline = Clock::now() + time_allowed();
  bool process_ended = false;
  Message message;
  for (;;) {
    heed_interrupt();
    const Deadline look = std::min<Deadline>(deadline, Clock::now() + kLookInterval);
    switch (worker_->channel.receive(message, &look)) {
      case Channel::Outcome::kMessage:
        if (message.question == question) return std::move(message.content);
        if (message.question == Question::kCall) {
          worker_->in_call = message.call != Call::kNone;
          if (worker_->in_call) worker_->last_call = message.call;
          deadline = Clock::now() + time_allowed();
          break;
        }
        [[fallthrough]];
      case Channel::Outcome::kGarbage: {
        const std::string where = place();
        worker_.reset();
        return crashed(fmt::format("the plug-in wrote into the worker's connection {}", where));
      }
      case Channel::Outcome::kClosed:
        return lost(deadline);
      case Channel::Outcome::kTimeout:
        // An answer sent just before the end is still read: the process is seen to end one look before we give up.
        if (process_ended) return lost(deadline);
        process_ended = worker_->process.ended().has_value();
        if (!process_ended && Clock::now() >= deadline) return timed_out();
    }
  }
}

RunResult WorkerRouter::timed_out() {
  RunResult result;
  result.status = RunResult::Status::kTimedOut;
  result.message =
      fmt::format("no answer {} {} within {} ms; the worker was killed", worker_->in_call ? "from" : "after",
                  name_of(worker_->last_call), time_allowed().count());
  worker_.reset();
  return result;
}

// The connection is closed: by the end of the process, or by the plug-in while the process goes on.
RunResult WorkerRouter::lost(const Deadline& deadline) {
  std::optional<int> status;
  while (!(status = worker_->process.wait_until(std::min<Deadline>(deadline, Clock::now() + kLookInterval))) &&
         Clock::now() < deadline) {
    heed_interrupt();
  }
  const std::string where = place();
  worker_.reset();
  if (status) return result_of_end(*status, where);
  return crashed(fmt::format("the plug-in closed the worker's connection {}; the worker was killed", where));
}

std::optional<std::string> WorkerRouter::unsupported(const samebits_router_spec& spec) {
  if (!worker_) start();
  const auto answer = ask(Question::kSupports, to_wire(spec));
  if (answer.index() == 1) return std::nullopt;  // begin_case meets it again and reports it as a result of the case
  std::optional<std::string> reason;
  try {
    from_wire(std::get<0>(answer), reason);
  } catch (const WireError&) {
    worker_.reset();
  }
  return reason;
}

std::optional<RunResult> WorkerRouter::begin_case(const samebits_router_spec& spec, std::int32_t table_dtype,
                                                  const oracle::RouterInputs& inputs, std::int32_t constants_gap) {
  if (!worker_) start();
  const auto answer = ask(Question::kBeginCase, to_wire(spec, table_dtype, inputs, constants_gap));
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
  const auto answer = ask(Question::kRun, to_wire(request));
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

std::optional<RunResult> WorkerRouter::end_case() {
  if (!worker_) return std::nullopt;
  const auto answer = ask(Question::kEndCase, {});
  if (answer.index() == 1) return std::get<1>(answer);
  std::optional<RunResult> failure;
  try {
    from_wire(std::get<0>(answer), failure);
  } catch (const WireError& damage) {
    failure = crashed(fmt::format("the worker answered nonsense after samebits_destroy: {}", damage.what()));
  }
  if (failure) worker_.reset();
  return failure;
}

}  // namespace samebits::harness
