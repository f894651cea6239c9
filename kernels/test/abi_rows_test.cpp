// The C ABI of hash tables, token ids and row classes: shapes, dtypes, contents.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "kernels/test/test_router.h"

namespace samebits::cpu::test {
namespace {

constexpr std::int32_t kExperts = 6, kTopK = 2, kVocab = 3;
constexpr std::int64_t kRows = 3;

samebits_router_spec hash_spec() {
  samebits_router_spec spec = plain_spec(0, kExperts, kTopK);
  spec.selection_method = SAMEBITS_SELECT_HASH_TABLE;
  spec.hash_vocab_size = kVocab;
  return spec;
}

samebits_constants with_table(const samebits_tensor& table) {
  samebits_constants constants{};
  constants.struct_size = sizeof(constants);
  constants.memory = SAMEBITS_MEMORY_HOST;
  constants.hash_table = table;
  return constants;
}

std::string create_error(const samebits_tensor& table) {
  const samebits_router_spec spec = hash_spec();
  const samebits_constants constants = with_table(table);
  samebits_router* router = nullptr;
  EXPECT_EQ(samebits_create(&spec, &constants, &router), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(router, nullptr);
  return samebits_last_error(nullptr);
}

TEST(HashTableAbi, BadTablesAreRefused) {
  std::vector<std::int32_t> ids = {0, 1, 2, 3, 4, 5};
  std::vector<std::int64_t> wide = {0, 1, 2, 3, 4, 5};
  const samebits_tensor good = tensor(ids, kVocab, kTopK, SAMEBITS_INT32);
  const auto changed = [&](const std::function<void(samebits_tensor&)>& change) {
    samebits_tensor table = good;
    change(table);
    return create_error(table);
  };
  EXPECT_EQ(changed([](auto& t) { t = {}; }), "hash_table: found shape [0, 0], allowed [3, 2]");
  EXPECT_EQ(changed([](auto& t) { t.rows = 2; }), "hash_table: found shape [2, 2], allowed [3, 2]");
  EXPECT_EQ(changed([](auto& t) { t.dtype = SAMEBITS_FP32; }),
            "hash_table: found dtype 1 (fp32), allowed 3 (int32), 4 (int64)");
  ids[3] = kExperts;
  EXPECT_EQ(create_error(good), "hash_table: found id 6 in row 1, column 1, allowed 0 to 5");
  ids[3] = -1;
  EXPECT_EQ(create_error(good), "hash_table: found id -1 in row 1, column 1, allowed 0 to 5");
  ids[3] = 2;
  EXPECT_EQ(create_error(good),
            "hash_table: found id 2 a second time in row 1, column 1, allowed distinct ids in a row");
  wide[4] = (std::int64_t{1} << 32) + 4;  // 4 after narrowing
  EXPECT_EQ(create_error(tensor(wide, kVocab, kTopK, SAMEBITS_INT64)),
            "hash_table: found id 4294967300 in row 2, column 0, allowed 0 to 5");
}

struct HashCall {
  explicit HashCall(const samebits_tensor& table) {
    const samebits_router_spec spec = hash_spec();
    const samebits_constants constants = with_table(table);
    EXPECT_EQ(samebits_create(&spec, &constants, &router), SAMEBITS_OK) << samebits_last_error(nullptr);
    inputs.struct_size = sizeof(inputs);
    inputs.num_tokens = kRows;
    inputs.router_logits = tensor(logits, kRows, kExperts, SAMEBITS_FP32);
    inputs.token_ids = tensor(token_ids, 1, kRows, SAMEBITS_INT32);
    outputs.struct_size = sizeof(outputs);
    outputs.topk_ids = tensor(ids, kRows, kTopK, SAMEBITS_INT32);
    outputs.topk_weights = tensor(weights, kRows, kTopK, SAMEBITS_FP32);
    workspace.resize(samebits_workspace_bytes(router, kRows));
    EXPECT_EQ(samebits_workspace_init(router, workspace.data(), workspace.size(), nullptr), SAMEBITS_OK);
  }
  ~HashCall() { samebits_destroy(router); }
  HashCall(const HashCall&) = delete;
  HashCall& operator=(const HashCall&) = delete;

  samebits_status route() { return samebits_route_from_logits(router, &inputs, &outputs, workspace.data(), nullptr); }
  std::string error() const { return samebits_last_error(router); }

  samebits_router* router = nullptr;
  std::vector<float> logits = std::vector<float>(kRows * kExperts), weights = std::vector<float>(kRows * kTopK);
  std::vector<std::int32_t> token_ids = {2, 0, 1}, ids = std::vector<std::int32_t>(kRows * kTopK);
  std::vector<unsigned char> workspace;
  samebits_inputs inputs{};
  samebits_outputs outputs{};
};

TEST(HashTableAbi, WidthsAndStridesOfTheTable) {
  const std::vector<std::int32_t> narrow = {5, 0, 1, 4, 3, 2};
  const std::vector<std::int64_t> wide = {5, 0, -7, 1, 4, -7, 3, 2, -7};
  const std::vector<std::int32_t> expected = {3, 2, 5, 0, 1, 4};
  HashCall call(tensor(narrow, kVocab, kTopK, SAMEBITS_INT32));
  ASSERT_EQ(call.route(), SAMEBITS_OK) << call.error();
  EXPECT_EQ(call.ids, expected);
  samebits_tensor strided = tensor(wide, kVocab, kTopK, SAMEBITS_INT64);
  strided.row_stride = 3;
  HashCall other(strided);
  const std::vector<std::int64_t> wide_tokens = {2, 0, (std::int64_t{1} << 32) + 1};  // 1 after narrowing
  other.inputs.token_ids = tensor(wide_tokens, 1, kRows, SAMEBITS_INT64);
  ASSERT_EQ(other.route(), SAMEBITS_OK) << other.error();
  EXPECT_EQ(other.ids, (std::vector<std::int32_t>{3, 2, 5, 0, -1, -1}));
}

TEST(HashTableAbi, BadCallsHaveClearErrors) {
  const std::vector<std::int32_t> table = {5, 0, 1, 4, 3, 2};
  HashCall call(tensor(table, kVocab, kTopK, SAMEBITS_INT32));
  const auto error_of = [&](const std::function<void(samebits_inputs&)>& change) {
    const samebits_inputs before = call.inputs;
    change(call.inputs);
    EXPECT_EQ(call.route(), SAMEBITS_INVALID_ARGUMENT);
    call.inputs = before;
    return call.error();
  };
  EXPECT_EQ(error_of([](auto& i) { i.token_ids = {}; }),
            "token_ids: absent, allowed [1, 3] with selection_method 2 (hash_table)");
  EXPECT_EQ(error_of([](auto& i) { i.token_ids.cols = 2; }), "token_ids: found shape [1, 2], allowed [1, 3]");
  EXPECT_EQ(error_of([](auto& i) { i.token_ids.dtype = SAMEBITS_FP32; }),
            "token_ids: found dtype 1 (fp32), allowed 3 (int32), 4 (int64)");
  EXPECT_EQ(error_of([](auto& i) { i.row_class = i.token_ids, i.row_class.cols = 4; }),
            "row_class: found shape [1, 4], allowed [1, 3]");
  EXPECT_EQ(error_of([](auto& i) { i.row_class = i.token_ids, i.row_class.dtype = SAMEBITS_INT64; }),
            "row_class: found dtype 4 (int64), allowed 3 (int32)");
  EXPECT_EQ(error_of([](auto& i) { i.struct_size = offsetof(samebits_inputs, token_ids); }),
            "token_ids: absent, allowed [1, 3] with selection_method 2 (hash_table)");
}

TEST(HashTableAbi, AnEmptyCallNeedsNoTokenIds) {
  const std::vector<std::int32_t> table = {5, 0, 1, 4, 3, 2};
  HashCall call(tensor(table, kVocab, kTopK, SAMEBITS_INT32));
  call.inputs.num_tokens = call.inputs.router_logits.rows = 0;
  call.outputs.topk_ids.rows = call.outputs.topk_weights.rows = 0;
  call.inputs.token_ids = {};
  EXPECT_EQ(call.route(), SAMEBITS_OK) << call.error();
}

// Where the token id of a padding row points does not matter.
TEST(HashTableAbi, PaddingRowsAreNotLookedUp) {
  const std::vector<std::int32_t> table = {5, 0, 1, 4, 3, 2};
  HashCall call(tensor(table, kVocab, kTopK, SAMEBITS_INT32));
  const std::int32_t valid = 1;
  call.inputs.num_valid_rows = &valid;
  call.token_ids = {0, INT32_MAX, INT32_MIN};
  call.inputs.token_ids.data = call.token_ids.data();
  std::vector<float> logits(kRows * kExperts, 77.0f);
  call.outputs.router_logits = tensor(logits, kRows, kExperts, SAMEBITS_FP32);
  ASSERT_EQ(call.route(), SAMEBITS_OK) << call.error();
  EXPECT_EQ(call.ids, (std::vector<std::int32_t>{5, 0, -1, -1, -1, -1}));
  EXPECT_EQ(logits[5], 0.0f);
  EXPECT_EQ(logits[6], 77.0f);
}

}  // namespace
}  // namespace samebits::cpu::test
