// Where the buffers of a router under test live.
#pragma once

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>

namespace samebits::harness {

// The device reported an error: an illegal access, a failed launch. Its context is lost for this process.
class DeviceFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Every function throws std::bad_alloc or DeviceFault.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual int kind() const = 0;                   // SAMEBITS_MEMORY_HOST or SAMEBITS_MEMORY_DEVICE
  virtual void* allocate(std::size_t bytes) = 0;  // aligned to 64 bytes at least; bytes > 0
  virtual void release(void* address) noexcept = 0;
  virtual void copy_in(void* to, const void* from_host, std::size_t bytes) = 0;
  virtual void copy_out(void* to_host, const void* from, std::size_t bytes) = 0;
  virtual void synchronize() = 0;  // waits for all work; reports what went wrong in it
};

std::unique_ptr<Memory> host_memory();
// nullptr when this program was built without CUDA; throws DeviceFault when there is no usable device.
std::unique_ptr<Memory> device_memory();

}  // namespace samebits::harness
