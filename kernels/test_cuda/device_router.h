// libsamebits_cuda.so as an engine uses it, and calls on vectors: what they return by bits, beside the CPU backend.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/test/test_router.h"
#include "kernels/test_cuda/device_array.h"

namespace samebits::cuda::test {

using cpu::test::CallOptions;
using cpu::test::Constants;
using cpu::test::Routed;

// The library that lies beside this program, or the one that the environment variable SAMEBITS_CUDA_LIBRARY names.
class CudaLibrary {
 public:
  static const CudaLibrary& get() {
    static const CudaLibrary library;
    return library;
  }

  void* const handle = dlopen(path().c_str(), RTLD_NOW | RTLD_LOCAL);
  decltype(&samebits_describe) const describe = find<decltype(&samebits_describe)>("samebits_describe");
  decltype(&samebits_supports) const supports = find<decltype(&samebits_supports)>("samebits_supports");
  decltype(&samebits_create) const create = find<decltype(&samebits_create)>("samebits_create");
  decltype(&samebits_workspace_bytes) const workspace_bytes =
      find<decltype(&samebits_workspace_bytes)>("samebits_workspace_bytes");
  decltype(&samebits_workspace_init) const workspace_init =
      find<decltype(&samebits_workspace_init)>("samebits_workspace_init");
  decltype(&samebits_route) const route = find<decltype(&samebits_route)>("samebits_route");
  decltype(&samebits_route_from_logits) const route_from_logits =
      find<decltype(&samebits_route_from_logits)>("samebits_route_from_logits");
  decltype(&samebits_last_error) const last_error = find<decltype(&samebits_last_error)>("samebits_last_error");
  decltype(&samebits_destroy) const destroy = find<decltype(&samebits_destroy)>("samebits_destroy");

 private:
  CudaLibrary() = default;
  static std::string path() {
    if (const char* named = std::getenv("SAMEBITS_CUDA_LIBRARY"); named != nullptr && *named != '\0') return named;
    return std::filesystem::canonical("/proc/self/exe").parent_path() / "libsamebits_cuda.so";
  }
  template <class Function>
  Function find(const char* name) const {
    void* symbol = handle == nullptr ? nullptr : dlsym(handle, name);
    if (symbol == nullptr) throw std::runtime_error(path() + ": " + dlerror());
    return reinterpret_cast<Function>(symbol);
  }
};

// A router of the library.
class DeviceRouter {
 public:
  DeviceRouter(const samebits_router_spec& spec, const samebits_constants& constants) : spec_(spec) {
    EXPECT_EQ(library_.create(&spec, &constants, &router_), SAMEBITS_OK) << library_.last_error(nullptr);
  }
  ~DeviceRouter() { library_.destroy(router_); }
  DeviceRouter(const DeviceRouter&) = delete;
  DeviceRouter& operator=(const DeviceRouter&) = delete;

  samebits_router* get() const { return router_; }
  const samebits_router_spec& spec() const { return spec_; }
  std::string error() const { return library_.last_error(router_); }

 private:
  const CudaLibrary& library_ = CudaLibrary::get();
  samebits_router_spec spec_;
  samebits_router* router_ = nullptr;
};

template <class T>
samebits_tensor matrix(T* data, std::int64_t rows, std::int64_t cols, std::int32_t dtype) {
  return {const_cast<std::remove_const_t<T>*>(data), rows, cols, cols, dtype, 0};
}

// The device buffers of calls of one shape. `input` is [T, H] bf16 or [T, G] fp32.
class DeviceCall {
 public:
  template <class Input>
  DeviceCall(const DeviceRouter& router, const std::vector<Input>& input, const CallOptions& options)
      : router_(router), options_(options), input_bytes_(bytes_of(input)) {
    const samebits_router_spec& spec = router.spec();
    constexpr bool kFromLogits = std::is_same_v<Input, float>;
    const std::int64_t g = cpu::test::rows_of_gate(spec), k = cpu::test::columns_of(spec);
    const std::int64_t width = kFromLogits ? g : spec.hidden_size;
    const std::int64_t t = static_cast<std::int64_t>(input.size()) / width, slots = t * k;
    from_logits_ = kFromLogits;
    inputs_.struct_size = sizeof(inputs_);
    inputs_.num_tokens = t;
    (kFromLogits ? inputs_.router_logits : inputs_.hidden_states) =
        matrix(input_bytes_.data(), t, width, kFromLogits ? SAMEBITS_FP32 : SAMEBITS_BF16);
    if (!options.token_ids.empty())
      inputs_.token_ids = matrix(copy(token_ids_, options.token_ids), 1, t, SAMEBITS_INT32);
    if (!options.row_class.empty())
      inputs_.row_class = matrix(copy(row_class_, options.row_class), 1, t, SAMEBITS_INT32);
    if (options.num_valid_rows) inputs_.num_valid_rows = copy(num_valid_rows_, std::vector{*options.num_valid_rows});
    outputs_.struct_size = sizeof(outputs_);
    outputs_.topk_ids = matrix(poisoned(ids_, slots), t, k, SAMEBITS_INT32);
    outputs_.topk_weights = matrix(poisoned(weights_, slots), t, k, SAMEBITS_FP32);
    outputs_.router_logits = matrix(poisoned(logits_, t * g), t, g, SAMEBITS_FP32);
    if (options.bookkeeping) {
      outputs_.tokens_per_expert = poisoned(tokens_per_expert_, g);
      outputs_.expert_offsets = poisoned(expert_offsets_, g + 1);
      outputs_.slot_of_position = poisoned(slot_of_position_, slots);
      outputs_.position_of_slot = poisoned(position_of_slot_, slots);
    }
    if (const std::int64_t block = options.block_size; block > 0) {
      const std::int64_t blocks = (slots + std::min(g, slots) * (block - 1)) / block;
      outputs_.block_size = options.block_size;
      outputs_.sorted_token_ids = poisoned(sorted_token_ids_, blocks * block);
      outputs_.expert_ids = poisoned(expert_ids_, blocks);
      outputs_.num_tokens_post_padded = poisoned(num_tokens_post_padded_, 1);
    }
    const std::size_t bytes = CudaLibrary::get().workspace_bytes(router.get(), t);
    workspace_ = std::make_unique<DeviceArray<unsigned char>>(bytes);
    workspace_->fill_bytes(0xa5);
    EXPECT_EQ(CudaLibrary::get().workspace_init(router.get(), workspace_->data(), bytes, nullptr), SAMEBITS_OK)
        << router.error();
  }

