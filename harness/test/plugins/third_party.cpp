// A router as somebody else would write it: whole, correct, and unlike ours wherever its claims leave room. Logits are
// fp32 sums from the last column to the first, scores and weights are computed in double precision by other formulas,
// the higher of two equal ids wins, and slots come in no order. It knows samebits.h and docs/contract.md alone.
//
// third_party_claim names what it claims and does not keep, or "nothing"; the harness must refute that.
#include "third_party_router.h"

#include <cstdio>
#include <string_view>

extern "C" const char third_party_claim[];

namespace {

using namespace third_party;

bool claims(std::string_view what) {
  return what == third_party_claim;
}

thread_local char error_text[256] = "";

samebits_status fail(samebits_status status, const char* text) {
  std::snprintf(error_text, sizeof(error_text), "%s", text);
  return status;
}

void store(const samebits_outputs& outputs, int64_t row, const Ids& ids, const Row& weights) {
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t id_at = row * outputs.topk_ids.row_stride + static_cast<int64_t>(i);
    const int64_t weight_at = row * outputs.topk_weights.row_stride + static_cast<int64_t>(i);
    if (outputs.topk_ids.dtype == SAMEBITS_INT64) {
      static_cast<int64_t*>(outputs.topk_ids.data)[id_at] = ids[i];
    } else {
      static_cast<int32_t*>(outputs.topk_ids.data)[id_at] = ids[i];
    }
    if (outputs.topk_weights.dtype == SAMEBITS_BF16) {
      static_cast<uint16_t*>(outputs.topk_weights.data)[weight_at] = to_bf16(weights[i]);
    } else {
      static_cast<float*>(outputs.topk_weights.data)[weight_at] = weights[i];
    }
  }
}

// ids: of all slots.
void bookkeep(const samebits_outputs& outputs, const Ids& ids, int32_t num_ids) {
  const auto slots = static_cast<int32_t>(ids.size());
  std::vector<Ids> by_expert(static_cast<size_t>(num_ids));
  for (int32_t slot = 0; slot < slots; ++slot) {
    if (ids[static_cast<size_t>(slot)] >= 0)
      by_expert[static_cast<size_t>(ids[static_cast<size_t>(slot)])].push_back(slot);
  }
  if (claims("bookkeeping")) {
    for (Ids& list : by_expert) std::reverse(list.begin(), list.end());
  }
  if (outputs.slot_of_position != nullptr) std::fill_n(outputs.slot_of_position, slots, -1);
  if (outputs.position_of_slot != nullptr) std::fill_n(outputs.position_of_slot, slots, -1);
  const int32_t block = outputs.block_size;
  const int64_t blocks = block == 0 ? 0 : (int64_t{slots} + std::min<int64_t>(num_ids, slots) * (block - 1)) / block;
  if (outputs.sorted_token_ids != nullptr) std::fill_n(outputs.sorted_token_ids, blocks * block, slots);
  if (outputs.expert_ids != nullptr) std::fill_n(outputs.expert_ids, blocks, -1);
  int32_t position = 0, padded = 0;
  for (int32_t e = 0; e < num_ids; ++e) {
    const Ids& list = by_expert[static_cast<size_t>(e)];
    if (outputs.tokens_per_expert != nullptr) outputs.tokens_per_expert[e] = static_cast<int32_t>(list.size());
    if (outputs.expert_offsets != nullptr) outputs.expert_offsets[e] = position;
    for (size_t i = 0; i < list.size(); ++i, ++position) {
      if (outputs.slot_of_position != nullptr) outputs.slot_of_position[position] = list[i];
      if (outputs.position_of_slot != nullptr) outputs.position_of_slot[list[i]] = position;
      if (outputs.sorted_token_ids != nullptr) outputs.sorted_token_ids[padded + static_cast<int32_t>(i)] = list[i];
    }
    if (block == 0) continue;
    const int32_t used = (static_cast<int32_t>(list.size()) + block - 1) / block;
    if (outputs.expert_ids != nullptr) std::fill_n(outputs.expert_ids + padded / block, used, e);
    padded += used * block;
  }
  if (outputs.expert_offsets != nullptr) outputs.expert_offsets[num_ids] = position;
  if (outputs.num_tokens_post_padded != nullptr) *outputs.num_tokens_post_padded = padded;
}

bool is_float(int32_t dtype) {
  return dtype == SAMEBITS_FP32 || dtype == SAMEBITS_BF16;
}
bool is_integer(int32_t dtype) {
  return dtype == SAMEBITS_INT32 || dtype == SAMEBITS_INT64;
}
bool has_shape(const samebits_tensor& tensor, int64_t rows, int64_t columns) {
  return tensor.data != nullptr && tensor.rows == rows && tensor.cols == columns;
}

