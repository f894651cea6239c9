/* The C ABI of a Mixture-of-Experts router, for engines that call one and for plug-ins that provide one.
 *
 * Plain C99, no dependencies. Every struct that crosses the boundary starts with its size; a reader treats fields
 * beyond that size as zero, so that fields can be added at the end; a size above 65,536 is refused. All functions
 * return a samebits_status unless said otherwise; the text of the last failure is in samebits_last_error (or in the
 * reason buffer of samebits_supports).
 *
 * A router is immutable after creation and may be used from any thread and stream; a workspace serves one call (one
 * stream) at a time. No function allocates, synchronises or reads device memory on the host during samebits_route.
 *
 * Symbols: T = num_tokens, H = hidden_size. E = num_experts, the routed experts; R = E + zero_experts, the experts that
 * compete; G = R + (shared_experts if shared_mode is SAMEBITS_SHARED_IN_GATE), the rows of the gate. Ids are
 * 0 .. G-1 in this order. k = top_k; K = samebits_topk_columns(spec) = k + (the shared experts in the gate).
 */
#ifndef SAMEBITS_SAMEBITS_H_
#define SAMEBITS_SAMEBITS_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SAMEBITS_ABI_VERSION 1u

#if defined(_WIN32)
#define SAMEBITS_API __declspec(dllexport)
#else
#define SAMEBITS_API __attribute__((visibility("default")))
#endif

typedef int32_t samebits_status;
enum {
  SAMEBITS_OK = 0,
  SAMEBITS_INVALID_ARGUMENT = 1, /* null or inconsistent arguments, wrong dtype or shape */
  SAMEBITS_UNSUPPORTED = 2,      /* a valid request that this router does not implement */
  SAMEBITS_OUT_OF_MEMORY = 3,
  SAMEBITS_DEVICE_ERROR = 4,
  SAMEBITS_INTERNAL_ERROR = 5
};

/* 0 means "absent" or "none" in every enumeration below. */
enum { SAMEBITS_DTYPE_NONE = 0, SAMEBITS_FP32 = 1, SAMEBITS_BF16 = 2, SAMEBITS_INT32 = 3, SAMEBITS_INT64 = 4 };
enum { SAMEBITS_MEMORY_HOST = 1, SAMEBITS_MEMORY_DEVICE = 2 }; /* bits of samebits_info.memory_kinds */
enum {
  SAMEBITS_SCORE_SOFTMAX = 1,
  SAMEBITS_SCORE_SIGMOID = 2,
  SAMEBITS_SCORE_SQRT_SOFTPLUS = 3,
  SAMEBITS_SCORE_IDENTITY = 4
};
enum { SAMEBITS_SCORE_BEFORE_TOPK = 1, SAMEBITS_SCORE_AFTER_TOPK = 2 };
enum { SAMEBITS_SELECT_TOPK = 1, SAMEBITS_SELECT_HASH_TABLE = 2, SAMEBITS_SELECT_SPARSEMIXER = 3 };
enum { SAMEBITS_RANK_BY_SCORE = 1, SAMEBITS_RANK_BY_LOGIT = 2 };
enum { SAMEBITS_GROUP_SCORE_NONE = 0, SAMEBITS_GROUP_SCORE_MAX = 1, SAMEBITS_GROUP_SCORE_TOP2_SUM = 2 };
enum { SAMEBITS_GROUP_MASK_NONE = 0, SAMEBITS_GROUP_MASK_NEG_INF = 1, SAMEBITS_GROUP_MASK_ZERO = 2 };
enum { SAMEBITS_TOPK_GLOBAL = 1, SAMEBITS_TOPK_PER_GROUP = 2 };
enum { SAMEBITS_SORT_BY_KEY_DESC = 1, SAMEBITS_SORT_BY_INDEX = 2 };
enum { SAMEBITS_WEIGHT_UNBIASED_SCORE = 1, SAMEBITS_WEIGHT_BIASED_SCORE = 2 };
enum { SAMEBITS_RENORM_NONE = 0, SAMEBITS_RENORM_L1 = 1, SAMEBITS_RENORM_LOG_SPACE_L1 = 2 };
enum { SAMEBITS_EPS_NONE = 0, SAMEBITS_EPS_ADD = 1, SAMEBITS_EPS_CLAMP_MIN = 2 };
enum { SAMEBITS_SCALE_AFTER_RENORM = 1, SAMEBITS_SCALE_BEFORE_DIVIDE = 2, SAMEBITS_SCALE_ON_EXPERT_OUTPUT = 3 };
enum { SAMEBITS_INPUT_NORM_NONE = 0, SAMEBITS_INPUT_NORM_RMSNORM_UNWEIGHTED = 1 };
enum {
  SAMEBITS_SHARED_OUTSIDE_ROUTER = 0,
  SAMEBITS_SHARED_OUTSIDE_ROUTER_SIGMOID_GATE = 1,
  SAMEBITS_SHARED_FUSED_IDS = 2,
  SAMEBITS_SHARED_IN_GATE = 3
};
enum {
  SAMEBITS_ZERO_EXPERTS_NONE = 0,
  SAMEBITS_ZERO_EXPERTS_IDENTITY = 1,
  SAMEBITS_ZERO_EXPERTS_IDENTITY_REMAPPED_TO_ID0_WEIGHT0 = 2
};

