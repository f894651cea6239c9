// A plug-in in a worker process, with a watchdog.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "harness/backend/channel.h"
#include "harness/backend/child_process.h"
#include "harness/backend/router_under_test.h"

namespace samebits::harness {

// Drives a plug-in through `samebits worker`. A crash or a hang is a result; the next case starts a new worker. To be
// used from one thread, which must outlive it: the kernel kills a worker when the thread that started it ends.
class WorkerRouter final : public RouterUnderTest {
 public:
  // Starts a worker, loads and describes the plug-in. Throws BackendError.
  // `timeout`: for each call into the plug-in. `interrupted` (or null) is asked while a worker is awaited.
  WorkerRouter(std::filesystem::path plugin, std::chrono::milliseconds timeout, bool (*interrupted)() = nullptr);
  ~WorkerRouter() override;

  const samebits_info& info() const override { return info_; }
  std::optional<std::string> unsupported(const samebits_router_spec& spec) override;
  std::optional<properties::RunResult> begin_case(const samebits_router_spec& spec, std::int32_t table_dtype,
                                                  const oracle::RouterInputs& inputs,
                                                  std::int32_t constants_gap) override;
  properties::RunResult run(const properties::RunRequest& request) override;
  std::optional<properties::RunResult> end_case() override;

 private:
  struct Worker {
    Channel channel;
    ChildProcess process;
    Call last_call = Call::kNone;  // the last function that was announced
    bool in_call = false;          // it has not returned
  };
  using Answer = std::vector<std::byte>;
  // The content of the answer, or how the worker ended instead (it is gone then). Throws Interrupted.
  std::variant<Answer, properties::RunResult> ask(Question question, std::span<const std::byte> content);
  std::variant<Answer, properties::RunResult> await(Question question);
  properties::RunResult lost(const Deadline& deadline);
  properties::RunResult timed_out();
  // "in samebits_route", or "after samebits_route" while the harness works.
  std::string place() const;
  std::chrono::milliseconds time_allowed() const;
  void heed_interrupt();
  void start();
  void stop();

  std::filesystem::path plugin_;
  std::chrono::milliseconds timeout_;
  bool (*interrupted_)();
  std::optional<Deadline> interrupt_seen_;
  samebits_info info_{};
  std::optional<Worker> worker_;
};

// The program that is started as `PROGRAM worker`; by default the running one. For tests, whose program is another.
void set_worker_program(const std::filesystem::path& program);
const std::filesystem::path& worker_program();

// Exit codes of a worker that could not go on; chosen so that a plug-in is unlikely to use them.
inline constexpr int kExitConnectionLost = 90;
inline constexpr int kExitNonsense = 91;

}  // namespace samebits::harness
