// Faults around samebits_route: a call of the right router whose arguments are spoiled before it, or whose outputs are
// spoiled after it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/common/sizes.h"
#include "kernels/cpu/router.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {

// A call of samebits_route or samebits_route_from_logits. inputs and outputs are copies, for the fault to change.
struct RouteCall {
  decltype(&samebits_route) route;
  const samebits_router* router;
  samebits_inputs inputs;
  samebits_outputs outputs;
  void* workspace;
  void* stream;
  void* kept;  // of around_route_keeping

  const samebits_router_spec& spec() const { return router->constants.spec; }
  std::int64_t columns() const { return topk_columns(spec()); }
  std::int64_t valid_rows() const {
    if (inputs.num_valid_rows == nullptr) return inputs.num_tokens;
    return std::clamp<std::int64_t>(*inputs.num_valid_rows, 0, inputs.num_tokens);
  }
  bool has_hidden_states() const { return route == samebits_route; }
  samebits_status run() { return route(router, &inputs, &outputs, workspace, stream); }
};

using RouteFault = samebits_status (*)(RouteCall& call);
using KeptBytes = std::size_t (*)(const samebits_router& router);

namespace internal {

template <RouteFault kFault, KeptBytes kKept, auto kRoute>
samebits_status faulty_route(const samebits_router* router, const samebits_inputs* inputs, samebits_outputs* outputs,
                             void* workspace, void* stream) {
  void* rest = static_cast<std::byte*>(workspace) + kKept(*router);
  RouteCall call{kRoute, router, *inputs, *outputs, rest, stream, workspace};
  const samebits_status status = kFault(call);
  std::memcpy(outputs->kernel_name, call.outputs.kernel_name, sizeof(outputs->kernel_name));
  return status;
}

inline std::size_t nothing_kept(const samebits_router&) {
  return 0;
}

}  // namespace internal

// Both ways into the router.
template <RouteFault kFault>
AbiFaults around_route() {
  AbiFaults faults;
  faults.route = internal::faulty_route<kFault, internal::nothing_kept, samebits_route>;
  faults.route_from_logits = internal::faulty_route<kFault, internal::nothing_kept, samebits_route_from_logits>;
  return faults;
}

// The same with kKept(router) bytes, a multiple of 64, that belong to the fault from one call on a workspace to the
// next. kCleared: workspace_init sets them to 0; otherwise they hold what the workspace held.
template <RouteFault kFault, KeptBytes kKept, bool kCleared>
AbiFaults around_route_keeping() {
  AbiFaults faults;
  faults.workspace_bytes = [](const samebits_router* router, std::int64_t max_tokens) {
    return samebits_workspace_bytes(router, max_tokens) + kKept(*router);
  };
  faults.workspace_init = [](const samebits_router* router, void* workspace, std::size_t bytes, void* stream) {
    const std::size_t kept = kKept(*router);
    if (kCleared) std::memset(workspace, 0, kept);
    return samebits_workspace_init(router, static_cast<std::byte*>(workspace) + kept, bytes - kept, stream);
  };
  faults.route = internal::faulty_route<kFault, kKept, samebits_route>;
  faults.route_from_logits = internal::faulty_route<kFault, kKept, samebits_route_from_logits>;
  return faults;
}

// A slot as the call returned it.
inline std::int64_t id_of(const samebits_outputs& outputs, std::int64_t row, std::int64_t column) {
  const samebits_tensor& ids = outputs.topk_ids;
  const std::int64_t at = row * ids.row_stride + column;
  return ids.dtype == SAMEBITS_INT64 ? static_cast<const std::int64_t*>(ids.data)[at]
                                     : static_cast<const std::int32_t*>(ids.data)[at];
}

// A wrong weight in the first slot of the row: of a routed row, or of a padding row.
inline void spoil_weight(const samebits_outputs& outputs, std::int64_t row) {
  const samebits_tensor& weights = outputs.topk_weights;
  const std::int64_t at = row * weights.row_stride;
  if (weights.dtype == SAMEBITS_BF16) {
    static_cast<std::uint16_t*>(weights.data)[at] ^= 0x40;
  } else {
    static_cast<float*>(weights.data)[at] += 1.0f;
  }
}

// Id -1 and weight 0.
inline void clear_slot(const samebits_outputs& outputs, std::int64_t row, std::int64_t column) {
  const samebits_tensor& ids = outputs.topk_ids;
  const samebits_tensor& weights = outputs.topk_weights;
  const std::size_t id_size = ids.dtype == SAMEBITS_INT64 ? 8 : 4, weight_size = weights.dtype == SAMEBITS_BF16 ? 2 : 4;
  const auto at = [=](const samebits_tensor& tensor, std::size_t size) {
    return static_cast<std::byte*>(tensor.data) + static_cast<std::size_t>(row * tensor.row_stride + column) * size;
  };
  std::memset(at(ids, id_size), 0xff, id_size);
  std::memset(at(weights, weight_size), 0, weight_size);
}

}  // namespace samebits::mutants
