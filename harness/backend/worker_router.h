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
  WorkerRouter(std::filesystem::path plugin, std::chrono::milliseconds timeout);
  ~WorkerRouter() override;

  const samebits_info& info() const override { return info_; }
  std::optional<std::string> unsupported(const samebits_router_spec& spec) override;
  std::optional<properties::RunResult> begin_case(const samebits_router_spec& spec,
                                                  const oracle::RouterInputs& inputs) override;
  properties::RunResult run(const properties::RunRequest& request) override;

 private:
  struct Worker {
    Channel channel;
    ChildProcess process;
  };
  using Answer = std::vector<std::byte>;
  // The content of the answer, or how the worker ended instead (it is gone then). `what` names the plug-in's work for
  // the message: "samebits_route".
  std::variant<Answer, properties::RunResult> ask(Question question, std::span<const std::byte> content,
                                                  const std::string& what, std::chrono::milliseconds timeout);
  std::variant<Answer, properties::RunResult> await(Question question, const std::string& what,
                                                    std::chrono::milliseconds timeout);
  properties::RunResult lost(const std::string& what, const Deadline& deadline);
  void start();
  void stop();

  std::filesystem::path plugin_;
  std::chrono::milliseconds timeout_;
  samebits_info info_{};
  std::optional<Worker> worker_;
};

// The program that is started as `PROGRAM worker`; by default the running one. For tests, whose program is another.
void set_worker_program(const std::filesystem::path& program);

// Exit codes of a worker that could not go on; chosen so that a plug-in is unlikely to use them.
inline constexpr int kExitConnectionLost = 90;
inline constexpr int kExitNonsense = 91;

}  // namespace samebits::harness
