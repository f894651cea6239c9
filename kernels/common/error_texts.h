// Texts of failures, and how the C ABI makes them of exceptions.
#pragma once

#include <map>
#include <mutex>
#include <new>
#include <string>
#include <thread>

#include "kernels/common/error.h"

namespace samebits {

// Text of the last failure of each thread.
class ErrorTexts {
 public:
  void set(const std::string& text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    texts_[std::this_thread::get_id()] = text;
  }
  // Stays valid until the next failure on this thread.
  const char* get() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto it = texts_.find(std::this_thread::get_id());
    return it == texts_.end() ? "" : it->second.c_str();
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::thread::id, std::string> texts_;
};

// Runs `body`; on an exception calls on_error(text).
template <class Body, class OnError>
samebits_status guarded(Body body, OnError on_error) {
  try {
    try {
      body();
      return SAMEBITS_OK;
    } catch (const Error& e) {
      on_error(e.what());
      return e.status();
    } catch (const std::bad_alloc&) {
      on_error("out of memory");
      return SAMEBITS_OUT_OF_MEMORY;
    } catch (const std::exception& e) {
      on_error(e.what());
      return SAMEBITS_INTERNAL_ERROR;
    }
  } catch (...) {  // no memory for the text
    return SAMEBITS_OUT_OF_MEMORY;
  }
}

}  // namespace samebits
