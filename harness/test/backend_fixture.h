// A small case and the test plug-ins, for the tests of harness/backend.
#pragma once

#include <bit>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "harness/backend/abi_table.h"
#include "harness/backend/local_router.h"
#include "harness/backend/router_under_test.h"
#include "properties/case.h"
#include "properties/run.h"

namespace samebits::harness::fixture {

inline std::filesystem::path plugin(const std::string& fault) {
  return std::filesystem::path(SAMEBITS_TEST_PLUGINS_DIR) / (fault + ".so");
}

inline std::unique_ptr<properties::Subject> in_process(const std::string& fault) {
  return make_subject(std::make_unique<LocalRouter>(load_table(plugin(fault))));
}

struct SmallCase {
  properties::Case c;
  oracle::RouterInputs inputs;
};

// T rows of H = 16, E = 8, k = 2: sigmoid with an fp32 selection bias.
inline SmallCase small_case(std::int64_t num_tokens = 4) {
  SmallCase small;
  small.c.spec_name = "small";
  oracle::RouterSpec& spec = small.c.spec;
  spec.shape.hidden_size = 16;
  spec.shape.num_experts = 8;
  spec.shape.top_k = 2;
  spec.score.func = oracle::ScoreFunc::kSigmoid;
  spec.selection.bias = oracle::BiasType::kFp32;
  spec.weights.renormalize = oracle::Renormalize::kL1;
  oracle::RouterInputs& inputs = small.inputs;
  inputs.num_tokens = num_tokens;
  inputs.hidden_size = 16;
  inputs.gate_rows = 8;
  const auto bf16 = [](int value) {
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16);
  };
  for (std::int64_t i = 0; i < num_tokens * 16; ++i) inputs.hidden_states.push_back(bf16(static_cast<int>(i % 7) - 3));
  for (int i = 0; i < 8 * 16; ++i) inputs.gate_weight_bf16.push_back(bf16(i % 5 - 2));
  for (int i = 0; i < 8; ++i) inputs.selection_bias.push_back(0.25f * static_cast<float>(i));
  return small;
}

// "main": all rows in order.
inline properties::RunRequest all_rows(const SmallCase& small) {
  properties::RunRequest request;
  request.id = "main";
  for (std::int64_t row = 0; row < small.inputs.num_tokens; ++row) request.rows.push_back(row);
  return request;
}

inline properties::RunResult run_once(properties::Subject& subject, const SmallCase& small,
                                      const properties::RunRequest& request) {
  return subject.run(small.c, small.inputs, {request}).at(0).result;
}

inline properties::RunResult run_once(properties::Subject& subject, std::int64_t num_tokens = 4) {
  const SmallCase small = small_case(num_tokens);
  return run_once(subject, small, all_rows(small));
}

}  // namespace samebits::harness::fixture
