// Plug-ins in a worker: crashes, hangs, and everything that must not be left behind.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "harness/backend/backend.h"
#include "harness/backend/wire.h"
#include "harness/backend/worker_router.h"
#include "harness/test/backend_fixture.h"

namespace samebits::harness {
namespace {

using properties::RunRequest;
using properties::RunResult;
using properties::Subject;
using Status = properties::RunResult::Status;
using fixture::all_rows;
using fixture::run_once;
using fixture::small_case;
using fixture::SmallCase;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr milliseconds kPatient{60000};  // never reached by these plug-ins, however slow the machine
constexpr milliseconds kShort{2000};     // for plug-ins that hang; the others must answer within it

class WorkerTest : public ::testing::Test {
 protected:
  WorkerTest() { set_worker_program(SAMEBITS_PROGRAM); }
};

std::unique_ptr<Subject> in_worker(const std::string& fault, milliseconds timeout = kPatient) {
  return open_backend({"", fixture::plugin(fault), timeout});
}

std::string open_error(const std::filesystem::path& library, milliseconds timeout = kPatient) {
  try {
    open_backend({"", library, timeout});
  } catch (const BackendError& error) {
    return error.what();
  }
  return "no error";
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

std::size_t threads() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

// Neither a running child nor a zombie.
void expect_no_children() {
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST_F(WorkerTest, ReturnsWhatTheSamePlugInReturnsInThisProcess) {
  const auto worker = in_worker("claims_tc256");
  const auto local = fixture::in_process("claims_tc256");
  EXPECT_EQ(worker->claims().name, "faulty");
  EXPECT_TRUE(worker->claims().bit_exact());
  EXPECT_EQ(worker->claims().max_tokens, 77);
  const SmallCase small = small_case(5);
  RunRequest request = all_rows(small);
  request.rows = {4, 0, 2};
  request.replace = {properties::RowReplacement::kKeep, properties::RowReplacement::kNaN,
                     properties::RowReplacement::kKeep};
  request.num_valid_rows = 2;
  request.poison = 0x80000001u;
  request.want_logits = true;
  request.want_bookkeeping = true;
  request.block_size = 8;
  const RunResult a = run_once(*worker, small, request);
  const RunResult b = run_once(*local, small, request);
  EXPECT_EQ(a.status, Status::kOk) << a.message;
  EXPECT_EQ(to_wire(a), to_wire(b));
  EXPECT_EQ(worker->unsupported(small.c.spec), std::nullopt);
}

TEST_F(WorkerTest, DamageAndErrorsTravel) {
  const RunResult damaged = run_once(*in_worker("write_after"));
  EXPECT_FALSE(damaged.guards_intact);
  EXPECT_THAT(damaged.damage, HasSubstr("topk_ids (32 bytes): 4 of 4096 guard bytes after it"));
  EXPECT_THAT(damaged.outputs.topk_ids, ElementsAre(0, 1, 0, 1, 0, 1, 0, 1));
  const RunResult changed = run_once(*in_worker("change_input"));
  EXPECT_FALSE(changed.inputs_intact);
  const RunResult error = run_once(*in_worker("error"));
  EXPECT_EQ(error.status, Status::kError);
  EXPECT_EQ(error.message, "samebits_route: unsupported (2): the text of the plug-in");
  const RunResult not_created = run_once(*in_worker("error_in_create"));
  EXPECT_EQ(not_created.status, Status::kError);
  EXPECT_EQ(not_created.message, "samebits_create: out of memory (3): the text of the plug-in");
  EXPECT_EQ(in_worker("refuses")->unsupported(small_case().c.spec), "top_k is 2; this router does 1000");
}

TEST_F(WorkerTest, ACrashIsAResultWithTheSignal) {
  const RunResult result = run_once(*in_worker("crash_in_route"));
  EXPECT_EQ(result.status, Status::kCrashed);
  EXPECT_EQ(result.message, "SIGSEGV (Segmentation fault) in samebits_route");
  expect_no_children();
}

TEST_F(WorkerTest, ACrashEndsTheCaseAndTheNextOneRuns) {
  const auto subject = in_worker("crash_at_three_tokens");
  const SmallCase small = small_case(4);
  RunRequest three = all_rows(small);
  three.rows = {0, 1, 2};
  const std::vector<properties::Run> runs =
      subject->run(small.c, small.inputs, {all_rows(small), three, all_rows(small)});
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].result.status, Status::kOk);
  EXPECT_EQ(runs[1].result.status, Status::kCrashed);
  EXPECT_EQ(run_once(*subject, 4).status, Status::kOk);
  EXPECT_EQ(run_once(*subject, 3).status, Status::kCrashed);
  EXPECT_EQ(subject->unsupported(small.c.spec), std::nullopt);
  EXPECT_EQ(run_once(*subject, 5).status, Status::kOk);
}

TEST_F(WorkerTest, AHangIsEndedByTheWatchdog) {
  const RunResult result = run_once(*in_worker("hang_in_route", kShort));
  EXPECT_EQ(result.status, Status::kTimedOut);
  EXPECT_EQ(result.message, "no answer from samebits_route within 2000 ms; the worker was killed");
  expect_no_children();
}

TEST_F(WorkerTest, AnExitIsACrash) {
  const RunResult result = run_once(*in_worker("exit_in_route"));
  EXPECT_EQ(result.status, Status::kCrashed);
  EXPECT_EQ(result.message, "exit code 0 in samebits_route: the process was ended from inside");
}

TEST_F(WorkerTest, ClosedDescriptorsAreACrash) {
  const RunResult closed = run_once(*in_worker("close_descriptors"));
  EXPECT_EQ(closed.status, Status::kCrashed);
  EXPECT_EQ(closed.message, "the plug-in closed the worker's file descriptors in samebits_route");
  const RunResult hangs = run_once(*in_worker("close_and_hang", kShort));
  EXPECT_EQ(hangs.status, Status::kCrashed);
  EXPECT_EQ(hangs.message, "the plug-in closed the worker's connection in samebits_route; the worker was killed");
  expect_no_children();
}

TEST_F(WorkerTest, GarbageOnTheConnectionIsACrash) {
  const RunResult result = run_once(*in_worker("write_to_connection"));
  EXPECT_EQ(result.status, Status::kCrashed);
  EXPECT_EQ(result.message, "the plug-in wrote into the worker's connection in samebits_route");
}

TEST_F(WorkerTest, AnExceptionIsACrashAndTheNextCaseRuns) {
  const auto subject = in_worker("throws");
  for (int i = 0; i < 2; ++i) {
    const RunResult result = run_once(*subject);
    EXPECT_EQ(result.status, Status::kCrashed);
    EXPECT_THAT(result.message, HasSubstr("an exception of the plug-in"));
  }
}

TEST_F(WorkerTest, ACrashIsAResultOfTheCaseAndNamesTheFunction) {
  for (const auto& [fault, function] : {std::pair("crash_in_supports", "samebits_supports"),
                                        {"crash_in_columns", "samebits_topk_columns"},
                                        {"crash_in_create", "samebits_create"},
                                        {"crash_in_workspace_bytes", "samebits_workspace_bytes"},
                                        {"crash_in_destroy", "samebits_destroy"}}) {
    const auto subject = in_worker(fault);
    EXPECT_EQ(subject->unsupported(small_case().c.spec), std::nullopt) << fault;
    const RunResult result = run_once(*subject);
    EXPECT_EQ(result.status, Status::kCrashed) << fault;
    EXPECT_EQ(result.message, std::string("SIGSEGV (Segmentation fault) in ") + function);
  }
  const RunResult hang = run_once(*in_worker("hang_in_workspace_init", kShort));
  EXPECT_EQ(hang.status, Status::kTimedOut);
  EXPECT_EQ(hang.message, "no answer from samebits_workspace_init within 2000 ms; the worker was killed");
}

// Every case, also the first and the only one, and the last of its runs: the earlier ones were over.
TEST_F(WorkerTest, HowTheRouterIsDestroyedBelongsToItsOwnCase) {
  const SmallCase small = small_case();
  const auto subject = in_worker("exit_in_destroy");
  for (int i = 0; i < 3; ++i) {
    const auto runs = subject->run(small.c, small.inputs, {all_rows(small), all_rows(small)});
    ASSERT_EQ(runs.size(), 2u);
    EXPECT_EQ(runs[0].result.status, Status::kOk) << runs[0].result.message;
    EXPECT_EQ(runs[1].result.status, Status::kCrashed);
    EXPECT_EQ(runs[1].result.message, "exit code 0 in samebits_destroy: the process was ended from inside");
  }
  const RunResult hang = run_once(*in_worker("hang_in_destroy", kShort));
  EXPECT_EQ(hang.status, Status::kTimedOut);
  EXPECT_EQ(hang.message, "no answer from samebits_destroy within 2000 ms; the worker was killed");
}

TEST_F(WorkerTest, AnUnknownAnswerOfSupportsIsAFinding) {
  const auto subject = in_worker("unknown_support");
  EXPECT_EQ(subject->unsupported(small_case().c.spec), std::nullopt);
  const RunResult result = run_once(*subject);
  EXPECT_EQ(result.status, Status::kError);
  EXPECT_THAT(result.message, HasSubstr("samebits_supports returned unknown status 77"));
}

TEST_F(WorkerTest, AnInterruptEndsAPlugInThatDoesNotAnswer) {
  static bool interrupt = false;
  const auto interrupted = [] { return interrupt; };
  interrupt = true;
  EXPECT_THROW(open_backend({"", fixture::plugin("hang_in_constructor"), kPatient, interrupted}), Interrupted);
  interrupt = false;
  const auto subject = open_backend({"", fixture::plugin("hang_in_route"), kPatient, interrupted});
  interrupt = true;
  EXPECT_THROW(run_once(*subject), Interrupted);
  expect_no_children();
}

// The worker's stdout and stderr are our stderr: the pipe stays open for reading until the last of them is gone.
TEST_F(WorkerTest, WhatThePlugInHasStartedEndsWithTheWorker) {
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  const int saved = dup(STDERR_FILENO);
  dup2(pipe_ends[1], STDERR_FILENO);
  const RunResult result = run_once(*in_worker("leaves_a_child"));
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(pipe_ends[1]);
  EXPECT_EQ(result.status, Status::kOk) << result.message;
  char byte = 0;
  EXPECT_EQ(read(pipe_ends[0], &byte, 1), 0);  // end of file
  close(pipe_ends[0]);
}

TEST_F(WorkerTest, WhatThePlugInPrintsGoesToStderr) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const RunResult result = run_once(*in_worker("prints"));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "describe says hello\nroute says hello\n");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(result.status, Status::kOk) << result.message;
}

