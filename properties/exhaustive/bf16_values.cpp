#include <algorithm>
#include <bit>
#include <utility>

#include "properties/exhaustive/sweeps.h"

namespace samebits::properties {
namespace {

using oracle::RouterSpec;
using oracle::ScoreFunc;

constexpr std::int64_t kValues = 65536;
constexpr std::int64_t kExperts = 4;
constexpr std::int64_t kPlace = 1;  // of the value that runs; its neighbours on both sides stay

enum class Where { kLogit, kBias };
struct Pass {
  ScoreFunc func;
  oracle::Renormalize renormalize;
  Where where;
  std::int64_t top_k;  // 4: the score of every value comes out as a weight; 2: the selection decides
};

std::vector<Pass> all_passes() {
  using oracle::Renormalize;
  std::vector<Pass> passes;
  for (const Where where : {Where::kLogit, Where::kBias}) {
    for (const std::int64_t top_k : {std::int64_t{2}, kExperts}) {
      for (const ScoreFunc func :
           {ScoreFunc::kSoftmax, ScoreFunc::kSigmoid, ScoreFunc::kSqrtSoftplus, ScoreFunc::kIdentity}) {
        passes.push_back({func, top_k == kExperts ? Renormalize::kNone : Renormalize::kL1, where, top_k});
      }
      if (where == Where::kLogit) {
        passes.push_back({ScoreFunc::kSigmoid, Renormalize::kLogSpaceL1, where, top_k});
      }
    }
  }
  return passes;
}

float value_of(std::int64_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

class Stream final : public SweepStream {
 public:
  std::int64_t size() const override { return kValues * static_cast<std::int64_t>(passes_.size()); }

  std::optional<SweepBatch> next() override {
    if (pass_ == passes_.size()) return std::nullopt;
    const Pass& pass = passes_[pass_];
    RouterSpec spec = plain_spec("bf16_values", kExperts, pass.top_k);
    spec.score.func = pass.func;
    spec.weights.renormalize = pass.renormalize;
    const bool in_bias = pass.where == Where::kBias;
    std::vector<float> logits, bias;
    std::vector<std::int32_t> classes;
    if (in_bias) {
      // The key itself comes out as a weight where all are chosen.
      spec.selection.bias = oracle::BiasType::kFp32;
      if (pass.top_k == kExperts) spec.weights.source = oracle::WeightSource::kBiasedScore;
      spec.selection.bias_variants.clear();
    }
    for (std::int64_t i = 0; i < kBatchRows; ++i) {
      const float value = value_of(value_ + i);
      const float row[kExperts] = {0.75f, in_bias ? 0.5f : value, 0.75f, -0.5f};
      logits.insert(logits.end(), std::begin(row), std::end(row));
      if (!in_bias) continue;
      // A class for each row, as a bias is a constant of the router.
      const float biases[kExperts] = {0.125f, value, 0.0f, 0.25f};
      bias.insert(bias.end(), std::begin(biases), std::end(biases));
      classes.push_back(static_cast<std::int32_t>(i));
      spec.selection.bias_variants.push_back(std::to_string(value_ + i));
    }
    SweepBatch batch{given_logits(kBf16Values, spec, std::move(logits)), kBatchRows, {}};
    batch.c.description.data->selection_bias = std::move(bias);
    batch.c.description.data->row_class = std::move(classes);
    value_ += kBatchRows;
    if (value_ == kValues) {
      value_ = 0;
      ++pass_;
    }
    return batch;
  }

 private:
  std::vector<Pass> passes_ = all_passes();
  std::size_t pass_ = 0;
  std::int64_t value_ = 0;
};

}  // namespace

constinit const ExhaustiveSweep kBf16Values = {
    .name = "bf16_values",
    .item = "rows",
    .statement = "all 65,536 bf16 values as a logit and as a selection bias, under every score function",
    .law = "weights",
    .takes_spec = false,
    .open = [](const oracle::RouterSpec&) -> std::unique_ptr<SweepStream> { return std::make_unique<Stream>(); },
};

}  // namespace samebits::properties
