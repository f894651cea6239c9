#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "oracle/spec/validate.h"
#include "properties/exhaustive/sweeps.h"

namespace samebits::properties {
namespace {

using namespace oracle;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::int64_t kExperts = 4, kTopK = 2;
using Row = std::array<float, kExperts>;

// Logits that a gate weight can hold: of unit rows of hidden states it yields one column each.
constexpr std::array<Row, 8> kColumns = {{
    {3.0f, 1.0f, 0.0f, -2.0f},              // plain
    {1.0f, 1.0f, 1.0f, 1.0f},               // every key tied
    {-120.0f, -120.5f, -121.0f, -300.0f},   // scores underflow, the sum is 0
    {16.7f, 17.0f, 88.0f, 89.0f},           // scores saturate, exp overflows
    {-0.0f, 0.0f, 1e-40f, -1e-40f},         // zeros of both signs, subnormals
    {1.0009765f, 1.0029297f, 1.0f, 0.99f},  // three are one bf16 value
    {-40.0f, -40.25f, -41.0f, -39.5f},      // a sum near 1e-17
    {-0.75f, -0.5f, -0.25f, -1.0f},         // negative keys where the score is the logit
}};
// Rows that only given logits can hold.
constexpr std::array<Row, 6> kNonFiniteRows = {{
    {kNaN, 1.0f, 0.0f, 2.0f},
    {kNaN, -kInf, kNaN, 1.0f},  // fewer than k numbers that are finite
    {kNaN, kNaN, kNaN, kNaN},
    {kInf, 1.0f, kInf, 0.0f},
    {-kInf, -kInf, -kInf, -kInf},
    {3.4e38f, -3.4e38f, 0.0f, kInf},
}};

// A value of a field of the spec, by its number. The product of all counts is what the sweep enumerates.
struct Flag {
  int count;
  void (*set)(RouterSpec& spec, int value);
};

template <class Enum>
Enum as(int value) {
  return static_cast<Enum>(value);
}

constexpr std::array kFlagFields = {
    Flag{4, [](RouterSpec& s, int v) { s.score.func = as<ScoreFunc>(v); }},
    Flag{2, [](RouterSpec& s, int v) { s.score.stage = as<ScoreStage>(v); }},
    Flag{2, [](RouterSpec& s, int v) { s.score.dtype = as<FloatType>(v); }},
    Flag{2, [](RouterSpec& s, int v) { s.selection.rank_by = as<RankBy>(v); }},
    Flag{3, [](RouterSpec& s, int v) { s.selection.bias = as<BiasType>(v); }},
    Flag{2, [](RouterSpec& s, int v) { s.selection.sort = as<SlotOrder>(v); }},
    Flag{2, [](RouterSpec& s, int v) { s.weights.source = as<WeightSource>(v); }},
    Flag{3, [](RouterSpec& s, int v) { s.weights.renormalize = as<Renormalize>(v); }},
    // Large enough to be seen in every weight.
    Flag{3,
         [](RouterSpec& s, int v) {
           s.weights.eps_mode = as<EpsMode>(v);
           s.weights.eps = v == 0 ? 0.0 : 0.0625;
         }},
    Flag{3, [](RouterSpec& s, int v) { s.weights.scale_stage = as<ScaleStage>(v); }},
    Flag{2, [](RouterSpec& s, int v) { s.weights.dtype = as<FloatType>(v); }},
    Flag{2, [](RouterSpec& s, int v) { s.gate.logits_dtype = as<FloatType>(v); }},
    // Without groups; two of two experts, one kept, by both scores and masks; the best of each.
    Flag{6,
         [](RouterSpec& s, int v) {
           if (v == 0) return;
           s.selection.n_group = 2;
           s.selection.topk_group = v == 5 ? 2 : 1;
           s.selection.topk_scope = v == 5 ? TopkScope::kPerGroup : TopkScope::kGlobal;
           if (v == 5) return;
           s.selection.group_score = v <= 2 ? GroupScore::kMax : GroupScore::kTop2Sum;
           s.selection.group_mask = v % 2 == 1 ? GroupMask::kNegInf : GroupMask::kZero;
         }},
};

constexpr std::int64_t product() {
  std::int64_t total = 1;
  for (const Flag& flag : kFlagFields) total *= flag.count;
  return total;
}

RouterSpec combination(std::int64_t index) {
  RouterSpec spec = plain_spec("flags", kExperts, kTopK);
  spec.shape.hidden_size = static_cast<std::int64_t>(kColumns.size());
  spec.weights.routed_scaling_factor = 2.5;
  for (const Flag& flag : kFlagFields) {
    flag.set(spec, static_cast<int>(index % flag.count));
    index /= flag.count;
  }
  return spec;
}

// Unit rows, then one with a NaN and one with an Inf.
RouterInputs gate_inputs() {
  constexpr std::uint16_t kOne = 0x3f80, kBf16NaN = 0x7fc0, kBf16Inf = 0x7f80;
  constexpr std::size_t H = kColumns.size();
  RouterInputs data;
  data.num_tokens = static_cast<std::int64_t>(H) + 2;
  data.hidden_size = static_cast<std::int64_t>(H);
  data.gate_rows = kExperts;
  data.hidden_states.assign((H + 2) * H, 0);
  for (std::size_t i = 0; i < H; ++i) data.hidden_states[i * H + i] = kOne;
  data.hidden_states[H * H + 3] = kBf16NaN;
  data.hidden_states[(H + 1) * H] = kBf16Inf;
  for (std::size_t e = 0; e < kExperts; ++e) {
    for (const Row& column : kColumns) data.gate_weight_fp32.push_back(column[e]);
  }
  return data;
}

class Stream final : public SweepStream {
 public:
  std::int64_t size() const override { return product(); }
  std::int64_t refused() const override { return refused_; }