TEST_F(WorkerTest, PlugInsThatCannotBeLoadedAreNamed) {
  EXPECT_THAT(open_error("/no/such/plugin.so"), HasSubstr("plug-in /no/such/plugin.so: no such file"));
  EXPECT_THAT(open_error("/"), HasSubstr("plug-in /: it is not a file"));
  EXPECT_THAT(open_error(std::filesystem::path(SAMEBITS_SOURCE_DIR) / "CMakeLists.txt"),
              HasSubstr("invalid ELF header"));
  EXPECT_THAT(open_error(fixture::plugin("wrong_version")),
              HasSubstr("built for version 7 of the C ABI, this program expects version 1"));
  EXPECT_THAT(open_error(fixture::plugin("missing_symbol")), HasSubstr("samebits_route_from_logits is missing"));
  EXPECT_THAT(open_error(fixture::plugin("unknown_arithmetic")), HasSubstr("arithmetic is \"fp16\""));
  EXPECT_THAT(open_error(fixture::plugin("crash_in_constructor")), HasSubstr("SIGSEGV (Segmentation fault) in dlopen"));
  EXPECT_THAT(open_error(fixture::plugin("crash_in_version")),
              HasSubstr("SIGSEGV (Segmentation fault) in samebits_abi_version"));
  EXPECT_THAT(open_error(fixture::plugin("crash_in_describe")),
              HasSubstr("SIGSEGV (Segmentation fault) in samebits_describe"));
  EXPECT_THAT(open_error(fixture::plugin("exit_in_describe")), HasSubstr("exit code 0 in samebits_describe"));
  EXPECT_THAT(open_error(fixture::plugin("hang_in_describe"), kShort),
              HasSubstr("no answer from samebits_describe within 2000 ms"));
  expect_no_children();
}

