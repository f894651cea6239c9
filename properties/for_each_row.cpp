#include "properties/for_each_row.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace samebits::properties {

// Below kRowsPerThread rows a thread costs more than it saves.
void for_each_row(std::int64_t num_rows, const std::function<void(std::int64_t)>& f) {
  constexpr std::int64_t kRowsPerThread = 32;
  const std::int64_t hardware = std::max<std::int64_t>(1, std::thread::hardware_concurrency());
  const std::int64_t num_threads = std::min(hardware, num_rows / kRowsPerThread);

  std::atomic<std::int64_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto work = [&] {
    try {
      for (std::int64_t row = next++; row < num_rows; row = next++) f(row);
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      failure = std::current_exception();
      next = num_rows;
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::int64_t i = 1; i < num_threads; ++i) threads.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace samebits::properties
