// The stages of a call, as functions that only launch kernels on a stream: no allocation, no synchronisation, no read
// on the host. Each returns the launch status. Every kernel may start while the one before it still runs (programmatic
// dependent launch); it waits (griddepcontrol.wait) before its first read of anything that another kernel may write.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/view.h"

namespace samebits::cuda {

// logits/prepare.cu. Rows for the gate into `prepared` [T][Hp]: input norm, scale vector and scale where the spec has
// them, else a plain copy (for rows that are not 16-byte aligned, or an H that is no multiple of 16). Columns from H on
// are +0. hidden_states: any 2-byte aligned base and any stride.
cudaError_t launch_prepare(const RouterView& router, const CallView& call, const std::uint16_t* hidden_states,
                           std::int64_t hidden_stride, std::uint16_t* prepared, cudaStream_t stream);

// Three forms fill call.sums, with the same bits. The fourth has the selection in the same launch: fused/fused.h.
// logits/plain.cu: one thread a logit, steps in integers, any architecture. num_sums = 1.
cudaError_t launch_logits_plain(const RouterView& router, const CallView& call, cudaStream_t stream);
// logits/decode.cu: mma.sync, or wgmma of more rows, chunks spread over the multiprocessors. num_sums = num_chunks.
cudaError_t launch_logits_decode(const RouterView& router, const CallView& call, cudaStream_t stream);
// logits/prefill.cu: wgmma tiles, chunks folded in registers or in a cluster. num_sums = 1. sm_90a.
cudaError_t launch_logits_prefill(const RouterView& router, const CallView& call, cudaStream_t stream);
// The same to other places than call.sums: logits/output_pieces.h.
struct OutputPieces;
cudaError_t launch_prefill_outputs(const RouterView& router, const CallView& call, const OutputPieces& outputs,
                                   cudaStream_t stream);
// The same by a given tile shape, of num_prefill_tiles for this router; for tests.
int num_prefill_tiles(const RouterView& router);
cudaError_t launch_prefill_tile_outputs(int tile, const RouterView& router, const CallView& call,
                                        const OutputPieces& outputs, cudaStream_t stream);

// select/select.cu. From sums or given logits: fold, finish the logits (linear bias, bf16, temperature, softcap), write
// them where wanted, score, rank, choose, weigh; ids, weights and slots of all T rows, padding included.
cudaError_t launch_select(const RouterView& router, const CallView& call, cudaStream_t stream);

// dispatch/bookkeep.cu. From call.slot_ids, which it sorts in place; outputs that are null are not written. `scratch`:
// bookkeep_scratch_bytes. Launchers of other calls: fused/fused.h, logits/split_columns.h, cuda/slices.h.
struct BookkeepOutputs {
  std::int32_t block_size;
  std::int32_t *tokens_per_expert, *expert_offsets, *slot_of_position, *position_of_slot, *sorted_token_ids,
      *expert_ids, *num_tokens_post_padded;
};
std::size_t bookkeep_scratch_bytes(std::int64_t num_tokens, std::int64_t columns, std::int64_t gate_rows);
cudaError_t launch_bookkeep(const RouterView& router, const CallView& call, const BookkeepOutputs& outputs,
                            void* scratch, std::size_t scratch_bytes, cudaStream_t stream);

}  // namespace samebits::cuda
