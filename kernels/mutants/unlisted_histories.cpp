// A call that depends on the calls before it, or on other routers.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "kernels/cpu/router.h"
#include "kernels/mutants/abi_faults.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

samebits_status spoil_first_row(RouteCall& call, bool spoiled) {
  const samebits_status status = call.run();
  if (status == SAMEBITS_OK && spoiled && call.inputs.num_tokens > 0) spoil_weight(call.outputs, 0);
  return status;
}

// What a workspace remembers.
struct Counters {
  std::int32_t calls, calls_of_many_rows, from_hidden_states, from_logits;
};

std::size_t counter_bytes(const samebits_router&) {
  return 64;
}

Counters& counters_of(const RouteCall& call) {
  return *static_cast<Counters*>(call.kept);
}

samebits_status second_call_of_many_rows(RouteCall& call) {
  if (call.inputs.num_tokens <= 32) return call.run();
  return spoil_first_row(call, counters_of(call).calls_of_many_rows++ > 0);
}

samebits_status fifth_call(RouteCall& call) {
  return spoil_first_row(call, ++counters_of(call).calls > 4);
}

samebits_status call_256(RouteCall& call) {
  return spoil_first_row(call, static_cast<std::uint8_t>(++counters_of(call).calls) == 0);
}

// The weights that the first slots had last, marked with the epoch of their call.
struct Handover {
  std::uint8_t epoch, marks[63];
  float weights[63];
  std::int32_t unused;
};

std::size_t handover_bytes(const samebits_router&) {
  return sizeof(Handover);
}

samebits_status epoch_of_8_bits(RouteCall& call) {
  const samebits_status status = call.run();
  if (status != SAMEBITS_OK || call.outputs.topk_weights.dtype != SAMEBITS_FP32) return status;
  Handover& handover = *static_cast<Handover*>(call.kept);
  ++handover.epoch;
  for (std::int64_t row = 0; row < std::min<std::int64_t>(call.valid_rows(), std::size(handover.marks)); ++row) {
    float& weight = static_cast<float*>(call.outputs.topk_weights.data)[row * call.outputs.topk_weights.row_stride];
    if (handover.marks[row] == handover.epoch) weight = handover.weights[row];
    handover.marks[row] = handover.epoch;
    handover.weights[row] = weight;
  }
  return status;
}

samebits_status both_ways_on_a_workspace(RouteCall& call) {
  Counters& counters = counters_of(call);
  ++(call.has_hidden_states() ? counters.from_hidden_states : counters.from_logits);
  return spoil_first_row(call, counters.from_hidden_states > 0 && counters.from_logits > 0);
}

// Constants in global memory: those of the router that was created last.
std::atomic<float> last_scale{1.0f};

samebits_status scale_of_last_router(RouteCall& call) {
  return spoil_first_row(call, last_scale != call.spec().routed_scaling_factor);
}

AbiFaults around_last_router() {
  AbiFaults faults = around_route<scale_of_last_router>();
  faults.create = [](const samebits_router_spec* spec, const samebits_constants* constants, samebits_router** router) {
    const samebits_status status = samebits_create(spec, constants, router);
    if (status == SAMEBITS_OK) last_scale = spec->routed_scaling_factor;
    return status;
  };
  return faults;
}

std::atomic<int> living{0};

samebits_status only_router(RouteCall& call) {
  return spoil_first_row(call, living > 1);
}

AbiFaults around_only_router() {
  AbiFaults faults = around_route<only_router>();
  faults.create = [](const samebits_router_spec* spec, const samebits_constants* constants, samebits_router** router) {
    const samebits_status status = samebits_create(spec, constants, router);
    if (status == SAMEBITS_OK) ++living;
    return status;
  };
  faults.destroy = [](samebits_router* router) {
    if (router != nullptr) --living;
    samebits_destroy(router);
  };
  return faults;
}

// Constants that the creating thread alone can see.
thread_local int created_here = 0;

samebits_status only_in_the_creating_thread(RouteCall& call) {
  return spoil_first_row(call, created_here == 0);
}

AbiFaults around_creating_thread() {
  AbiFaults faults = around_route<only_in_the_creating_thread>();
  faults.create = [](const samebits_router_spec* spec, const samebits_constants* constants, samebits_router** router) {
    ++created_here;
    return samebits_create(spec, constants, router);
  };
  return faults;
}

}  // namespace

std::vector<Mutant> unlisted_history_mutants() {
  const cpu::Steps& good = cpu::tc256_steps();
  return {
      {"U121",
       "second_call_of_many_rows",
       "the second call of more than 32 rows on a workspace is wrong",
       "history",
       "",
       {"glm-5.3-flash"},
       good,
       around_route_keeping<second_call_of_many_rows, counter_bytes, true>()},
      {"U122",
       "fifth_call",
       "the fifth call on a workspace, and those after it, are wrong",
       "history",
       "",
       {"glm-5.3-flash"},
       good,
       around_route_keeping<fifth_call, counter_bytes, true>()},
      {"U123",
       "both_ways_on_a_workspace",
       "given logits and hidden states on one workspace spoil each other",
       "history",
       "",
       {"glm-5.3-flash"},
       good,
       around_route_keeping<both_ways_on_a_workspace, counter_bytes, true>()},
      {"U124",
       "scale_of_last_router",
       "a call uses the scale of the router that was created last",
       "history",
       "",
       {"glm-5.3-flash"},
       good,
       around_last_router()},
      {"U125",
       "one_router_at_a_time",
       "a call is wrong while another router lives",
       "history",
       "",
       {"glm-5.3-flash"},
       good,
       around_only_router()},
      {"U126",
       "call_256",
       "the 256th call on a workspace is wrong, and none before it",
       "history",
       "",
       {"glm-5.3-flash"},
       good,
       around_route_keeping<call_256, counter_bytes, true>()},
      {"U127",
       "epoch_of_8_bits",
       "after 256 calls what a row left in the workspace is taken for what it wrote now",
       "history",
       "",
       {"glm-5.3-flash"},
       good,
       around_route_keeping<epoch_of_8_bits, handover_bytes, true>()},
      {"U130",
       "only_in_the_creating_thread",
       "a call by another thread than the one that created the router is wrong",
       "history",
       "",
       {"glm-5.3-flash"},
       good,
       around_creating_thread()},
  };
}

}  // namespace samebits::mutants
