// The C ABI of the CUDA backend: every exception becomes a status and a text.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "kernels/common/abi_struct.h"
#include "kernels/common/error.h"
#include "kernels/common/error_texts.h"
#include "kernels/common/sizes.h"
#include "kernels/common/spec_check.h"
#include "kernels/cuda/limits.h"
#include "kernels/cuda/router.h"

struct samebits_router {
  samebits::cuda::Router router;
};

namespace {

using samebits::guarded;
namespace cuda = samebits::cuda;

thread_local std::string t_create_error;

template <class Body>
samebits_status guarded_call(const samebits_router* router, Body body) {
  if (router == nullptr) return SAMEBITS_INVALID_ARGUMENT;
  return guarded(body, [&](const char* text) { router->router.errors.set(text); });
}

template <std::size_t N>
void copy_text(char (&to)[N], const char* from) {
  std::snprintf(to, N, "%s", from);
}

}  // namespace

extern "C" {

uint32_t samebits_abi_version(void) {
  return SAMEBITS_ABI_VERSION;
}

samebits_status samebits_describe(samebits_info* info) {
  if (info == nullptr || info->struct_size < samebits::kLeastInfoSize ||
      info->struct_size > samebits::kMostStructSize) {
    return SAMEBITS_INVALID_ARGUMENT;
  }
  samebits_info known{};
  known.struct_size = info->struct_size;
  known.abi_version = SAMEBITS_ABI_VERSION;
  copy_text(known.name, "samebits-cuda");
  copy_text(known.version, SAMEBITS_VERSION);
  known.memory_kinds = SAMEBITS_MEMORY_DEVICE;
  copy_text(known.arithmetic, "tc256");
  known.determinism = SAMEBITS_BATCH_INVARIANT;
  known.tie_break = SAMEBITS_TIES_LOWEST_INDEX;
  known.output_order = SAMEBITS_ORDER_KEY_DESC_THEN_INDEX;
  known.returns_logits = 1;
  known.returns_bookkeeping = 1;
  known.max_experts = cuda::kMaxGateRows;
  known.max_top_k = cuda::kMaxTopK;
  known.max_tokens = cuda::kMaxTokens;
  std::memset(info, 0, info->struct_size);
  std::memcpy(info, &known, std::min<std::size_t>(known.struct_size, sizeof(known)));
  return SAMEBITS_OK;
}

samebits_status samebits_supports(const samebits_router_spec* spec, char* reason, size_t reason_size) {
  if (reason != nullptr && reason_size > 0) reason[0] = '\0';
  return guarded(
      [&] {
        const samebits_router_spec known = samebits::read_struct(spec, "spec");
        samebits::check_spec(known);
        cuda::check_limits(known);
      },
      [&](const char* text) {
        if (reason != nullptr && reason_size > 0) std::snprintf(reason, reason_size, "%s", text);
      });
}

int32_t samebits_topk_columns(const samebits_router_spec* spec) {
  int32_t columns = 0;
  const samebits_status status = guarded(
      [&] {
        const samebits_router_spec known = samebits::read_struct(spec, "spec");
        columns = static_cast<std::int32_t>(samebits::topk_columns(known));
        samebits::check_spec(known);
      },
      [](const char*) {});
  return status == SAMEBITS_OK || status == SAMEBITS_UNSUPPORTED ? columns : 0;
}

samebits_status samebits_create(const samebits_router_spec* spec, const samebits_constants* constants,
                                samebits_router** router) {
  if (router != nullptr) *router = nullptr;
  return guarded(
      [&] {
        if (router == nullptr) samebits::fail_invalid("router: null, allowed a place for the new router");
        auto made = std::make_unique<samebits_router>();
        cuda::make_router(spec, constants, made->router);
        *router = made.release();
      },
      [](const char* text) { t_create_error = text; });
}

size_t samebits_workspace_bytes(const samebits_router* router, int64_t max_tokens) {
  return router == nullptr ? 0 : cuda::workspace_bytes(router->router, max_tokens);
}

samebits_status samebits_workspace_init(const samebits_router* router, void* workspace, size_t workspace_bytes,
                                        void* stream) {
  return guarded_call(router, [&] {
    cuda::init_workspace(router->router, workspace, workspace_bytes, static_cast<cudaStream_t>(stream));
  });
}

samebits_status samebits_route(const samebits_router* router, const samebits_inputs* inputs, samebits_outputs* outputs,
                               void* workspace, void* stream) {
  return guarded_call(router, [&] {
    cuda::route(router->router, samebits::Source::kHiddenStates, inputs, outputs, workspace,
                static_cast<cudaStream_t>(stream));
  });
}

samebits_status samebits_route_from_logits(const samebits_router* router, const samebits_inputs* inputs,
                                           samebits_outputs* outputs, void* workspace, void* stream) {
  return guarded_call(router, [&] {
    cuda::route(router->router, samebits::Source::kLogits, inputs, outputs, workspace,
                static_cast<cudaStream_t>(stream));
  });
}

const char* samebits_last_error(const samebits_router* router) {
  return router == nullptr ? t_create_error.c_str() : router->router.errors.get();
}

void samebits_destroy(samebits_router* router) {
  delete router;
}

}  // extern "C"
