#include "harness/cli/explain_arithmetics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <stdexcept>
#include <string_view>

#include "harness/cli/options.h"
#include "harness/cli/output.h"
#include "harness/report/case_text.h"
#include "oracle/exact/exact_choice.h"
#include "oracle/spec/spec_yaml.h"

namespace samebits::harness {
namespace {

using Answer = oracle::RowAnswer<float>;
using oracle::ArithmeticModel;
using oracle::DecidedBy;

struct Meaning {
  std::string_view form;
  const char* text;
};
constexpr Meaning kMeanings[] = {
    {"tc256", "the contract: tensor-core chains of 256 products, added left to right"},
    {"tc-chain[@ARCHITECTURE]", "one tensor-core chain over all products"},
    {"tc-chunks:C[@ARCHITECTURE]", "tensor-core chains of C products, added left to right"},
    {"tc-chunks-tree:C[@ARCHITECTURE]", "tensor-core chains of C products, added in a tree"},
    {"split-k:B,B,...[@ARCHITECTURE]", "tensor-core chains of B blocks of 64 products each, added left to right"},
    {"cublas-split-k:S", "S tensor-core chains of equally many blocks of 64 products, as cuBLAS splits on an H200"},
    {"fp32-fma-sequential", "fp32, one fused multiply-add after the other"},
    {"fp32-fma-chains:N", "fp32, N chains of fused multiply-adds that take turns, added in a tree"},
    {"fp32-fma-slices:N", "fp32, fused multiply-adds in N slices of the products, added in a tree"},
    {"fp32-mul-add-sequential", "fp32, one product and one addition after the other"},
    {"fp32-mul-add-chains:N", "fp32, N chains of products and additions that take turns, added in a tree"},
    {"exact", "the sum without error, rounded once to fp32"},
    {"bf16-logits", "a rounding: logits to bf16, after the linear bias"},
    {"bf16-bias", "a rounding: the selection bias to bf16"},
    {"bf16-scores", "a rounding: scores to bf16"},
};

constexpr const char* kArithmetics[] = {
    "tc256", "tc-chain",    "cublas-split-k:2", "cublas-split-k:3", "fp32-fma-sequential", "fp32-fma-chains:8",
    "exact", "bf16-logits", "bf16-bias",        "bf16-scores"};

// Whether the spec leaves room for the roundings of the model, and H for its parts.
bool fits(const ArithmeticModel& model, const oracle::RouterSpec& spec, std::int64_t hidden_size) {
  const bool rounds = model.bf16_logits || model.bf16_bias || model.bf16_scores;
  if (rounds) return !(oracle::with_roundings(model, spec) == spec);
  const bool splits = model.cut == ArithmeticModel::Cut::kEqualBlocks;
  return !splits || static_cast<std::int64_t>(oracle::product_ranges(model, hidden_size).size()) == model.sizes[0];
}

// The chosen of those that compete, under their own ids.
std::vector<std::int32_t> competing(const ExplainedRow& row) {
  std::vector<std::int32_t> experts = row.answer.expert_ids;
  std::erase_if(experts, [&](std::int32_t e) { return e >= oracle::ranked_experts(row.spec); });
  return experts;
}

const char* evidence(DecidedBy how) {
  switch (how) {
    case DecidedBy::kErrorBound:
      return "decided by an error bound";
    case DecidedBy::kExactLogits:
      return "decided by sums without error";
    case DecidedBy::kTie:
      return "equal keys by construction, the lower id wins";
    case DecidedBy::kNothing:
    case DecidedBy::kNotJudged:
      break;
  }
  return "undecided, the likeliest: the keys differ by less than the error of the steps after the sum";
}

// At the two experts of the cut.
std::string logits_difference(const Answer& contract, const Answer& other) {
  if (contract.last_chosen < 0 || contract.first_rejected < 0) return "-";
  std::int64_t most = 0;
  bool same = true;
  for (const std::int32_t e : {contract.last_chosen, contract.first_rejected}) {
    const float a = contract.logits[static_cast<std::size_t>(e)], b = other.logits[static_cast<std::size_t>(e)];
    if (std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b)) continue;
    if (!std::isfinite(a) || !std::isfinite(b)) return "not both finite";
    same = false;
    most = std::max(most, oracle::ulp_distance(a, b));
  }
  return same ? "same bits" : grouped(most) + " ulp";
}

// The largest relative one of the experts that both have.
std::string weights_difference(const Answer& contract, const Answer& other) {
  double most = 0.0;
  bool any = false, same = true;
  for (std::size_t i = 0; i < contract.expert_ids.size(); ++i) {
    const auto place = std::find(other.expert_ids.begin(), other.expert_ids.end(), contract.expert_ids[i]);
    if (place == other.expert_ids.end()) continue;
    any = true;
    const float a = contract.weights[i], b = other.weights[static_cast<std::size_t>(place - other.expert_ids.begin())];
    if (std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b)) continue;
    same = false;
    const double distance = std::fabs(static_cast<double>(b) - static_cast<double>(a));
    if (distance > 0) most = std::max(most, distance / std::fabs(static_cast<double>(a)));
  }
  if (!any) return "-";
  return same ? "same bits" : fmt::format("{:.1e}", most);
}

}  // namespace

