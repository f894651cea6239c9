// Every tensor of a case at the router: its shape, its type and its values, in this process and in a worker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/backend/abi_adapter.h"
#include "harness/backend/backend.h"
#include "harness/backend/wire.h"
#include "harness/backend/worker_router.h"
#include "harness/test/backend_fixture.h"

namespace samebits::harness {
namespace {

using fixture::SmallCase;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// T = 3 rows of H = 2; E = 2, one zero expert, one shared expert in the gate: R = 3, G = 4; k = 2, K = 3. No valid spec
// has all of these tensors; the harness carries what it is given.
SmallCase every_tensor() {
  SmallCase small;
  oracle::RouterSpec& spec = small.c.spec;
  spec.shape.hidden_size = 2;
  spec.shape.num_experts = 2;
  spec.shape.top_k = 2;
  spec.gate.input_scale_vector = true;
  spec.gate.linear_bias = oracle::BiasType::kFp32;
  spec.selection.method = oracle::SelectionMethod::kHashTable;
  spec.selection.bias = oracle::BiasType::kFp32;
  spec.selection.bias_variants = {"text", "image"};
  spec.weights.per_expert_scale = true;
  spec.weights.global_scale = true;
  spec.special.shared_experts = 1;
  spec.special.shared_mode = oracle::SharedMode::kInGate;
  spec.special.zero_experts = 1;
  spec.special.zero_type = oracle::ZeroType::kIdentity;
  spec.hash.vocab_size = 4;
  spec.hash.table_dtype = oracle::TableType::kInt32;
  oracle::RouterInputs& inputs = small.inputs;
  inputs.num_tokens = 3;
  inputs.hidden_size = 2;
  inputs.gate_rows = 4;
  inputs.hidden_states = {0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0};
  inputs.gate_weight_bf16 = {1, 2, 3, 4, 5, 6, 7, 8};
  inputs.input_scale_vector = {0.5f, 0.25f};
  inputs.linear_bias = {1, 2, 3, 4};
  inputs.selection_bias = {10, 11, 12, 20, 21, 22};
  inputs.per_expert_scale = {5, 6, 7, 8};
  inputs.global_scale = {9};
  inputs.hash_table = {0, 1, 1, 2, 2, 0, 0, 2};
  inputs.token_ids = {3, -1, 7};
  inputs.row_class = {1, 0, -5};
  return small;
}

properties::RunRequest rows(std::vector<std::int64_t> selected) {
  properties::RunRequest request;
  request.id = "some";
  request.rows = std::move(selected);
  request.want_logits = true;
  return request;
}

constexpr const char* kConstants =
    " gate_weight[4,2]2:1,2,3,4,5,6,7,8, linear_bias[1,4]1:1,2,3,4, selection_bias[2,3]1:10,11,12,20,21,22, "
    "input_scale_vector[1,2]1:0.5,0.25, per_expert_scale[1,4]1:5,6,7,8, global_scale[1,1]1:9, ";

TEST(RouterTensors, ReachARouterInThisProcess) {
  const auto subject = fixture::in_process("echo");
  EXPECT_EQ(subject->claims().arithmetic, oracle::Arithmetic(oracle::Arithmetic::kFp32Depth, 24));
  SmallCase small = every_tensor();
  EXPECT_THAT(run_once(*subject, small, rows({2, 0, 0})).message,
              EndsWith(std::string(kConstants) +
                       "hash_table[4,2]3:0,1,1,2,2,0,0,2, hidden_states[3,2]2:40a0,40c0,3f80,4000,3f80,4000, "
                       "token_ids[1,3]4:7,3,3, row_class[1,3]3:-5,1,1, ids[3,3] weights[3,3] logits[3,4]"));
}

TEST(RouterTensors, ReachARouterInAWorker) {
  set_worker_program(SAMEBITS_PROGRAM);
  const auto subject = open_backend({"", fixture::plugin("echo"), std::chrono::milliseconds(60000)});
  const SmallCase small = every_tensor();
  const std::string here = run_once(*fixture::in_process("echo"), small, rows({1, 2})).message;
  EXPECT_THAT(here, HasSubstr("token_ids[1,2]4:-1,7,"));
  EXPECT_EQ(run_once(*subject, small, rows({1, 2})).message, here);
}

TEST(RouterTensors, TableAndTokenIdsHaveTheTypeThatIsAskedFor) {
  SmallCase small = every_tensor();
  small.c.spec.hash.table_dtype = oracle::TableType::kInt64;
  small.inputs.token_ids_int32 = true;
  const std::string text = run_once(*fixture::in_process("echo"), small, rows({0})).message;
  EXPECT_THAT(text, HasSubstr("hash_table[4,2]4:0,1,1,2,2,0,0,2,"));
  EXPECT_THAT(text, HasSubstr("token_ids[1,1]3:3,"));
  small.inputs.token_ids[1] = std::int64_t{1} << 40;
  EXPECT_THROW(run_once(*fixture::in_process("echo"), small, rows({1})), std::invalid_argument);
}

TEST(RouterTensors, AnEmptyRunOfAHashLayerStillHasTokenIds) {
  SmallCase small = every_tensor();
  small.inputs.row_class.clear();
  const std::string text = run_once(*fixture::in_process("echo"), small, rows({})).message;
  EXPECT_THAT(text, HasSubstr(" token_ids[1,0]4: ids[0,3]"));
  EXPECT_THAT(text, Not(HasSubstr("row_class")));
}

TEST(RouterTensors, GivenLogitsComeWithTokenIdsAndClasses) {
  SmallCase small = every_tensor();
  oracle::RouterInputs& inputs = small.inputs;
  inputs.hidden_size = 0;
  inputs.hidden_states.clear();
  inputs.gate_weight_bf16.clear();
  inputs.input_scale_vector.clear();
  inputs.router_logits = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const std::string text = run_once(*fixture::in_process("echo"), small, rows({1})).message;
  EXPECT_THAT(text, HasSubstr("samebits_route_from_logits: internal error (5): "));
  EXPECT_THAT(text, HasSubstr(" router_logits[1,4]1:4,5,6,7, token_ids[1,1]4:-1, row_class[1,1]3:0, "));
  EXPECT_THAT(text, Not(HasSubstr("hidden_states")));
  EXPECT_THAT(text, Not(HasSubstr("gate_weight")));
  EXPECT_THAT(text, Not(HasSubstr("input_scale_vector")));
}

TEST(RouterTensors, AWrongSizeNeverReachesARouter) {
  SmallCase small = every_tensor();
  small.inputs.selection_bias.resize(3);
  EXPECT_THROW(run_once(*fixture::in_process("echo"), small, rows({0})), std::invalid_argument);
  small = every_tensor();
  small.inputs.gate_rows = 2;
  EXPECT_THROW(run_once(*fixture::in_process("echo"), small, rows({0})), std::invalid_argument);
}

// Everything that the worker reads back, field by field.
TEST(RouterTensors, TravelBetweenProcesses) {
  oracle::RouterInputs sent = every_tensor().inputs;
  sent.token_ids_int32 = true;
  sent.num_valid_rows = 2;
  oracle::RouterInputs read;
  std::int32_t dtype = 0;
  from_wire(to_wire(sent, SAMEBITS_INT64), read, dtype);
  EXPECT_EQ(dtype, SAMEBITS_INT64);
  EXPECT_EQ(read.num_tokens, 3);
  EXPECT_EQ(read.hidden_size, 2);
  EXPECT_EQ(read.gate_rows, 4);
  EXPECT_EQ(read.hidden_states, sent.hidden_states);
  EXPECT_EQ(read.gate_weight_bf16, sent.gate_weight_bf16);
  EXPECT_EQ(read.input_scale_vector, sent.input_scale_vector);
  EXPECT_EQ(read.linear_bias, sent.linear_bias);
  EXPECT_EQ(read.selection_bias, sent.selection_bias);
  EXPECT_EQ(read.per_expert_scale, sent.per_expert_scale);
  EXPECT_EQ(read.global_scale, sent.global_scale);
  EXPECT_EQ(read.hash_table, sent.hash_table);
  EXPECT_EQ(read.token_ids, sent.token_ids);
  EXPECT_TRUE(read.token_ids_int32);
  EXPECT_EQ(read.row_class, sent.row_class);
  EXPECT_EQ(read.num_valid_rows, 2);
}

}  // namespace
}  // namespace samebits::harness
