// The C ABI: every exception becomes a status and a text.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "kernels/common/abi_struct.h"
#include "kernels/common/error_texts.h"
#include "kernels/common/sizes.h"
#include "kernels/common/spec_check.h"
#include "kernels/cpu/bookkeep.h"
#include "kernels/cpu/logits.h"
#include "kernels/cpu/prepare.h"
#include "kernels/cpu/router.h"
#include "kernels/cpu/score.h"
#include "kernels/cpu/select.h"
#include "kernels/cpu/value.h"
#include "kernels/cpu/weigh.h"

namespace {

thread_local std::string t_create_error;

// Runs `body`, a call on a router, which keeps the text of its failure.
template <class Body>
samebits_status guarded_call(const samebits_router* router, void* stream, Body body) {
  if (router == nullptr) return SAMEBITS_INVALID_ARGUMENT;
  return samebits::guarded(
      [&] {
        if (stream != nullptr) samebits::fail_invalid("stream: given, allowed NULL on the host");
        body();
      },
      [&](const char* text) { router->errors.set(text); });
}

template <std::size_t N>
void copy_text(char (&to)[N], const char* from) {
  std::snprintf(to, N, "%s", from);
}

}  // namespace

namespace samebits::cpu {

const Steps& tc256_steps() {
  static constexpr Steps kSteps{"tc256",   prepare_selection_bias, prepare_input, logits_tc256, score_experts,
                                rank_keys, select_tc256,           value_experts, weigh_tc256,  bookkeep_tc256};
  return kSteps;
}

samebits_status create_with_steps(const Steps& steps, const samebits_router_spec* spec,
                                  const samebits_constants* constants, samebits_router** router) {
  if (router != nullptr) *router = nullptr;
  return guarded(
      [&] {
        if (router == nullptr) fail_invalid("router: null, allowed a place for the new router");
        *router = make_router(steps, spec, constants).release();
      },
      [](const char* text) { t_create_error = text; });
}

}  // namespace samebits::cpu

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
  copy_text(known.name, "samebits-cpu");
  copy_text(known.version, SAMEBITS_VERSION);
  known.memory_kinds = SAMEBITS_MEMORY_HOST;
  copy_text(known.arithmetic, "tc256");
  known.determinism = SAMEBITS_BATCH_INVARIANT;
  known.tie_break = SAMEBITS_TIES_LOWEST_INDEX;
  known.output_order = SAMEBITS_ORDER_KEY_DESC_THEN_INDEX;
  known.returns_logits = 1;
  known.returns_bookkeeping = 1;
  std::memset(info, 0, info->struct_size);
  std::memcpy(info, &known, std::min<std::size_t>(known.struct_size, sizeof(known)));
  return SAMEBITS_OK;
}

samebits_status samebits_supports(const samebits_router_spec* spec, char* reason, size_t reason_size) {
  if (reason != nullptr && reason_size > 0) reason[0] = '\0';
  return samebits::guarded([&] { samebits::check_spec(samebits::read_struct(spec, "spec")); },
                           [&](const char* text) {
                             if (reason != nullptr && reason_size > 0) std::snprintf(reason, reason_size, "%s", text);
                           });
}

int32_t samebits_topk_columns(const samebits_router_spec* spec) {
  int32_t columns = 0;
  const samebits_status status = samebits::guarded(
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
  return samebits::cpu::create_with_steps(samebits::cpu::tc256_steps(), spec, constants, router);
}

size_t samebits_workspace_bytes(const samebits_router* router, int64_t max_tokens) {
  return router == nullptr ? 0 : samebits::cpu::workspace_bytes(*router, max_tokens);
}

samebits_status samebits_workspace_init(const samebits_router* router, void* workspace, size_t workspace_bytes,
                                        void* stream) {
  return guarded_call(router, stream, [&] { samebits::cpu::init_workspace(*router, workspace, workspace_bytes); });
}

samebits_status samebits_route(const samebits_router* router, const samebits_inputs* inputs, samebits_outputs* outputs,
                               void* workspace, void* stream) {
  return guarded_call(router, stream, [&] {
    samebits::cpu::route(*router, samebits::Source::kHiddenStates, inputs, outputs, workspace);
  });
}

samebits_status samebits_route_from_logits(const samebits_router* router, const samebits_inputs* inputs,
                                           samebits_outputs* outputs, void* workspace, void* stream) {
  return guarded_call(router, stream,
                      [&] { samebits::cpu::route(*router, samebits::Source::kLogits, inputs, outputs, workspace); });
}

const char* samebits_last_error(const samebits_router* router) {
  return router == nullptr ? t_create_error.c_str() : router->errors.get();
}

void samebits_destroy(samebits_router* router) {
  delete router;
}

}  // extern "C"