std::vector<ArithmeticForm> arithmetic_forms() {
  std::vector<ArithmeticForm> forms;
  for (const std::string& form : oracle::arithmetic_model_forms()) {
    const auto meaning =
        std::find_if(std::begin(kMeanings), std::end(kMeanings), [&](const Meaning& m) { return m.form == form; });
    forms.push_back({form, meaning == std::end(kMeanings) ? "" : meaning->text});
  }
  return forms;
}

std::vector<ArithmeticModel> chosen_arithmetics(const std::vector<std::string>& names, const oracle::RouterSpec& spec,
                                                std::int64_t hidden_size) {
  std::vector<ArithmeticModel> models;
  try {
    for (const std::string& name : names) {
      models.push_back(oracle::arithmetic_model(name));
      oracle::product_ranges(models.back(), hidden_size);  // throws where the parts do not make up H
    }
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
  if (!names.empty()) return models;
  for (const char* name : kArithmetics) {
    ArithmeticModel model = oracle::arithmetic_model(name);
    if (fits(model, spec, hidden_size)) models.push_back(std::move(model));
  }
  return models;
}

void print_exact_choice(const ExplainedRow& row) {
  if (row.spec.selection.method == oracle::SelectionMethod::kHashTable) return;
  const oracle::ExactChoice choice = oracle::exact_choice(row.spec, row.inputs, row.row);
  if (choice.decided_by == DecidedBy::kNotJudged) {
    print_out("infinitely precise logits: not judged, because an operand or a logit is not finite\n");
    return;
  }
  const std::string replaced = replaced_experts(competing(row), choice.ids);
  print_out("infinitely precise logits choose {}: {}\n", fmt::join(choice.ids, ", "),
            replaced.empty() ? "the set of the contract" : replaced);
  std::string gap = "no expert is rejected";
  if (std::isfinite(choice.gap)) {
    gap = fmt::format("gap {:g}, of which {:g} may be an error", choice.gap, choice.bound);
  }
  print_out("  {}; {}\n", evidence(choice.decided_by), gap);
}

void print_arithmetics(const ExplainedRow& row, const std::vector<ArithmeticModel>& models) {
  std::vector<std::array<std::string, 4>> lines;
  lines.push_back({"arithmetic", "logits at the cut", "weights of experts in both", "experts"});
  for (const ArithmeticModel& model : models) {
    const std::int64_t rows[] = {row.row};
    const std::vector<float> logits = oracle::emulate_logits(model, row.spec, row.inputs, rows);
    const Answer other =
        oracle::route_row(oracle::with_roundings(model, row.spec), std::span<const float>(logits), row.constants);
    const std::string replaced = replaced_experts(row.answer.expert_ids, other.expert_ids);
    lines.push_back({model.name, logits_difference(row.answer, other), weights_difference(row.answer, other),
                     replaced.empty() ? "same" : replaced});
  }
  std::array<std::size_t, 3> width{};
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < width.size(); ++i) width[i] = std::max(width[i], line[i].size());
  }
  print_out("the same row in other arithmetics, and how far it is from the contract:\n");
  for (const auto& line : lines) {
    print_out("  {:<{}}  {:<{}}  {:<{}}  {}\n", line[0], width[0], line[1], width[1], line[2], width[2], line[3]);
  }
}

}  // namespace samebits::harness
