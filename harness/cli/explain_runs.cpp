// explain: one row in all runs of a router, and what decides which bits it gets.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <set>
#include <stdexcept>

#include "harness/cli/explain_router.h"
#include "harness/cli/output.h"
#include "harness/report/case_text.h"
#include "oracle/emulate/arithmetic_model.h"

namespace samebits::harness {
namespace {

using Bits = std::vector<std::uint32_t>;

// The row as one or more runs returned it.
struct Form {
  Bits bits;  // ids, weights, logits
  std::vector<float> logits;
  std::vector<std::string> runs;
  std::set<std::int64_t> row_counts;
};

Form form_of(const properties::Run& run, std::size_t r, std::size_t experts) {
  const oracle::RouterOutputs& outputs = run.result.outputs;
  const auto k = static_cast<std::size_t>(outputs.top_k);
  Form form;
  for (std::size_t i = r * k; i < (r + 1) * k; ++i) {
    form.bits.push_back(static_cast<std::uint32_t>(outputs.topk_ids[i]));
    form.bits.push_back(std::bit_cast<std::uint32_t>(outputs.topk_weights[i]));
  }
  if (outputs.router_logits.size() >= (r + 1) * experts) {
    const auto begin = outputs.router_logits.begin() + static_cast<std::ptrdiff_t>(r * experts);
    form.logits.assign(begin, begin + static_cast<std::ptrdiff_t>(experts));
    for (const float logit : form.logits) form.bits.push_back(std::bit_cast<std::uint32_t>(logit));
  }
  return form;
}

std::vector<Form> forms_of(const ExplainedRow& row, std::int64_t case_row, const std::vector<properties::Run>& runs) {
  std::vector<Form> forms;
  for (const properties::Run& run : runs) {
    const properties::RunRequest& request = run.request;
    if (!properties::is_ordinary(request) || run.result.status != properties::RunResult::Status::kOk) continue;
    const auto valid = static_cast<std::size_t>(std::clamp<std::int64_t>(
        request.num_valid_rows.value_or(INT32_MAX), 0, static_cast<std::int64_t>(request.rows.size())));
    for (std::size_t r = 0; r < valid; ++r) {
      const bool replaced = !request.replace.empty() && request.replace[r] != properties::RowReplacement::kKeep;
      if (request.rows[r] != case_row || replaced) continue;
      Form found = form_of(run, r, row.logits.size());
      // A run without logits is of the first form that has its ids and weights.
      auto same = std::find_if(forms.begin(), forms.end(), [&](const Form& form) {
        const auto count = static_cast<std::ptrdiff_t>(std::min(form.bits.size(), found.bits.size()));
        return std::equal(form.bits.begin(), form.bits.begin() + count, found.bits.begin());
      });
      if (same == forms.end()) same = forms.insert(forms.end(), std::move(found));
      const auto rows = static_cast<std::int64_t>(request.rows.size());
      const std::string place = fmt::format("{}, row {} of {}", request.id, r, rows);
      same->runs.push_back(place);
      same->row_counts.insert(rows);
      if (request.replace.empty()) continue;
      same->runs.back() += " beside NaN, Inf and huge rows";
    }
  }
  return forms;
}

// Sums that public kernels form; whether a cut fits the hidden size is asked of the model.
std::vector<std::string> candidate_sums(std::int64_t hidden_size) {
  std::vector<std::string> names = {"tc256", "tc-chain", "exact", "fp32-fma-sequential", "fp32-mul-add-sequential"};
  for (const int parts : {2, 3, 4, 8, 16, 32}) {
    names.push_back(fmt::format("cublas-split-k:{}", parts));
    for (const char* form : {"fp32-fma-slices", "fp32-fma-chains", "fp32-mul-add-chains"}) {
      names.push_back(fmt::format("{}:{}", form, parts));
    }
    const std::int64_t chunk = (hidden_size + parts - 1) / parts;
    for (const std::int64_t size : {chunk, (chunk + 15) / 16 * 16, hidden_size / parts}) {
      if (size > 0) names.push_back(fmt::format("tc-chunks:{}", size));
    }
  }
  return names;
}

// The first sum that gives these logits; "" where none does, or there are none.
std::string sum_of(const ExplainedRow& row, const std::vector<float>& logits) {
  if (logits.empty() || row.inputs.from_logits()) return "";
  for (const std::string& name : candidate_sums(row.inputs.hidden_size)) {
    try {
      const std::int64_t rows[] = {row.row};
      const std::vector<float> emulated =
          oracle::emulate_logits(oracle::arithmetic_model(name), row.spec, row.inputs, rows);
      const bool same = std::equal(
          emulated.begin(), emulated.end(), logits.begin(), logits.end(),
          [](float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); });
      if (same) return name;
    } catch (const std::invalid_argument&) {
      continue;  // does not fit this hidden size
    }
  }
  return "";
}

// What tells the forms apart, as far as the runs show it.
std::string decided_by(const std::vector<Form>& forms) {
  std::set<std::int64_t> shared;
  for (std::size_t a = 0; a < forms.size(); ++a) {
    for (std::size_t b = a + 1; b < forms.size(); ++b) {
      std::set_intersection(forms[a].row_counts.begin(), forms[a].row_counts.end(), forms[b].row_counts.begin(),
                            forms[b].row_counts.end(), std::inserter(shared, shared.end()));
    }
  }
  if (shared.empty()) return "the number of rows decides: no row count has two of these forms";
  return fmt::format(
      "not the number of rows alone: {} rows gave two of these forms; the place of the row, its "
      "neighbours, or the call itself decides",
      fmt::join(shared, ", "));
}

}  // namespace

void print_runs(const ExplainedRow& row, std::int64_t case_row, const std::vector<properties::Run>& runs,
                const std::string& router) {
  constexpr std::size_t kRuns = 4;
  const std::vector<Form> forms = forms_of(row, case_row, runs);
  if (forms.size() < 2) return;
  print_out("{} returned this row in {} forms:\n", router, forms.size());
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const Form& form = forms[i];
    std::vector<std::string> shown(form.runs.begin(),
                                   form.runs.begin() + static_cast<std::ptrdiff_t>(std::min(form.runs.size(), kRuns)));
    if (form.runs.size() > kRuns) shown.push_back(fmt::format("and {} more", form.runs.size() - kRuns));
    print_out("  form {}: {}\n", i + 1, fmt::join(shown, "; "));
    if (const std::string sum = sum_of(row, form.logits); !sum.empty())
      print_out("    its logits are sums as {}\n", sum);
    if (i == 0) continue;
    const std::vector<float>& first = forms.front().logits;
    for (std::size_t e = 0; e < std::min(form.logits.size(), first.size()); ++e) {
      if (std::bit_cast<std::uint32_t>(first[e]) == std::bit_cast<std::uint32_t>(form.logits[e])) continue;
      print_out("    first other logit: expert {}: {}, in form 1 {}\n", e, number_and_bits(form.logits[e]),
                number_and_bits(first[e]));
      break;
    }
  }
  print_out("  {}\n", decided_by(forms));
}

}  // namespace samebits::harness
