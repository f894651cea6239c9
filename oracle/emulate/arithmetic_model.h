// Arithmetics by name: how a logit is summed, as a plan of reduction, and what is rounded to bf16 after it.
//
//   TEXT     = PART { "+" PART }       at most one SUM (default tc256), any ROUNDING
//   SUM      = NAME [ ":" NUMBERS ] [ "@" ARCHITECTURE ]
//   examples: tc256   tc-chain@sm_80   split-k:22,22,20   fp32-fma-chains:8+bf16-logits   bf16-scores
//
// SUM                        leaves                              cut of the H products        combined by
// tc256                      tensor-core chains, sm_90           chunks of 256                left fold
// tc-chain[@A]               one tensor-core chain               -                            -
// tc-chunks:C[@A]            tensor-core chains                  chunks of C                  left fold
// tc-chunks-tree:C[@A]       tensor-core chains                  chunks of C                  tree
// split-k:B,B,...[@A]        tensor-core chains                  parts of B blocks of 64      left fold
// cublas-split-k:S           tensor-core chains, sm_90           S parts of ceil(H/64/S)      left fold
//                                                                blocks of 64, the last less
// fp32-fma-sequential        one chain of fused multiply-adds    -                            -
// fp32-fma-chains:N          chains of fused multiply-adds       chain j has k mod N = j      tree
// fp32-fma-slices:N          chains of fused multiply-adds       N slices of ceil(H/N)        tree
// fp32-mul-add-sequential    one chain of product, then sum      -                            -
// fp32-mul-add-chains:N      chains of product, then sum         chain j has k mod N = j      tree
// exact                      exact sum, one rounding to fp32     -                            -
//
// ROUNDING: bf16-logits (the finished sum and linear bias), bf16-bias (the selection bias), bf16-scores.
//
// Every chain starts from +0. A left fold is ((P0 + P1) + P2) + ...; a tree adds neighbours (0 1)(2 3)..., an odd last
// one passing through, until one is left. A: an architecture of step_parameter_table(). With fp32 weights a
// tensor-core leaf is three chains added as in the contract; the other leaves read the weight as it is.
//
// cuBLAS on an H200 with H = 4096 and 288 experts (torch.mm of bf16 with fp32 output) had the bits of
// cublas-split-k:3 (that is split-k:22,22,20) for 1 to 256 rows, of cublas-split-k:2 for 1024, and of tc-chain for
// 4096 and 8192.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/emulate/tc256.h"
#include "oracle/spec/router_spec.h"
#include "oracle/tensors/router_inputs.h"

namespace samebits::oracle {

struct ArithmeticModel {
  enum class Leaf { kTensorCore, kFusedMultiplyAdd, kMultiplyThenAdd, kExact };
  enum class Cut { kWhole, kChunks, kBlocks, kEqualBlocks, kInterleaved, kSlices };
  enum class Combine { kLeftFold, kTree };

  std::string name;  // the text that it was read from
  Leaf leaf = Leaf::kTensorCore;
  const StepParameters* architecture = &sm90();  // of tensor-core leaves; never null
  Cut cut = Cut::kChunks;
  std::vector<std::int64_t> sizes = {kChunk};  // the numbers of the cut
  Combine combine = Combine::kLeftFold;
  bool bf16_logits = false, bf16_bias = false, bf16_scores = false;
};

// Throws std::invalid_argument with the words found and allowed.
ArithmeticModel arithmetic_model(std::string_view text);

// The forms of all sums and roundings, as above: "tc-chunks:C[@ARCHITECTURE]", ...
std::vector<std::string> arithmetic_model_forms();

// The products first, first + stride, ... below last: what one leaf sums.
struct ProductRange {
  std::int64_t first, last, stride;
  bool operator==(const ProductRange&) const = default;
};
// In the order in which the leaves are combined. Throws std::invalid_argument where explicit blocks do not cover
// exactly the hidden size.
std::vector<ProductRange> product_ranges(const ArithmeticModel& model, std::int64_t hidden_size);

// The spec with the roundings of the model in it: gate.logits_dtype, score.dtype, and selection.bias where there is
// one.
RouterSpec with_roundings(const ArithmeticModel& model, RouterSpec spec);

// Finished logits [rows, G] of with_roundings(model, spec). Given logits are returned as they are, with the one NaN.
// Throws as product_ranges() and as PackedGateWeight.
std::vector<float> emulate_logits(const ArithmeticModel& model, const RouterSpec& spec, const RouterInputs& inputs,
                                  std::span<const std::int64_t> rows);

}  // namespace samebits::oracle