/* What the router computes; the meaning of each field is that of the YAML schema (docs/spec.md). */
typedef struct samebits_router_spec {
  uint32_t struct_size;
  int32_t hidden_size;
  int32_t num_experts;
  int32_t top_k;
  int32_t logits_dtype;      /* SAMEBITS_FP32, SAMEBITS_BF16: one RNE rounding after the linear bias */
  int32_t linear_bias_dtype; /* NONE, FP32, BF16: the bias is rounded to bf16 before it is added */
  int32_t input_norm;
  int32_t input_scale_vector;            /* 0 or 1 */
  int32_t input_scale_rsqrt_hidden_size; /* 1: H^-1/2 instead of input_scale; 2: that rounded to bf16 */
  float input_norm_eps;
  float input_scale;
  float temperature; /* 1: off */
  float softcap;     /* 0: off */
  int32_t score_func;
  int32_t score_stage;
  int32_t score_dtype;
  int32_t selection_method;
  int32_t rank_by;
  int32_t selection_bias_dtype; /* NONE, FP32, BF16: the bias is rounded to bf16 before it is added */
  int32_t num_bias_variants;    /* rows of selection_bias */
  int32_t n_group;
  int32_t topk_group;
  int32_t group_score;
  int32_t group_mask;
  int32_t topk_scope;
  int32_t sort;
  int32_t weight_source;
  int32_t renormalize;
  int32_t eps_mode;
  float eps;
  float routed_scaling_factor;
  int32_t scale_stage;
  int32_t per_expert_scale; /* 0 or 1 */
  int32_t global_scale;     /* 0 or 1 */
  int32_t weights_dtype;    /* BF16: one RNE rounding of the finished weight */
  int32_t shared_experts;
  int32_t shared_mode;
  int32_t zero_experts;
  int32_t zero_type;
  int32_t hash_vocab_size;
  float sparsemixer_jitter_eps;
} samebits_router_spec;

/* A row-major matrix; strides count elements. data == NULL: absent. A vector has rows == 1. */
typedef struct samebits_tensor {
  void* data;
  int64_t rows;
  int64_t cols;
  int64_t row_stride;
  int32_t dtype;
  int32_t reserved;
} samebits_tensor;

/* Tensors that do not change between calls. The router copies or repacks what it needs; the caller may free them. */
typedef struct samebits_constants {
  uint32_t struct_size;
  int32_t memory; /* SAMEBITS_MEMORY_HOST or SAMEBITS_MEMORY_DEVICE: where every tensor of this call lives */
  samebits_tensor gate_weight;        /* [G, H] BF16 or FP32; absent: only samebits_route_from_logits may be used */
  samebits_tensor linear_bias;        /* [1, G] FP32 */
  samebits_tensor selection_bias;     /* [num_bias_variants, R] FP32 */
  samebits_tensor input_scale_vector; /* [1, H] FP32 */
  samebits_tensor per_expert_scale;   /* [1, G] FP32, by id */
  samebits_tensor global_scale;       /* [1, 1] FP32 */
  samebits_tensor hash_table; /* [vocab, k] INT32 or INT64: ids in 0 .. R-1, distinct in a row, or create fails */
} samebits_constants;

typedef struct samebits_inputs {
  uint32_t struct_size;
  int32_t reserved;
  int64_t num_tokens;            /* T >= 0 */
  samebits_tensor hidden_states; /* [T, H] BF16; used by samebits_route */
  samebits_tensor router_logits; /* [T, G] FP32; used by samebits_route_from_logits: finished logits */
  const int32_t* num_valid_rows; /* in the router's memory, read during the call, clamped to [0, T]; NULL: T */
  samebits_tensor token_ids;     /* [1, T] INT32 or INT64; hash layers, where it is required */
  samebits_tensor row_class;     /* [1, T] INT32 index into the bias variants; absent: 0 */
} samebits_inputs;

/* Outputs with data == NULL (or a null pointer) are not wanted. A padding row gets id -1 and weight 0 in every column,
 * its logits are untouched, and it is not counted. So does, but for its logits, a row whose token id lies outside
 * [0, hash_vocab_size) or whose class lies outside [0, num_bias_variants). A slot is the flat index token * K + column.
 */
