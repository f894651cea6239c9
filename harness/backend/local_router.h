// Drives a router through its C ABI in this process: buffers, poison, guard bands, unchanged inputs.
#pragma once

#include <fmt/format.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "harness/backend/abi_table.h"
#include "harness/backend/call.h"
#include "harness/backend/call_buffers.h"
#include "harness/backend/guarded_buffer.h"
#include "harness/backend/memory.h"
#include "harness/backend/router_result.h"
#include "harness/backend/router_under_test.h"

namespace samebits::harness {

class LocalRouter final : public RouterUnderTest {
 public:
  // Describes the router and takes host memory where it offers that, else device memory. Throws AbiError.
  explicit LocalRouter(AbiTable table, CallWatch watch = {});
  ~LocalRouter() override;
  LocalRouter(const LocalRouter&) = delete;
  LocalRouter& operator=(const LocalRouter&) = delete;

  const samebits_info& info() const override { return info_; }
  std::optional<std::string> unsupported(const samebits_router_spec& spec) override;
  std::optional<properties::RunResult> begin_case(const samebits_router_spec& spec, std::int32_t table_dtype,
                                                  const oracle::RouterInputs& inputs,
                                                  std::int32_t constants_gap) override;
  properties::RunResult run(const properties::RunRequest& request) override;
  std::optional<properties::RunResult> end_case() override;

 private:
  std::optional<std::string> refusal(const samebits_router_spec& spec);
  void create(std::int32_t constants_gap);
  samebits_constants make_constants(const oracle::RouterInputs& inputs, std::deque<GuardedBuffer>& buffers,
                                    std::int32_t gap);
  samebits_tensor add_hash_table(std::deque<GuardedBuffer>& buffers, const std::vector<std::int32_t>& ids,
                                 std::int32_t gap);
  // What samebits_create says, and the router, which may be null.
  samebits_status create_router(const samebits_router_spec& spec, const samebits_constants& constants,
                                samebits_router*& router);
  void destroy();
  // router: nullptr: of samebits_create.
  std::string failure_text(Call function, samebits_status status, const samebits_router* router) const;

  // One run (local_calls.cpp).
  void route(const properties::RunRequest& request, properties::RunResult& result);
  void create_wrongly(properties::Misuse misuse);
  // A second router, which lives until end() or as long as this object.
  class Other;
  samebits_router* make_other();
  void call_other(const samebits_router* other, const properties::RunRequest& request);
  void destroy_router(samebits_router* router);
  samebits_status make_calls(const properties::RunRequest& request, std::deque<CallBuffers>& calls, void* workspace,
                             properties::RunResult& result);
  samebits_status make_calls_at_once(const samebits_router* other, const properties::RunRequest& request,
                                     CallBuffers& call, void* workspace);  // concurrent_calls.cpp
  samebits_status make_late_call(properties::InputTensor late, CallBuffers& call, void* workspace);
  samebits_status replay_calls(std::deque<CallBuffers>& calls, void* workspace, properties::RunResult& result);
  samebits_status call_route(const samebits_router* router, CallBuffers& call, void* workspace, void* stream,
                             bool wait);
  Call route_function() const { return inputs_->from_logits() ? Call::kRouteFromLogits : Call::kRoute; }
  // call(), announced; what it throws becomes a RouterThrew.
  template <class Function>
  auto call_router(Call function, Function call) const;

  AbiTable table_;
  CallWatch watch_;
  samebits_info info_;
  std::unique_ptr<Memory> memory_;
  samebits_router_spec spec_{};
  std::int32_t table_dtype_ = SAMEBITS_DTYPE_NONE;
  const oracle::RouterInputs* inputs_ = nullptr;
  std::deque<GuardedBuffer> constants_;
  samebits_router* router_ = nullptr;
};

template <class Function>
auto LocalRouter::call_router(Call function, Function call) const {
  memory_->settle();
  const WatchedCall watched(watch_, function);
  try {
    return call();
  } catch (const DeviceFault&) {
    throw;  // of our own wait for the device
  } catch (const std::exception& error) {
    throw RouterThrew(fmt::format("{} threw a C++ exception across the C ABI: {}", name_of(function), error.what()));
  } catch (...) {
    throw RouterThrew(fmt::format("{} threw across the C ABI", name_of(function)));
  }
}

}  // namespace samebits::harness
