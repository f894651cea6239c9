#include "harness/bench/front_bench.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cmath>

#include "harness/backend/abi_adapter.h"

namespace samebits::harness {
namespace {

constexpr std::int64_t kLatentColumns = 3584;  // half the hidden size, on which the experts work

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw BenchError(fmt::format("the library has no {}", name));
}

}  // namespace

FrontBench::FrontBench(const std::filesystem::path& library, BenchRouter& router, Memory& memory)
    : router_(router), buffers_(memory) {
  void* handle = dlopen(std::filesystem::absolute(library).c_str(), RTLD_NOW | RTLD_LOCAL);  // loaded already
  if (handle == nullptr) throw BenchError(dlerror());
  find(handle, "samebits_front_create", create_);
  find(handle, "samebits_front_workspace_bytes", workspace_bytes_);
  find(handle, "samebits_front_project", project_);
  find(handle, "samebits_front_last_error", last_error_);
  find(handle, "samebits_front_destroy", destroy_);

  const std::int64_t hidden = router.spec().hidden_size, max_rows = router.max_rows();
  std::vector<std::uint16_t> weight = router.host_constants().gate_weight_bf16;
  weight.resize(static_cast<std::size_t>((router.gate_rows() + kLatentColumns) * hidden));
  for (std::size_t i = static_cast<std::size_t>(router.gate_rows() * hidden), j = 0; i < weight.size(); ++i, ++j) {
    weight[i] = weight[j];  // values of the same distribution
  }
  std::uint16_t* stacked = buffers_.copy(weight);
  all_weights_ = stacked;
  samebits_front_block block{};
  block.weight = dense(stacked + router.gate_rows() * hidden, kLatentColumns, hidden, SAMEBITS_BF16);
  block.output_dtype = SAMEBITS_BF16;
  if (const samebits_status status = create_(&router.spec(), &router.constants(), &block, 1, &front_);
      status != SAMEBITS_OK) {
    throw BenchError(fmt::format("samebits_front_create returned {}: {}", status_text(status), last_error_(nullptr)));
  }
  logits_ = buffers_.allocate<float>(max_rows * router.gate_rows());
  latent_ = buffers_.allocate<std::uint16_t>(max_rows * kLatentColumns);
  workspace_size_ = workspace_bytes_(front_, max_rows);
  workspace_ = buffers_.allocate(workspace_size_);
}

FrontBench::~FrontBench() {
  if (front_ != nullptr) destroy_(front_);
}

std::string FrontBench::name() const {
  return fmt::format("{}+latent", kFrontSpec);
}

std::size_t FrontBench::weight_bytes() const {
  return static_cast<std::size_t>((router_.gate_rows() + kLatentColumns) * router_.spec().hidden_size) * 2;
}

std::string FrontBench::call(std::int64_t rows, void* stream) {
  samebits_inputs inputs{};
  inputs.struct_size = sizeof(inputs);
  inputs.num_tokens = rows;
  inputs.hidden_states = dense(router_.hidden_states(), rows, router_.spec().hidden_size, SAMEBITS_BF16);
  const samebits_tensor logits = dense(logits_, rows, router_.gate_rows(), SAMEBITS_FP32);
  const samebits_tensor latent = dense(latent_, rows, kLatentColumns, SAMEBITS_BF16);
  if (const samebits_status status = project_(front_, &inputs, &logits, &latent, workspace_, workspace_size_, stream);
      status != SAMEBITS_OK) {
    throw BenchError(fmt::format("samebits_front_project returned {}: {}", status_text(status), last_error_(front_)));
  }
  return "front + " + router_.route_given(rows, logits_, stream);
}

}  // namespace samebits::harness