TEST_F(WorkerTest, AWorkerProgramThatIsNoneIsNamed) {
  set_worker_program("/bin/false");
  EXPECT_THAT(open_error(fixture::plugin("none")), HasSubstr("/bin/false worker) could not be started"));
  set_worker_program("/no/such/program");
  EXPECT_THAT(open_error(fixture::plugin("none")), HasSubstr("exit code 127"));
  expect_no_children();
}

TEST_F(WorkerTest, FiftyRestartsLeaveNothingBehind) {
  const auto subject = in_worker("crash_at_three_tokens");
  EXPECT_EQ(run_once(*subject, 3).status, Status::kCrashed);
  const std::size_t descriptors = open_descriptors();
  const std::size_t running = threads();
  for (int i = 0; i < 50; ++i) EXPECT_EQ(run_once(*subject, 3).status, Status::kCrashed);
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(threads(), running);
  expect_no_children();
}

TEST_F(WorkerTest, TheConnectionSurvivesASignalInTheParent) {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) {};
  sigaction(SIGALRM, &action, &before);  // without SA_RESTART: system calls return EINTR
  const itimerval every_millisecond{{0, 1000}, {0, 1000}};
  const itimerval never{};
  setitimer(ITIMER_REAL, &every_millisecond, nullptr);
  const auto subject = in_worker("crash_at_three_tokens");
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(run_once(*subject, 4).status, Status::kOk);
    EXPECT_EQ(run_once(*subject, 3).status, Status::kCrashed);
  }
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
}

