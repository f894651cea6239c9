/* The merged front projection of a Mixture-of-Experts layer: one matrix product of the hidden states with the gate
 * weight and any number of further weights that read the same rows (blocks of columns: a latent projection, the first
 * matrix of a shared expert). Exported by libsamebits_cuda.so, beside samebits.h and in its manner: plain C99, symbols
 * T, H and G as there, tensors of a call in device memory, no allocation, synchronisation or read on the host during a
 * call, which may be captured in a graph.
 *
 * The logits have the bits that samebits_route computes from the same gate weight, at every T, whatever the blocks;
 * they are finished (linear bias, rounding, temperature, softcap), as samebits_route_from_logits takes them from a
 * router created with or without the gate weight. A value of a block is the same sum of products, in the same order,
 * rounded to bf16 once where its output is bf16; so it, too, depends on its row alone.
 */
#ifndef SAMEBITS_FRONT_PROJECTION_H_
#define SAMEBITS_FRONT_PROJECTION_H_

#include <samebits/samebits.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct samebits_front samebits_front;

typedef struct samebits_front_block {
  samebits_tensor weight; /* [N, H] BF16, N >= 1, in the memory that the constants name; copied at creation */
  int32_t output_dtype;   /* SAMEBITS_BF16 or SAMEBITS_FP32 */
  int32_t reserved;
} samebits_front_block;

/* spec and constants: those of the router; of the constants, the gate weight and the linear bias are used. UNSUPPORTED:
 * a spec that prepares the input of the gate (norm or scale), since the blocks read the hidden states as they are; a
 * gate weight in fp32; more than 1,048,576 columns in all, every piece counted up to a multiple of 16. blocks:
 * num_blocks >= 0 of them; null where there are none. On failure *front is NULL and samebits_front_last_error(NULL) has
 * the text. */
SAMEBITS_API samebits_status samebits_front_create(const samebits_router_spec* spec,
                                                   const samebits_constants* constants,
                                                   const samebits_front_block* blocks, int32_t num_blocks,
                                                   samebits_front** front);

/* For calls of up to max_tokens rows. A workspace serves one call at a time, and needs no initialisation. */
SAMEBITS_API size_t samebits_front_workspace_bytes(const samebits_front* front, int64_t max_tokens);

/* inputs: num_tokens, hidden_states [T, H] BF16 and num_valid_rows are read. Outputs: router_logits [T, G] FP32, and
 * for each block in its order outputs[i], [T, N] of its output dtype, with any row stride; data == NULL or, for
 * router_logits, a null pointer: not wanted. Rows from num_valid_rows on are untouched. */
SAMEBITS_API samebits_status samebits_front_project(const samebits_front* front, const samebits_inputs* inputs,
                                                    const samebits_tensor* router_logits,
                                                    const samebits_tensor* outputs, void* workspace,
                                                    size_t workspace_bytes, void* stream);

/* Text of the last failure of this projection (or, for NULL, of the last failed create) on the calling thread. */
SAMEBITS_API const char* samebits_front_last_error(const samebits_front* front);
SAMEBITS_API void samebits_front_destroy(samebits_front* front);

#ifdef __cplusplus
}
#endif

#endif /* SAMEBITS_FRONT_PROJECTION_H_ */
