#include "kernels/logits/output_pieces.h"

namespace samebits::cuda {
namespace {

bool is_finished(const RouterView& router) {
  const samebits_router_spec& spec = router.spec;
  return router.linear_bias == nullptr && spec.logits_dtype != SAMEBITS_BF16 && spec.temperature == 1.0f &&
         spec.softcap == 0.0f;
}

bool is_aligned(const ColumnPiece& piece) {
  constexpr std::int64_t kBytes = 8;
  const std::int64_t value_bytes = piece.bf16 ? 2 : 4;
  return piece.columns % 8 == 0 && piece.stride * value_bytes % kBytes == 0 &&
         reinterpret_cast<std::uintptr_t>(piece.output) % kBytes == 0;
}

}  // namespace

std::optional<OutputPieces> direct_outputs(const RouterView& router, const std::vector<ColumnPiece>& pieces) {
  OutputPieces outputs{};
  for (const ColumnPiece& piece : pieces) {
    if (piece.output == nullptr) continue;
    if (outputs.count == kMostOutputPieces || !is_aligned(piece) || (piece.is_gate && !is_finished(router)))
      return std::nullopt;
    outputs.pieces[outputs.count++] = {piece.output, piece.stride, piece.first_column,
                                       piece.first_column + piece.columns, piece.bf16 ? 1 : 0};
  }
  if (outputs.count == 0) return std::nullopt;
  return outputs;
}

}  // namespace samebits::cuda