TEST_F(WorkerTest, StartedByHandItExplainsItself) {
  const std::string command = std::string(SAMEBITS_PROGRAM) + " worker 2>&1 >/dev/null </dev/null";
  FILE* output = popen(command.c_str(), "r");
  ASSERT_NE(output, nullptr);
  char text[512] = {};
  const std::size_t size = fread(text, 1, sizeof(text) - 1, output);
  const int status = pclose(output);
  EXPECT_THAT(std::string(text, size), HasSubstr("started by samebits itself"));
  EXPECT_EQ(WEXITSTATUS(status), 2);
}

// The parent of a worker dies without a word (SIGKILL) while the plug-in hangs: the worker must die as well.
TEST_F(WorkerTest, TheWorkerDiesWithItsParent) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t parent = fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    close(pipe_ends[0]);
    // The worker's stdout and stderr are our stderr: the pipe stays open for reading until the last of them is gone.
    dup2(pipe_ends[1], STDERR_FILENO);
    close(pipe_ends[1]);
    const auto subject = in_worker("hang_in_route");
    if (write(STDERR_FILENO, "R", 1) != 1) _exit(1);
    run_once(*subject);
    _exit(1);
  }
  close(pipe_ends[1]);
  char byte = 0;
  ASSERT_EQ(read(pipe_ends[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'R');
  kill(parent, SIGKILL);
  EXPECT_EQ(waitpid(parent, nullptr, 0), parent);
  EXPECT_EQ(read(pipe_ends[0], &byte, 1), 0);  // end of file: nobody holds the other end
  close(pipe_ends[0]);
}

TEST(Wire, DamagedMessagesAreErrors) {
  RunRequest request;
  request.id = "main";
  request.rows = {1, 2, 3};
  std::vector<std::byte> bytes = to_wire(request);
  RunRequest read;
  from_wire(bytes, read);
  EXPECT_EQ(read.rows, request.rows);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(from_wire(std::span(bytes).first(size), read), WireError) << size;
  }
  bytes.push_back(std::byte{0});
  EXPECT_THROW(from_wire(bytes, read), WireError);
  std::vector<std::byte> lie(8, std::byte{0xff});  // announces 2^64 - 1 characters
  std::string text;
  EXPECT_THROW(from_wire(lie, text), WireError);
}

}  // namespace
}  // namespace samebits::harness