// "" for a call that can be served.
const char* problem_of(const samebits_router& router, const samebits_inputs& inputs, const samebits_outputs& outputs,
                       bool given) {
  const int64_t rows = inputs.num_tokens;
  if (rows < 0) return "num_tokens is negative";
  if (rows == 0) return "";
  const samebits_tensor& start = given ? inputs.router_logits : inputs.hidden_states;
  if (start.dtype != (given ? SAMEBITS_FP32 : SAMEBITS_BF16)) return "the input is absent or of another dtype";
  if (!has_shape(start, rows, given ? router.gate_rows() : router.spec.hidden_size))
    return "the input's shape is wrong";
  if (!given && router.gate_columns.empty()) return "there is no gate weight";
  if (!is_integer(outputs.topk_ids.dtype)) return "topk_ids must be INT32 or INT64";
  if (!is_float(outputs.topk_weights.dtype)) return "topk_weights must be FP32 or BF16";
  if (!has_shape(outputs.topk_ids, rows, router.columns())) return "topk_ids: the shape is wrong";
  if (!has_shape(outputs.topk_weights, rows, router.columns())) return "topk_weights: the shape is wrong";
  const bool hash = router.spec.selection_method == SAMEBITS_SELECT_HASH_TABLE;
  if (hash && (!is_integer(inputs.token_ids.dtype) || !has_shape(inputs.token_ids, 1, rows)))
    return "token_ids must be [1, num_tokens] INT32 or INT64";
  const bool classes = !router.selection_bias.empty() && inputs.row_class.data != nullptr;
  if (classes && (inputs.row_class.dtype != SAMEBITS_INT32 || !has_shape(inputs.row_class, 1, rows)))
    return "row_class must be [1, num_tokens] INT32";
  return "";
}

samebits_status run(const samebits_router& router, const samebits_inputs& inputs, samebits_outputs& outputs,
                    bool given) {
  if (const char* problem = problem_of(router, inputs, outputs, given); *problem != 0) {
    return fail(SAMEBITS_INVALID_ARGUMENT, problem);
  }
  const samebits_router_spec& spec = router.spec;
  const samebits_tensor& start = given ? inputs.router_logits : inputs.hidden_states;
  const int64_t valid = inputs.num_valid_rows == nullptr
                            ? inputs.num_tokens
                            : std::clamp<int64_t>(*inputs.num_valid_rows, 0, inputs.num_tokens);
  bool backwards = true;
  if (claims("batch_invariant")) backwards = inputs.num_tokens <= 16;
  static int calls = 0;
  if (claims("run_to_run")) backwards = ++calls % 2 == 0;
  const bool writes_logits = outputs.router_logits.data != nullptr && !claims("logits");
  Ids all;
  for (int64_t row = 0; row < inputs.num_tokens; ++row) {
    Ids ids(static_cast<size_t>(router.columns()), -1);
    Row weights(ids.size(), 0.0f);
    if (row < valid) {
      Row x;
      for (int64_t column = 0; column < start.cols; ++column)
        x.push_back(static_cast<float>(element(start, row, column)));
      const Row logits = given ? x : router.logits_of(x, backwards);
      for (size_t e = 0; e < logits.size() && writes_logits; ++e) {
        static_cast<float*>(
            outputs.router_logits.data)[row * outputs.router_logits.row_stride + static_cast<int64_t>(e)] = logits[e];
      }
      const int64_t row_class =
          inputs.row_class.data == nullptr || router.selection_bias.empty() ? 0 : integer(inputs.row_class, 0, row);
      const bool hash = spec.selection_method == SAMEBITS_SELECT_HASH_TABLE;
      const int64_t token = hash ? integer(inputs.token_ids, 0, row) : 0;
      const bool known_class = row_class >= 0 && row_class < std::max(spec.num_bias_variants, 1);
      if (known_class && token >= 0 && (!hash || token < spec.hash_vocab_size)) {
        router.route(logits, static_cast<int32_t>(row_class), token, ids, weights);
      }
    }
    store(outputs, row, ids, weights);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  bookkeep(outputs, all, router.gate_rows());
  std::snprintf(outputs.kernel_name, sizeof(outputs.kernel_name), "rows, in double");
  return SAMEBITS_OK;
}

}  // namespace

using third_party::integer;
using third_party::read;
using third_party::read_columns;

