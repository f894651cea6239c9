// Small calls full of ties, of every form of the logits and every way to choose: what ci/gpu runs under
// compute-sanitizer. The workspace is as cudaMalloc gives it, so that initcheck sees what a call reads unwritten.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/test_cuda/device_router.h"

namespace samebits::cuda::test {
namespace {

constexpr std::int32_t kHidden = 272, kExperts = 64, kTopK = 6;

struct TieCase {
  const char* name;
  void (*change)(samebits_router_spec&);
};

const TieCase kTieCases[] = {
    {"sigmoid_bias", [](samebits_router_spec&) {}},
    {"groups",
     [](samebits_router_spec& s) {
       s.n_group = 8, s.topk_group = 3;
       s.group_score = SAMEBITS_GROUP_SCORE_TOP2_SUM, s.group_mask = SAMEBITS_GROUP_MASK_NEG_INF;
     }},
    {"softmax_prepared_softcap",
     [](samebits_router_spec& s) {
       s.score_func = SAMEBITS_SCORE_SOFTMAX;
       s.input_norm = SAMEBITS_INPUT_NORM_RMSNORM_UNWEIGHTED, s.input_norm_eps = 1e-6f;
       s.input_scale_vector = 1, s.softcap = 1.5f;
       s.per_expert_scale = s.global_scale = 1;
     }},
    {"hash_table_shared",
     [](samebits_router_spec& s) {
       s.selection_bias_dtype = SAMEBITS_DTYPE_NONE, s.num_bias_variants = 0;
       s.selection_method = SAMEBITS_SELECT_HASH_TABLE, s.hash_vocab_size = 50;
       s.shared_experts = 3, s.shared_mode = SAMEBITS_SHARED_IN_GATE;
     }},
    {"log_space_shared_per_group",
     [](samebits_router_spec& s) {
       s.renormalize = SAMEBITS_RENORM_LOG_SPACE_L1, s.eps_mode = SAMEBITS_EPS_NONE, s.eps = 0;
       s.shared_experts = 2, s.shared_mode = SAMEBITS_SHARED_IN_GATE;
       s.n_group = s.topk_group = 2, s.topk_scope = SAMEBITS_TOPK_PER_GROUP;
     }},
    {"sparsemixer",
     [](samebits_router_spec& s) {
       s.selection_bias_dtype = SAMEBITS_DTYPE_NONE, s.num_bias_variants = 0;
       s.score_func = SAMEBITS_SCORE_SOFTMAX, s.rank_by = SAMEBITS_RANK_BY_LOGIT;
       s.selection_method = SAMEBITS_SELECT_SPARSEMIXER, s.sparsemixer_jitter_eps = 0.3f;
     }},
};

// Four different gate rows and two different biases: every key is there many times.
Constants tied_constants(const samebits_router_spec& spec) {
  Constants constants = cpu::test::random_constants(spec, 3);
  for (std::int64_t g = 4; g < cpu::test::rows_of_gate(spec); ++g) {
    std::copy_n(constants.gate_weight.begin() + g % 4 * kHidden, kHidden, constants.gate_weight.begin() + g * kHidden);
  }
  for (std::size_t i = 2; i < constants.selection_bias.size(); ++i) {
    constants.selection_bias[i] = constants.selection_bias[i / 4 % 2];
  }
  return constants;
}

class TieHeavy : public DeviceTest {};

TEST_F(TieHeavy, EqualsTheCpu) {
  for (const TieCase& c : kTieCases) {
    samebits_router_spec spec = cpu::test::sigmoid_bias_spec(kHidden, kExperts, kTopK);
    c.change(spec);
    const Constants constants = tied_constants(spec);
    const DeviceRouter router(spec, cpu::test::abi_constants(spec, constants));
    const cpu::test::TestRouter cpu_router(spec, constants);
    for (const std::int64_t num_rows : {1, 3, 65, 300}) {  // decode three times, prefill
      SCOPED_TRACE(std::string(c.name) + ", rows " + std::to_string(num_rows));
      std::vector<std::uint16_t> hidden = cpu::test::normal_bf16(7, num_rows * kHidden);
      std::fill_n(hidden.begin() + num_rows / 2 * kHidden, kHidden, std::uint16_t{0});
      CallOptions options;
      options.bookkeeping = true, options.block_size = 16;
      options.num_valid_rows = static_cast<std::int32_t>(num_rows - num_rows / 8);
      for (std::int64_t t = 0; t < num_rows && spec.hash_vocab_size > 0; ++t) {
        options.token_ids.push_back(static_cast<std::int32_t>(t * 7 % 52 - 1));
      }
      DeviceCall call(router, hidden, options);
      const std::size_t bytes = CudaLibrary::get().workspace_bytes(router.get(), num_rows);
      const DeviceArray<unsigned char> workspace(bytes);
      ASSERT_EQ(CudaLibrary::get().workspace_init(router.get(), workspace.data(), bytes, nullptr), SAMEBITS_OK);
      call.set_workspace(workspace.data());
      ASSERT_EQ(call.launch(), SAMEBITS_OK) << router.error();
      const Routed found = call.read(), wanted = cpu_router.route(hidden, options);
      using cpu::test::same_bits;
      EXPECT_EQ(found.ids, wanted.ids);
      EXPECT_TRUE(same_bits(found.weights, wanted.weights));
      EXPECT_TRUE(same_bits(found.logits, wanted.logits));
      EXPECT_EQ(found.tokens_per_expert, wanted.tokens_per_expert);
      EXPECT_EQ(found.expert_offsets, wanted.expert_offsets);
      EXPECT_EQ(found.slot_of_position, wanted.slot_of_position);
      EXPECT_EQ(found.position_of_slot, wanted.position_of_slot);
      EXPECT_EQ(found.sorted_token_ids, wanted.sorted_token_ids);
      EXPECT_EQ(found.expert_ids, wanted.expert_ids);
      EXPECT_EQ(found.num_tokens_post_padded, wanted.num_tokens_post_padded);
    }
  }
}

}  // namespace
}  // namespace samebits::cuda::test
