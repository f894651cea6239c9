// Drives a router through its C ABI in this process: buffers, poison, guard bands, unchanged inputs.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "harness/backend/abi_table.h"
#include "harness/backend/call.h"
#include "harness/backend/guarded_buffer.h"
#include "harness/backend/memory.h"
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
                                                  const oracle::RouterInputs& inputs) override;
  properties::RunResult run(const properties::RunRequest& request) override;
  std::optional<properties::RunResult> end_case() override;

 private:
  std::optional<std::string> refusal(const samebits_router_spec& spec);
  void create(std::int32_t table_dtype);
  samebits_constants make_constants(std::int32_t table_dtype);
  void route(const properties::RunRequest& request, properties::RunResult& result);
  void destroy();
  std::string failure_text(Call function, samebits_status status) const;
  // call(), announced; what it throws becomes a RouterThrew.
  template <class Function>
  auto call_router(Call function, Function call) const;

  AbiTable table_;
  CallWatch watch_;
  samebits_info info_;
  std::unique_ptr<Memory> memory_;
  samebits_router_spec spec_{};
  const oracle::RouterInputs* inputs_ = nullptr;
  std::deque<GuardedBuffer> constants_;
  samebits_router* router_ = nullptr;
};

}  // namespace samebits::harness
