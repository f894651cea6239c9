#include "harness/backend/memory.h"

#include <cstring>
#include <new>

#include "samebits/samebits.h"

namespace samebits::harness {
namespace {

class HostMemory final : public Memory {
 public:
  int kind() const override { return SAMEBITS_MEMORY_HOST; }
  void* allocate(std::size_t bytes) override { return ::operator new(bytes, kAlignment); }
  void release(void* address) noexcept override { ::operator delete(address, kAlignment); }
  void copy_in(void* to, const void* from_host, std::size_t bytes) override { std::memcpy(to, from_host, bytes); }
  void copy_out(std::span<const CopyOut> copies) override {
    for (const CopyOut& copy : copies) std::memcpy(copy.to_host, copy.from, copy.bytes);
  }
  std::byte* view(void* address) override { return static_cast<std::byte*>(address); }
  void synchronize() override {}

 private:
  static constexpr std::align_val_t kAlignment{64};
};

}  // namespace

std::unique_ptr<Memory> host_memory() {
  return std::make_unique<HostMemory>();
}

#ifndef SAMEBITS_HAVE_CUDA
std::unique_ptr<Memory> device_memory() {
  return nullptr;
}
#endif

}  // namespace samebits::harness