extern "C" {

uint32_t samebits_abi_version(void) {
  return SAMEBITS_ABI_VERSION;
}

samebits_status samebits_describe(samebits_info* info) {
  const uint32_t size = info->struct_size;
  std::memset(info, 0, size);
  info->struct_size = size;
  info->abi_version = SAMEBITS_ABI_VERSION;
  std::strcpy(info->name, "third party");
  std::strcpy(info->version, "3");
  info->memory_kinds = SAMEBITS_MEMORY_HOST;
  std::strcpy(info->arithmetic, "fp32-any-order");
  info->determinism = SAMEBITS_BATCH_INVARIANT;
  info->tie_break = SAMEBITS_TIES_ANY;
  info->output_order = SAMEBITS_ORDER_ANY;
  info->returns_logits = 1;
  info->returns_bookkeeping = 1;
  if (claims("tc256")) std::strcpy(info->arithmetic, "tc256");
  if (claims("depth")) std::strcpy(info->arithmetic, "fp32-depth:2");
  if (claims("bf16_logits")) std::strcpy(info->arithmetic, "bf16-logits");
  if (claims("lowest_index")) info->tie_break = SAMEBITS_TIES_LOWEST_INDEX;
  if (claims("order")) info->output_order = SAMEBITS_ORDER_KEY_DESC_THEN_INDEX;
  if (claims("run_to_run")) info->determinism = SAMEBITS_RUN_TO_RUN;
  return SAMEBITS_OK;
}

samebits_status samebits_supports(const samebits_router_spec*, char*, size_t) {
  return SAMEBITS_OK;
}

int32_t samebits_topk_columns(const samebits_router_spec* spec) {
  return spec->top_k + (spec->shared_mode == SAMEBITS_SHARED_IN_GATE ? spec->shared_experts : 0);
}

samebits_status samebits_create(const samebits_router_spec* spec, const samebits_constants* constants,
                                samebits_router** router) {
  *router = nullptr;
  const int32_t ranked = spec->num_experts + spec->zero_experts;
  if (spec->score_func < SAMEBITS_SCORE_SOFTMAX || spec->score_func > SAMEBITS_SCORE_IDENTITY) {
    return fail(SAMEBITS_INVALID_ARGUMENT, "score_func: there is no such function");
  }
  if (spec->top_k < 1 || spec->top_k > ranked)
    return fail(SAMEBITS_INVALID_ARGUMENT, "top_k: more than there are experts");
  const samebits_tensor& gate = constants->gate_weight;
  if (gate.data != nullptr && gate.cols != spec->hidden_size) {
    return fail(SAMEBITS_INVALID_ARGUMENT, "gate_weight: the columns are not those of the spec");
  }
  if (spec->selection_bias_dtype != SAMEBITS_DTYPE_NONE && constants->selection_bias.data == nullptr) {
    return fail(SAMEBITS_INVALID_ARGUMENT, "selection_bias: absent, and the spec has one");
  }
  auto made = new samebits_router{*spec,
                                  read_columns(constants->gate_weight),
                                  read(constants->linear_bias, spec->linear_bias_dtype),
                                  read(constants->selection_bias, spec->selection_bias_dtype),
                                  read(constants->input_scale_vector),
                                  read(constants->per_expert_scale),
                                  read(constants->global_scale),
                                  {}};
  const samebits_tensor& table = constants->hash_table;
  for (int64_t row = 0; table.data != nullptr && row < table.rows; ++row) {
    std::vector<bool> met(static_cast<size_t>(made->ranked()), false);
    for (int64_t column = 0; column < table.cols; ++column) {
      const int64_t id = integer(table, row, column);
      if (id < 0 || id >= made->ranked() || met[static_cast<size_t>(id)]) {
        delete made;
        return fail(SAMEBITS_INVALID_ARGUMENT, "hash_table: an id twice in a row, or out of range");
      }
      met[static_cast<size_t>(id)] = true;
      made->table.push_back(id);
    }
  }
  *router = made;
  return SAMEBITS_OK;
}

size_t samebits_workspace_bytes(const samebits_router*, int64_t) {
  return 0;
}

samebits_status samebits_workspace_init(const samebits_router*, void*, size_t, void*) {
  return SAMEBITS_OK;
}

samebits_status samebits_route(const samebits_router* router, const samebits_inputs* inputs, samebits_outputs* outputs,
                               void*, void*) {
  return run(*router, *inputs, *outputs, false);
}

samebits_status samebits_route_from_logits(const samebits_router* router, const samebits_inputs* inputs,
                                           samebits_outputs* outputs, void*, void*) {
  return run(*router, *inputs, *outputs, true);
}

const char* samebits_last_error(const samebits_router*) {
  return error_text;
}

void samebits_destroy(samebits_router* router) {
  delete router;
}

}  // extern "C"