  std::optional<SweepBatch> next() override {
    for (; index_ < product(); ++index_) {
      const RouterSpec spec = combination(index_);
      if (!find_problems(spec).empty()) {
        ++refused_;
        continue;
      }
      // First through the gate, then from given logits, where the dtype of the logits has no say.
      SweepBatch batch = given_ ? from_logits(spec) : from_gate(spec);
      if (given_ || spec.gate.logits_dtype == FloatType::kBf16) {
        given_ = false;
        ++index_;
        batch.items = 1;
      } else {
        given_ = true;
      }
      return batch;
    }
    return std::nullopt;
  }

 private:
  static void add_bias(const RouterSpec& spec, Case& c) {
    // Of both signs and larger than the differences of scores; the two in the middle are one bf16 value.
    if (spec.selection.bias != BiasType::kNone) c.description.data->selection_bias = {0.3f, -0.25f, -0.2505f, 11.3f};
  }
  static SweepBatch from_logits(const RouterSpec& spec) {
    std::vector<float> logits;
    for (const Row& row : kNonFiniteRows) logits.insert(logits.end(), row.begin(), row.end());
    SweepBatch batch{given_logits(kFlags, spec, std::move(logits)), 0, {}};
    add_bias(spec, batch.c);
    return batch;
  }
  SweepBatch from_gate(const RouterSpec& spec) const {
    SweepBatch batch{given_logits(kFlags, spec, {}), 0, {}};
    CaseDescription& d = batch.c.description;
    d.stage = Stage::kFull;
    d.num_tokens = gate_.num_tokens;
    d.hidden_size = gate_.hidden_size;
    d.data = gate_;
    add_bias(spec, batch.c);
    return batch;
  }

  RouterInputs gate_ = gate_inputs();
  std::int64_t index_ = 0, refused_ = 0;
  bool given_ = false;
};

}  // namespace

constinit const ExhaustiveSweep kFlags = {
    .name = "flags",
    .item = "specs",
    .statement = "every valid combination of the flags of a router of 4 experts, two of which are chosen",
    .law = "weights",
    .takes_spec = false,
    .open = [](const RouterSpec&) -> std::unique_ptr<SweepStream> { return std::make_unique<Stream>(); },
};

}  // namespace samebits::properties
