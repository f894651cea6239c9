// Strides and element types of the tensors of a call.
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cpu/gate_weight.h"
#include "kernels/cpu/logits.h"
#include "kernels/cpu/simd.h"
#include "kernels/mutants/abi_faults.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;

samebits_status row_stride_ignored(RouteCall& call) {
  for (samebits_tensor* rows : {&call.inputs.hidden_states, &call.inputs.router_logits}) rows->row_stride = rows->cols;
  return call.run();
}

samebits_status id_stride_for_weights(RouteCall& call) {
  call.outputs.topk_weights.row_stride = call.outputs.topk_ids.row_stride;
  return call.run();
}

samebits_status ids_stored_in_32_bits(RouteCall& call) {
  samebits_tensor& ids = call.outputs.topk_ids;
  if (ids.dtype == SAMEBITS_INT64) {
    ids.dtype = SAMEBITS_INT32;
    ids.row_stride *= 2;
  }
  return call.run();
}

// The 16 bits of the other half type, rounded toward zero; exact zeros stay zero.
std::uint16_t as_fp16(float weight) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &weight, sizeof(bits));
  const std::uint32_t sign = bits >> 16 & 0x8000u, exponent = bits >> 23 & 0xffu, fraction = bits >> 13 & 0x3ffu;
  if (exponent <= 112) return static_cast<std::uint16_t>(sign);
  if (exponent >= 143) return static_cast<std::uint16_t>(sign | 0x7bffu);
  return static_cast<std::uint16_t>(sign | (exponent - 112) << 10 | fraction);
}

samebits_status fp16_weights_for_bf16(RouteCall& call) {
  const samebits_tensor wanted = call.outputs.topk_weights;
  if (wanted.dtype != SAMEBITS_BF16 || call.inputs.num_tokens <= 0) return call.run();
  const std::int64_t columns = call.columns();
  std::vector<float> weights(static_cast<std::size_t>(call.inputs.num_tokens * columns));
  call.outputs.topk_weights = {weights.data(), wanted.rows, wanted.cols, columns, SAMEBITS_FP32, 0};
  const samebits_status status = call.run();
  if (status != SAMEBITS_OK) return status;
  for (std::int64_t row = 0; row < wanted.rows; ++row) {
    for (std::int64_t c = 0; c < columns; ++c) {
      static_cast<std::uint16_t*>(wanted.data)[row * wanted.row_stride + c] =
          as_fp16(weights[static_cast<std::size_t>(row * columns + c)]);
    }
  }
  return status;
}

void tail_of_hidden_dropped(const RouterConstants& constants, const std::uint16_t* hidden_states,
                            std::int64_t row_stride, std::int64_t num_rows, std::int64_t num_tokens, float* logits,
                            std::int64_t logits_stride) {
  const cpu::GateWeight& weight = *constants.gate_weight;
  const std::int64_t end = weight.hidden_size() / cpu::kStepWidth * cpu::kStepWidth;
  if (end == 0) {
    return cpu::logits_tc256(constants, hidden_states, row_stride, num_rows, num_tokens, logits, logits_stride);
  }
  cpu::multiply_rows(weight, hidden_states, row_stride, num_rows, 0, end, logits, logits_stride);
  for (std::int64_t row = 0; row < num_rows; ++row) cpu::finish_logits(constants, logits + row * logits_stride);
}

}  // namespace

std::vector<Mutant> layout_mutants() {
  using cpu::Steps;
  const Steps right = cpu::tc256_steps();
  return {
      {"M57",
       "row_stride_ignored",
       "rows of the input are read without the gaps between them",
       "layout",
       "vllm-project/vllm#56900: logits read at stride 60 although rows are padded to 64",
       {"qwen3-30b-a3b"},
       right,
       around_route<row_stride_ignored>()},
      {"M58",
       "id_stride_for_weights",
       "weights are stored with the row stride of the ids",
       "layout",
       "ROCm/aiter#1086, vllm-project/vllm#57167",
       {"qwen3-30b-a3b"},
       right,
       around_route<id_stride_for_weights>()},
      {"M59",
       "ids_stored_in_32_bits",
       "ids are stored in 32 bits although 64 were asked for",
       "layout",
       "vllm-project/vllm#55147",
       {"qwen3-30b-a3b"},
       right,
       around_route<ids_stored_in_32_bits>()},
      {"M60",
       "fp16_weights_for_bf16",
       "weights that were asked for in bf16 are stored in fp16",
       "layout",
       "flashinfer-ai/flashinfer#3644, #3925: weights stored in another type than the buffer's",
       {"qwen3-30b-a3b"},
       right,
       around_route<fp16_weights_for_bf16>()},
      {"M61",
       "tail_of_hidden_dropped",
       "columns past the last whole step of 16 take no part in the product",
       "precision",
       "vllm-project/vllm#39897: loads of 32 bytes assume that H is a multiple of 16",
       {.spec = "qwen3-30b-a3b", .set = {{"shape.hidden_size", "72"}}},
       with(&Steps::logits, tail_of_hidden_dropped)},
  };
}

}  // namespace samebits::mutants
