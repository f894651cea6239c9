#include "kernels/test_cuda/answers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "kernels/cuda/workspace.h"

namespace samebits::cuda::test {
namespace {

constexpr std::uint32_t kPoison = 0xa5a5a5a5u;
constexpr int kPoisonByte = 0xa5;

void check_status(samebits_status status, const DeviceRouter& router, const char* what) {
  if (status != SAMEBITS_OK) throw std::runtime_error(std::string(what) + ": " + router.error());
}

std::size_t words(std::int64_t rows, std::int64_t width) {
  return static_cast<std::size_t>(rows * width);
}

}  // namespace

Answers::Answers(const DeviceRouter& router, std::int64_t num_rows)
    : num_rows_(num_rows),
      columns_(cpu::test::columns_of(router.spec())),
      gate_rows_(cpu::test::rows_of_gate(router.spec())),
      ids_(words(num_rows + 1, columns_)),
      weights_(words(num_rows + 1, columns_)),
      logits_(words(num_rows + 1, gate_rows_)) {}

void Answers::poison(cudaStream_t stream) {
  const auto fill = [&](void* data, std::size_t size) {
    check(cudaMemsetAsync(data, kPoisonByte, size * sizeof(std::uint32_t), stream), "cudaMemsetAsync");
  };
  fill(ids_.data(), ids_.size());
  fill(weights_.data(), weights_.size());
  fill(logits_.data(), logits_.size());
}

void Answers::compare_rows(std::int64_t n, const Answers& alone, const RowOrder& order, std::uint64_t* count,
                           cudaStream_t stream) const {
  count_different(ids_.data(), alone.ids_.data(), order, n, columns_, count, stream);
  count_different(weights_.data(), alone.weights_.data(), order, n, columns_, count, stream);
  count_different(logits_.data(), alone.logits_.data(), order, n, gate_rows_, count, stream);
}

void Answers::compare(std::int64_t n, const Answers& alone, const RowOrder& order, std::uint64_t* count,
                      cudaStream_t stream) const {
  compare_rows(n, alone, order, count, stream);
  compare_poison(n, count, stream);
}

void Answers::compare_padding(std::int64_t first, std::int64_t end, std::uint64_t* count, cudaStream_t stream) const {
  count_other(ids(first), 0xffffffffu, (end - first) * columns_, count, stream);
  count_other(weights(first), 0, (end - first) * columns_, count, stream);
  count_other(logits(first), kPoison, (end - first) * gate_rows_, count, stream);
  compare_poison(end, count, stream);
}

void Answers::compare_poison(std::int64_t row, std::uint64_t* count, cudaStream_t stream) const {
  count_other(ids(row), kPoison, columns_, count, stream);
  count_other(weights(row), kPoison, columns_, count, stream);
  count_other(logits(row), kPoison, gate_rows_, count, stream);
}

Bookkeeping::Bookkeeping(const DeviceRouter& router, std::int64_t num_rows)
    : columns_(cpu::test::columns_of(router.spec())),
      gate_rows_(cpu::test::rows_of_gate(router.spec())),
      tokens_per_expert_(words(1, gate_rows_)),
      position_of_slot_(words(num_rows, columns_)) {}

void Bookkeeping::poison(cudaStream_t stream) const {
  for (const DeviceArray<std::int32_t>* array : {&tokens_per_expert_, &position_of_slot_}) {
    check(cudaMemsetAsync(array->data(), kPoisonByte, array->size() * sizeof(std::int32_t), stream), "cudaMemsetAsync");
  }
}

void Bookkeeping::ask_for(samebits_outputs& outputs) const {
  outputs.tokens_per_expert = tokens_per_expert_.data();
  outputs.position_of_slot = position_of_slot_.data();
}

void Bookkeeping::expect_that_of(const Answers& answers, std::int64_t n, const std::string& what,
                                 cudaStream_t stream) const {
  check(cudaStreamSynchronize(stream), "bookkeeping");
  std::vector<std::int32_t> ids(words(n, columns_));
  check(cudaMemcpy(ids.data(), answers.ids(0), ids.size() * sizeof(std::int32_t), cudaMemcpyDeviceToHost), "ids");
  std::vector<std::int32_t> counts(words(1, gate_rows_)), positions(ids.size(), -1);
  for (const std::int32_t id : ids) {
    ASSERT_TRUE(id >= -1 && id < gate_rows_) << what << ", id " << id;
    if (id >= 0) ++counts[static_cast<std::size_t>(id)];
  }
  std::vector<std::int32_t> next;  // position of each expert
  std::int32_t before = 0;
  for (const std::int32_t count : counts) next.push_back(before), before += count;
  for (std::size_t slot = 0; slot < ids.size(); ++slot) {
    if (ids[slot] >= 0) positions[slot] = next[static_cast<std::size_t>(ids[slot])]++;
  }
  EXPECT_EQ(tokens_per_expert_.read(), counts) << what;
  const std::vector<std::int32_t> found = position_of_slot_.read(0, positions.size());
  const auto at = std::mismatch(found.begin(), found.end(), positions.begin());
  EXPECT_EQ(at.first, found.end()) << what << ", slot " << at.first - found.begin() << " has another position";
}

Caller::Caller(const DeviceRouter& router, std::int64_t max_rows, cudaStream_t stream)
    : router_(router), stream_(stream), workspace_(CudaLibrary::get().workspace_bytes(router.get(), max_rows)) {
  check_status(CudaLibrary::get().workspace_init(router.get(), workspace_.data(), workspace_.size(), stream), router,
               "samebits_workspace_init");
}

void Caller::poison_workspace() {
  // What cudaMalloc gives is aligned as the header is.
  check(cudaMemsetAsync(workspace_.data() + kWorkspaceHeaderBytes, kPoisonByte,
                        workspace_.size() - kWorkspaceHeaderBytes, stream_),
        "cudaMemsetAsync");
}

void Caller::route(const std::uint16_t* rows, std::int64_t num_rows, const Answers& answers, std::int64_t first_answer,
                   const std::int32_t* num_valid_rows, const RowInfo& info, const Bookkeeping* bookkeeping) {
  const samebits_router_spec& spec = router_.spec();
  const std::int64_t h = spec.hidden_size, k = cpu::test::columns_of(spec), g = cpu::test::rows_of_gate(spec);
  samebits_inputs inputs{};
  inputs.struct_size = sizeof(inputs);
  inputs.num_tokens = num_rows;
  inputs.hidden_states = {const_cast<std::uint16_t*>(rows), num_rows, h, h, SAMEBITS_BF16, 0};
  inputs.num_valid_rows = num_valid_rows;
  const auto row_ints = [&](const std::int32_t* values) {
    return samebits_tensor{const_cast<std::int32_t*>(values), 1, num_rows, num_rows, SAMEBITS_INT32, 0};
  };
  if (info.token_ids != nullptr) inputs.token_ids = row_ints(info.token_ids);
  if (info.row_class != nullptr) inputs.row_class = row_ints(info.row_class);
  samebits_outputs outputs{};
  outputs.struct_size = sizeof(outputs);
  outputs.topk_ids = {answers.ids(first_answer), num_rows, k, k, SAMEBITS_INT32, 0};
  outputs.topk_weights = {answers.weights(first_answer), num_rows, k, k, SAMEBITS_FP32, 0};
  outputs.router_logits = {answers.logits(first_answer), num_rows, g, g, SAMEBITS_FP32, 0};
  if (bookkeeping != nullptr) bookkeeping->ask_for(outputs);
  check_status(CudaLibrary::get().route(router_.get(), &inputs, &outputs, workspace_.data(), stream_), router_,
               "samebits_route");
  kernel_name_ = outputs.kernel_name;
}

}  // namespace samebits::cuda::test