typedef struct samebits_outputs {
  uint32_t struct_size;
  int32_t block_size;              /* B of the padded block form; 0: not wanted */
  samebits_tensor topk_ids;        /* [T, K] INT32 or INT64, required */
  samebits_tensor topk_weights;    /* [T, K] FP32 or BF16, required */
  samebits_tensor router_logits;   /* [T, G] FP32; given ones come out as they went in */
  int32_t* tokens_per_expert;      /* [G] */
  int32_t* expert_offsets;         /* [G + 1] */
  int32_t* slot_of_position;       /* [T * K] slots by expert, ascending inside one; -1 past expert_offsets[G] */
  int32_t* position_of_slot;       /* [T * K] inverse of slot_of_position; -1 where the id is -1 */
  int32_t* sorted_token_ids;       /* [blocks * B], blocks = floor((T*K + min(G, T*K)*(B-1)) / B); pads hold T * K */
  int32_t* expert_ids;             /* [blocks]; -1 past the active end */
  int32_t* num_tokens_post_padded; /* [1] */
  char kernel_name[64];            /* written by the call: which kernel ran, host memory */
} samebits_outputs;

enum { SAMEBITS_DETERMINISM_NONE = 0, SAMEBITS_RUN_TO_RUN = 1, SAMEBITS_BATCH_INVARIANT = 2 };
enum { SAMEBITS_TIES_ANY = 0, SAMEBITS_TIES_LOWEST_INDEX = 1 };
enum { SAMEBITS_ORDER_ANY = 0, SAMEBITS_ORDER_KEY_DESC_THEN_INDEX = 1 };

/* What this router is and what it promises. It is judged against exactly these claims. */
typedef struct samebits_info {
  uint32_t struct_size;
  uint32_t abi_version;
  char name[64];
  char version[32];
  uint32_t memory_kinds; /* SAMEBITS_MEMORY_* bits, at least one */
  /* "tc256": every output bit equals the published contract. "fp32-any-order": logits are fp32 sums of products that
   * are exact, rounded or fused, in any order, on tensor cores or not. "fp32-depth:D": sums without tensor cores in
   * which no term meets more than D roundings. "bf16-logits": sums in any order, rounded to bf16 once. See
   * docs/plugins.md for the bounds. */
  char arithmetic[32];
  int32_t determinism;
  int32_t tie_break;
  int32_t output_order;
  int32_t returns_logits; /* 1: outputs.router_logits is written when wanted */
  int32_t returns_bookkeeping;
  int32_t max_experts; /* limits; 0: none. max_experts bounds G, the rows of the gate weight */
  int32_t max_top_k;
  int32_t max_hidden_size;
  int64_t max_tokens;
} samebits_info;

typedef struct samebits_router samebits_router;

/* A plug-in exports all of these under these names; a host loads them with dlsym. */
SAMEBITS_API uint32_t samebits_abi_version(void);
SAMEBITS_API samebits_status samebits_describe(samebits_info* info); /* struct_size: the caller's; no field is cut */
/* OK, UNSUPPORTED (a valid spec), or INVALID_ARGUMENT (no spec at all); the reason names the limit and the value. */
SAMEBITS_API samebits_status samebits_supports(const samebits_router_spec* spec, char* reason, size_t reason_size);
/* Columns of topk_ids and topk_weights: top_k, or top_k + shared experts in the gate. 0 for an invalid spec. */
SAMEBITS_API int32_t samebits_topk_columns(const samebits_router_spec* spec);
/* On failure *router is NULL and samebits_last_error(NULL) has the text for the calling thread. */
SAMEBITS_API samebits_status samebits_create(const samebits_router_spec* spec, const samebits_constants* constants,
                                             samebits_router** router);
SAMEBITS_API size_t samebits_workspace_bytes(const samebits_router* router, int64_t max_tokens); /* 0: no such call */
/* Must be called once before a workspace is used. stream: cudaStream_t, or NULL on the host. */
SAMEBITS_API samebits_status samebits_workspace_init(const samebits_router* router, void* workspace,
                                                     size_t workspace_bytes, void* stream);
SAMEBITS_API samebits_status samebits_route(const samebits_router* router, const samebits_inputs* inputs,
                                            samebits_outputs* outputs, void* workspace, void* stream);
SAMEBITS_API samebits_status samebits_route_from_logits(const samebits_router* router, const samebits_inputs* inputs,
                                                        samebits_outputs* outputs, void* workspace, void* stream);
/* Text of the last failure of this router (or, for NULL, of the last failed create) on the calling thread. */
SAMEBITS_API const char* samebits_last_error(const samebits_router* router);
SAMEBITS_API void samebits_destroy(samebits_router* router);

#ifdef __cplusplus
}
#endif

#endif /* SAMEBITS_SAMEBITS_H_ */
