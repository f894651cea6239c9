#include "kernels/bench/cupti.h"

#if __has_include(<cupti.h>)
#include <cupti.h>
#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <utility>

namespace samebits::bench {
namespace {

#if CUPTI_API_VERSION >= 130000
using KernelActivity = CUpti_ActivityKernel10;
#else
using KernelActivity = CUpti_ActivityKernel9;
#endif
using MemcpyActivity = CUpti_ActivityMemcpy5;  // later versions append fields
using MemsetActivity = CUpti_ActivityMemset4;

constexpr std::size_t kBufferBytes = 1 << 20, kBufferAlignment = 8;
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET};

// CUPTI's callbacks have no argument of the caller and may come from a thread of its own.
std::mutex g_mutex;
std::vector<std::uint8_t*> g_free_buffers;
std::vector<Record> g_records;
decltype(&cuptiActivityGetNextRecord) g_next_record = nullptr;

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
  const std::lock_guard lock(g_mutex);
  *size = kBufferBytes;
  *max_records = 0;
  if (g_free_buffers.empty()) {
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  } else {
    *buffer = g_free_buffers.back();
    g_free_buffers.pop_back();
  }
}

template <class Activity>
void add_record(const CUpti_Activity* activity, const char* name) {
  const auto* known = reinterpret_cast<const Activity*>(activity);
  g_records.push_back({known->start, known->end, name});
}

void CUPTIAPI read_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid_bytes) {
  const std::lock_guard lock(g_mutex);
  CUpti_Activity* activity = nullptr;
  while (valid_bytes > 0 && g_next_record(buffer, valid_bytes, &activity) == CUPTI_SUCCESS) {
    switch (activity->kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      case CUPTI_ACTIVITY_KIND_KERNEL: {
        const char* name = reinterpret_cast<const KernelActivity*>(activity)->name;
        add_record<KernelActivity>(activity, name == nullptr ? "unnamed" : name);
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY:
        add_record<MemcpyActivity>(activity, "memcpy");
        break;
      case CUPTI_ACTIVITY_KIND_MEMSET:
        add_record<MemsetActivity>(activity, "memset");
        break;
      default:
        break;
    }
  }
  g_free_buffers.push_back(buffer);
}

std::vector<std::string> places() {
  std::vector<std::string> paths;
  if (const char* named = std::getenv("SAMEBITS_CUPTI"); named != nullptr && *named != '\0') paths.push_back(named);
  const std::string major = std::to_string(CUPTI_API_VERSION / 10000);
  for (const std::string folder : {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/extras/CUPTI/lib64/"}) {
    paths.push_back(folder + "libcupti.so." + major);
  }
  paths.push_back("libcupti.so");
  return paths;
}

}  // namespace

struct Cupti::Library {
  void* handle = nullptr;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&cuptiGetVersion) get_version = nullptr;
  decltype(&cuptiGetResultString) result_string = nullptr;

  void open() {
    std::string tried;
    for (const std::string& path : places()) {
      // The process may have one already (PyTorch brings its own); two would record nothing.
      handle = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
      if (handle != nullptr) return;
    }
    for (const std::string& path : places()) {
      handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle != nullptr) return;
      tried += (tried.empty() ? "" : "; ") + std::string(dlerror());
    }
    throw CuptiError("no libcupti (" + tried + "); SAMEBITS_CUPTI may name one");
  }
  template <class Function>
  void find(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    if (function == nullptr) throw CuptiError("libcupti: " + std::string(name) + " is missing");
  }
  void check(CUptiResult result, const char* what) const {
    if (result == CUPTI_SUCCESS) return;
    const char* text = nullptr;
    result_string(result, &text);
    throw CuptiError(std::string(what) + ": " + (text == nullptr ? "unknown error" : text));
  }
};

Cupti::Cupti() : library_(std::make_unique<Library>()) {
  library_->open();
  library_->find(library_->register_callbacks, "cuptiActivityRegisterCallbacks");
  library_->find(library_->enable, "cuptiActivityEnable");
  library_->find(library_->disable, "cuptiActivityDisable");
  library_->find(library_->flush_all, "cuptiActivityFlushAll");
  library_->find(library_->get_version, "cuptiGetVersion");
  library_->find(library_->result_string, "cuptiGetResultString");
  library_->find(g_next_record, "cuptiActivityGetNextRecord");
  library_->check(library_->register_callbacks(give_buffer, read_buffer), "cuptiActivityRegisterCallbacks");
  for (const CUpti_ActivityKind kind : kKinds) library_->check(library_->enable(kind), "cuptiActivityEnable");
}

Cupti::~Cupti() {
  for (const CUpti_ActivityKind kind : kKinds) library_->disable(kind);
  library_->flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
}

std::string Cupti::version() const {
  std::uint32_t version = 0;
  library_->check(library_->get_version(&version), "cuptiGetVersion");
  return "CUPTI " + std::to_string(version);
}

std::vector<Record> Cupti::take(std::size_t expected_marks) {
  library_->check(library_->flush_all(0), "cuptiActivityFlushAll");
  const auto all_there = [&] {
    const std::lock_guard lock(g_mutex);
    return count_marks(g_records) >= expected_marks;
  };
  // Without this flag a buffer that CUPTI holds to be unfinished stays with it.
  if (!all_there()) library_->check(library_->flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
  const std::lock_guard lock(g_mutex);
  return std::exchange(g_records, {});
}

}  // namespace samebits::bench

#else

namespace samebits::bench {

struct Cupti::Library {};
Cupti::Cupti() {
  throw CuptiError("built where cupti.h was not found");
}
Cupti::~Cupti() = default;
std::string Cupti::version() const {
  return "";
}
std::vector<Record> Cupti::take(std::size_t) {
  return {};
}

}  // namespace samebits::bench

#endif