  samebits_inputs& inputs() { return inputs_; }
  samebits_outputs& outputs() { return outputs_; }
  void* workspace() const { return workspace_->data(); }
  void set_workspace(void* workspace) { other_workspace_ = workspace; }

  template <class Input>
  void write_input(const std::vector<Input>& input) {
    input_bytes_.write(0, bytes_of(input));
  }
  void write_num_valid_rows(std::int32_t rows) { num_valid_rows_->write(0, {rows}); }

  samebits_status launch(void* stream = nullptr) {
    void* workspace = other_workspace_ != nullptr ? other_workspace_ : workspace_->data();
    const auto function = from_logits_ ? CudaLibrary::get().route_from_logits : CudaLibrary::get().route;
    return function(router_.get(), &inputs_, &outputs_, workspace, stream);
  }

  // Waits for the device.
  Routed read() const {
    check(cudaDeviceSynchronize(), "the call");
    Routed r;
    r.ids = values(ids_);
    r.weights = as_floats(values(weights_));
    r.logits = as_floats(values(logits_));
    r.tokens_per_expert = values(tokens_per_expert_);
    r.expert_offsets = values(expert_offsets_);
    r.slot_of_position = values(slot_of_position_);
    r.position_of_slot = values(position_of_slot_);
    r.sorted_token_ids = values(sorted_token_ids_);
    r.expert_ids = values(expert_ids_);
    r.num_tokens_post_padded = values(num_tokens_post_padded_);
    r.kernel_name = outputs_.kernel_name;
    return r;
  }

 private:
  using Ints = std::unique_ptr<DeviceArray<std::int32_t>>;
  template <class T>
  static std::vector<unsigned char> bytes_of(const std::vector<T>& input) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(input.data());
    return {bytes, bytes + input.size() * sizeof(T)};
  }
  static std::int32_t* copy(Ints& to, const std::vector<std::int32_t>& values) {
    to = std::make_unique<DeviceArray<std::int32_t>>(values);
    return to->data();
  }
  std::int32_t* poisoned(Ints& to, std::int64_t n) const {
    return copy(to, std::vector<std::int32_t>(static_cast<std::size_t>(n), static_cast<std::int32_t>(options_.poison)));
  }
  static std::vector<std::int32_t> values(const Ints& array) {
    return array == nullptr ? std::vector<std::int32_t>{} : array->read();
  }
  static std::vector<float> as_floats(const std::vector<std::int32_t>& bits) {
    std::vector<float> floats(bits.size());
    if (!bits.empty()) std::memcpy(floats.data(), bits.data(), bits.size() * sizeof(float));
    return floats;
  }

  const DeviceRouter& router_;
  CallOptions options_;
  DeviceArray<unsigned char> input_bytes_;
  bool from_logits_ = false;
  samebits_inputs inputs_{};
  samebits_outputs outputs_{};
  Ints token_ids_, row_class_, num_valid_rows_, ids_, weights_, logits_, tokens_per_expert_, expert_offsets_,
      slot_of_position_, position_of_slot_, sorted_token_ids_, expert_ids_, num_tokens_post_padded_;
  std::unique_ptr<DeviceArray<unsigned char>> workspace_;
  void* other_workspace_ = nullptr;
};

template <class Input>
Routed route(const DeviceRouter& router, const std::vector<Input>& input, const CallOptions& options = {}) {
  DeviceCall call(router, input, options);
  EXPECT_EQ(call.launch(), SAMEBITS_OK) << router.error();
  return call.read();
}

// Every output but the kernel's name, by bits.
inline void expect_same(const Routed& found, const Routed& right, const std::string& what) {
  const auto expect = [&](const auto& a, const auto& b, const char* name) {
    if (cpu::test::same_bits(a, b)) return;
    if (a.size() != b.size()) {
      ADD_FAILURE() << what << ": " << name << " has " << a.size() << " elements, not " << b.size();
      return;
    }
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (std::bit_cast<std::uint32_t>(a[i]) == std::bit_cast<std::uint32_t>(b[i])) continue;
      ADD_FAILURE() << what << " (" << found.kernel_name << "): " << name << "[" << i << "] is " << a[i] << ", not "
                    << b[i];
      return;
    }
  };
  expect(found.logits, right.logits, "router_logits");
  expect(found.ids, right.ids, "topk_ids");
  expect(found.weights, right.weights, "topk_weights");
  expect(found.tokens_per_expert, right.tokens_per_expert, "tokens_per_expert");
  expect(found.expert_offsets, right.expert_offsets, "expert_offsets");
  expect(found.slot_of_position, right.slot_of_position, "slot_of_position");
  expect(found.position_of_slot, right.position_of_slot, "position_of_slot");
  expect(found.sorted_token_ids, right.sorted_token_ids, "sorted_token_ids");
  expect(found.expert_ids, right.expert_ids, "expert_ids");
  expect(found.num_tokens_post_padded, right.num_tokens_post_padded, "num_tokens_post_padded");
}

}  // namespace samebits::cuda::test
