// Blocks or warps of a launch as coroutines on one thread: a race or a deadlock is then one fixed order of their turns,
// the same in every run.
#pragma once

#include <coroutine>
#include <cstdint>
#include <span>
#include <utility>

namespace samebits::mutants {

// A coroutine; a turn goes on to the next co_await kNextTurn, or to its end.
class Task {
 public:
  struct promise_type {  // NOLINT(readability-identifier-naming): the language asks for this name
    Task get_return_object() { return Task(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { throw; }
  };

  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  bool done() const { return handle_.done(); }
  void take_turn() { handle_.resume(); }

 private:
  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

inline constexpr std::suspend_always kNextTurn;

// Turns in the order of the tasks, again and again, until all are done; at most `max_turns` for each. Returns how many
// tasks were not done then.
inline std::int64_t run_in_turns(std::span<Task> tasks, std::int64_t max_turns) {
  std::int64_t waiting = static_cast<std::int64_t>(tasks.size());
  for (std::int64_t turn = 0; turn < max_turns && waiting > 0; ++turn) {
    waiting = 0;
    for (Task& task : tasks) {
      if (task.done()) continue;
      task.take_turn();
      waiting += task.done() ? 0 : 1;
    }
  }
  return waiting;
}

}  // namespace samebits::mutants
