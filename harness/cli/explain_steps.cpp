// explain: the steps of the contract in words, with the values that belong to the row as a whole.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/cli/explain_contract.h"
#include "harness/cli/output.h"
#include "oracle/reference/arithmetic.h"
#include "oracle/tensors/bf16.h"

namespace samebits::harness {
namespace {

using oracle::BiasType;
using oracle::FloatType;
using oracle::RouterSpec;
using oracle::SelectionMethod;
using Contract = oracle::ArithmeticOf<float>;

const char* bf16_note(FloatType type) {
  return type == FloatType::kBf16 ? ", rounded to bf16" : "";
}

// The factor on the input as fp32; 1: none.
float input_factor(const RouterSpec& spec) {
  if (spec.gate.input_scale_kind == oracle::InputScale::kFactor) return static_cast<float>(spec.gate.input_scale);
  const float factor = oracle::tc256::rsqrt(static_cast<float>(oracle::hidden_size(spec)));
  return spec.gate.input_scale_kind == oracle::InputScale::kRsqrtHiddenSizeBf16 ? oracle::round_to_bf16(factor)
                                                                                : factor;
}

std::vector<float> given_input(const ExplainedRow& row) {
  const std::int64_t size = row.inputs.hidden_size;
  std::vector<float> values;
  for (std::int64_t i = 0; i < size; ++i) {
    values.push_back(oracle::bf16_to_fp32(row.inputs.hidden_states[static_cast<std::size_t>(row.row * size + i)]));
  }
  return values;
}

void print_input(const ExplainedRow& row) {
  const RouterSpec& spec = row.spec;
  const std::vector<float> given = given_input(row);
  std::vector<std::string> factors = {"x"};
  if (spec.gate.input_norm != oracle::InputNorm::kNone) factors.emplace_back("r");
  if (spec.gate.input_scale_vector) factors.emplace_back("input_scale_vector");
  if (const float factor = input_factor(spec); factor != 1.0f) {
    const char* name = spec.gate.input_scale_kind == oracle::InputScale::kFactor ? "" : " (hidden_size^-1/2)";
    factors.push_back(number_text(factor) + name);
  }
  print_out("  input:  {}, rounded to bf16\n", fmt::join(factors, " * "));
  if (spec.gate.input_norm != oracle::InputNorm::kNone) {
    std::vector<float> squares;
    for (const float x : given) squares.push_back(Contract::mul(x, x));
    const float mean = Contract::div(Contract::sum(squares), static_cast<float>(given.size()));
    const float eps = static_cast<float>(spec.gate.input_norm_eps.value());
    print_out("          r = 1 / sqrt({} + {}) = {}, {} being the mean square of x\n", number_text(mean),
              number_text(eps), number_text(oracle::tc256::rsqrt(Contract::add(mean, eps))), number_text(mean));
  }
  constexpr std::size_t kShown = 6;
  std::vector<std::string> values;
  for (std::size_t i = 0; i < std::min(kShown, given.size()); ++i) {
    values.push_back(
        fmt::format("{} -> {}", number_text(given[i]), number_text(oracle::bf16_to_fp32(row.prepared_input[i]))));
  }
  print_out("          {}{}\n", fmt::join(values, ", "), given.size() > kShown ? ", ..." : "");
}

std::string logits_step(const ExplainedRow& row) {
  const RouterSpec& spec = row.spec;
  if (row.inputs.from_logits()) {
    return fmt::format("given as finished values{}",
                       spec.gate.logits_dtype == FloatType::kBf16 ? " (the router's rounding to bf16 is in them)" : "");
  }
  std::string text = fmt::format("{} products each, summed in the order of tc256", row.inputs.hidden_size);
  if (spec.gate.linear_bias == BiasType::kFp32) text += ", plus the linear bias";
  if (spec.gate.linear_bias == BiasType::kBf16) text += ", plus the linear bias rounded to bf16";
  text += bf16_note(spec.gate.logits_dtype);
  if (spec.logits.temperature != 1.0) text += fmt::format(", divided by the temperature {}", spec.logits.temperature);
  if (spec.logits.softcap) text += fmt::format(", then z becomes {0} * tanh(z / {0})", *spec.logits.softcap);
  return text;
}

std::string score_step(const RouterSpec& spec) {
  if (spec.selection.method == SelectionMethod::kSparsemixer) {
    return fmt::format("of the expert that a pass chooses: softmax over those that take part in the pass{}",
                       bf16_note(spec.score.dtype));
  }
  const bool after = spec.score.stage == oracle::ScoreStage::kAfterTopk;
  std::string text;
  switch (spec.score.func) {
    case oracle::ScoreFunc::kSoftmax:
      text = after                              ? "softmax over the chosen logits"
             : oracle::shared_in_gate(spec) > 0 ? "softmax over all logits that compete"
                                                : "softmax over all logits";
      break;
    case oracle::ScoreFunc::kSigmoid:
      text = "sigmoid(logit)";
      break;
    case oracle::ScoreFunc::kSqrtSoftplus:
      text = "sqrt(softplus(logit))";
      break;
    case oracle::ScoreFunc::kIdentity:
      text = "logit";
      break;
  }
  if (spec.score.func != oracle::ScoreFunc::kSoftmax && after) text += " of the chosen";
  return text + bf16_note(spec.score.dtype);
}

std::string key_step(const RouterSpec& spec) {
  std::string text = spec.selection.rank_by == oracle::RankBy::kLogit ? "logit" : "score";
  if (spec.selection.bias == BiasType::kFp32) text += " + bias";
  if (spec.selection.bias == BiasType::kBf16) text += " + bias, the bias rounded to bf16 first";
  return text;
}

// "", or which of the biases the row gets.
std::string class_note(const ExplainedRow& row) {
  const std::vector<std::string>& variants = row.spec.selection.bias_variants;
  if (row.spec.selection.bias == BiasType::kNone) return "";
  if (variants.size() == 1 && row.inputs.row_class.empty()) return "";
  const std::int32_t row_class =
      row.inputs.row_class.empty() ? 0 : row.inputs.row_class[static_cast<std::size_t>(row.row)];
  if (row_class < 0 || static_cast<std::size_t>(row_class) >= variants.size()) {
    return fmt::format("; row class {} is none of 0 to {}", row_class, variants.size() - 1);
  }
  return fmt::format("; the bias is that of row class {} ({})", row_class,
                     variants[static_cast<std::size_t>(row_class)]);
}

std::string choice_step(const ExplainedRow& row) {
  const RouterSpec& spec = row.spec;
  const std::int64_t k = oracle::top_k(spec);
  if (spec.selection.method == SelectionMethod::kHashTable) {
    const std::int64_t token = row.inputs.token_ids[static_cast<std::size_t>(row.row)];
    if (!row.constants.routable) {
      return fmt::format("by the table of {} rows, which has none for token id {}", *spec.hash.vocab_size, token);
    }
    return fmt::format("row {} of the table, the row's token id: experts {}", token,
                       fmt::join(row.constants.table_ids, ", "));
  }
  if (spec.selection.topk_scope == oracle::TopkScope::kPerGroup && spec.selection.n_group > 1) {
    const std::int64_t each = k / spec.selection.n_group;
    return fmt::format("the {} of each of the {} groups; of equal keys the lower id",
                       each == 1 ? "largest key" : fmt::format("{} largest keys", each), spec.selection.n_group);
  }
  return fmt::format("the {} largest keys; of equal keys the lower id", k);
}

void print_special_experts(const RouterSpec& spec) {
  if (spec.special.zero_experts > 0) {
    print_out("  zero:   experts {} to {} compute nothing{}\n", oracle::num_experts(spec),
              oracle::ranked_experts(spec) - 1,
              spec.special.zero_type == oracle::ZeroType::kIdentityRemappedToId0Weight0
                  ? " and are returned as id 0 with weight 0"
                  : "");
  }
  if (oracle::shared_in_gate(spec) > 0) {
    print_out("  shared: experts {} to {} take the last slots of every row\n", oracle::ranked_experts(spec),
              oracle::gate_rows(spec) - 1);
  }
}

}  // namespace

void print_steps(const ExplainedRow& row) {
  const RouterSpec& spec = row.spec;
  const bool scored_late =
      spec.score.stage == oracle::ScoreStage::kAfterTopk || spec.selection.method == SelectionMethod::kSparsemixer;
  if (!row.prepared_input.empty()) print_input(row);
  print_out("  logits: {}\n", logits_step(row));
  if (!scored_late) print_out("  score:  {}\n", score_step(spec));
  if (spec.selection.method != SelectionMethod::kHashTable) {
    print_out("  key:    {}{}\n", key_step(spec), class_note(row));
  }
  if (!row.answer.group_kept.empty()) {
    print_out("  groups: {} of {} are kept, ranked by the {} of their keys; the others' experts {}\n",
              spec.selection.topk_group, spec.selection.n_group,
              spec.selection.group_score == oracle::GroupScore::kTop2Sum ? "sum of the best two" : "maximum",
              spec.selection.group_mask == oracle::GroupMask::kZero ? "get the key 0" : "are excluded");
  }
  print_out("  choice: {}\n", choice_step(row));
  print_special_experts(spec);
  if (!row.constants.routable) return;
  if (scored_late) print_out("  score:  {}\n", score_step(spec));
  print_out("  weight: {}\n", weight_formula(spec));
}

}  // namespace samebits::harness
