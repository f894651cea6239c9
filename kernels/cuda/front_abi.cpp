// The C interface of the front projection: every exception becomes a status and a text.
#include <memory>
#include <string>

#include "kernels/common/error.h"
#include "kernels/common/error_texts.h"
#include "kernels/cuda/front_projection.h"

struct samebits_front {
  samebits::cuda::FrontProjection projection;
};

namespace {

using samebits::guarded;
namespace cuda = samebits::cuda;

thread_local std::string t_front_create_error;

}  // namespace

extern "C" {

samebits_status samebits_front_create(const samebits_router_spec* spec, const samebits_constants* constants,
                                      const samebits_front_block* blocks, int32_t num_blocks, samebits_front** front) {
  if (front != nullptr) *front = nullptr;
  return guarded(
      [&] {
        if (front == nullptr) samebits::fail_invalid("front: null, allowed a place for the new projection");
        auto made = std::make_unique<samebits_front>();
        cuda::make_front_projection(spec, constants, blocks, num_blocks, made->projection);
        *front = made.release();
      },
      [](const char* text) { t_front_create_error = text; });
}

size_t samebits_front_workspace_bytes(const samebits_front* front, int64_t max_tokens) {
  return front == nullptr ? 0 : cuda::front_workspace_bytes(front->projection, max_tokens);
}

samebits_status samebits_front_project(const samebits_front* front, const samebits_inputs* inputs,
                                       const samebits_tensor* router_logits, const samebits_tensor* outputs,
                                       void* workspace, size_t workspace_bytes, void* stream) {
  if (front == nullptr) return SAMEBITS_INVALID_ARGUMENT;
  return guarded(
      [&] {
        cuda::project(front->projection, inputs, router_logits, outputs, workspace, workspace_bytes,
                      static_cast<cudaStream_t>(stream));
      },
      [&](const char* text) { front->projection.errors.set(text); });
}

const char* samebits_front_last_error(const samebits_front* front) {
  return front == nullptr ? t_front_create_error.c_str() : front->projection.errors.get();
}

void samebits_front_destroy(samebits_front* front) {
  delete front;
}

}  // extern "C"
