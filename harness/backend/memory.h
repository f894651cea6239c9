// Where the buffers of a router under test live.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

namespace samebits::harness {

// The device reported an error: an illegal access, a failed launch. Its context is lost for this process.
class DeviceFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Work that was captured, to be launched again and again.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  virtual void launch() = 0;
  virtual std::string problem() const = 0;  // what no call may do: nothing at all, or an allocation; empty: none
};

// A stream of its own beside the one that ordinary calls go to; it does not wait for that one, nor the other way round.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void* handle() = 0;  // cudaStream_t
  // Copies device memory by a kernel that lets the next one start at once, then waits for milliseconds, then copies.
  virtual void copy_late(void* to, const void* from, std::size_t bytes) = 0;
  // What `body` puts on the stream, in a mode in which allocating and synchronising fail. nullptr: the capture was
  // broken; `problem` says how.
  virtual std::unique_ptr<CapturedWork> capture(const std::function<void()>& body, std::string& problem) = 0;
};

// Every function throws std::bad_alloc or DeviceFault.
class Memory {
 public:
  struct CopyOut {
    void* to_host;
    const void* from;
    std::size_t bytes;
  };

  virtual ~Memory() = default;
  virtual int kind() const = 0;                   // SAMEBITS_MEMORY_HOST or SAMEBITS_MEMORY_DEVICE
  virtual void* allocate(std::size_t bytes) = 0;  // aligned to 64 bytes at least; bytes > 0
  virtual void release(void* address) noexcept = 0;
  // The bytes may arrive later, but before settle() or synchronize() returns.
  virtual void copy_in(void* to, const void* from_host, std::size_t bytes) = 0;
  // All together: many small copies that are waited for one by one cost more than the calls of a small case.
  virtual void copy_out(std::span<const CopyOut> copies) = 0;
  // The bytes at an allocated address where this process can read and write them itself; nullptr: only by copies.
  virtual std::byte* view(void*) { return nullptr; }
  virtual void settle() {}                      // waits for what was copied in
  virtual void synchronize() = 0;               // waits for all work; reports what went wrong in it
  virtual Stream* stream() { return nullptr; }  // nullptr: host memory has none
  // A computation of our own after all work: empty, or what is wrong with its result or with the device.
  virtual std::string probe() { return {}; }
};

std::unique_ptr<Memory> host_memory();
// nullptr when this program was built without CUDA; throws DeviceFault when there is no usable device.
std::unique_ptr<Memory> device_memory();

}  // namespace samebits::harness
