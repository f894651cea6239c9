#include <nlohmann/json.hpp>

#include "harness/io/claims_json.h"
#include "harness/report/case_text.h"
#include "harness/report/report.h"

namespace samebits::harness {
namespace {

using nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;

ordered_json range(std::int64_t least, std::int64_t most) {
  return {{"min", least}, {"max", most}};
}

ordered_json shape_of(const properties::Case& c) {
  const properties::CaseDescription& d = c.description;
  ordered_json shape = {{"num_tokens", d.num_tokens}, {"num_experts", d.num_experts}, {"top_k", d.top_k}};
  if (d.stage == properties::Stage::kFull) shape["hidden_size"] = d.hidden_size;
  if (d.n_group > 1) shape["n_group"] = d.n_group;
  if (d.zero_experts > 0) shape["zero_experts"] = d.zero_experts;
  if (d.shared_in_gate > 0) shape["shared_in_gate"] = d.shared_in_gate;
  if (d.vocab_size > 0) shape["vocab_size"] = d.vocab_size;
  return shape;
}

ordered_json failure_json(const Failure& failure) {
  const properties::Violation& violation = failure.violation;
  ordered_json entry = {{"law", violation.law},
                        {"summary", violation.summary},
                        {"observed", violation.observed},
                        {"expected", violation.expected},
                        {"notes", violation.notes},
                        {"row", violation.row},
                        {"slot", violation.slot},
                        {"case_index", failure.case_index},
                        {"known_case", failure.known_case},
                        {"spec", failure.shrunk.spec_name},
                        {"original_summary", failure.original_summary},
                        {"shrink_evaluations", failure.shrink_evaluations},
                        {"shrink_stopped", failure.shrink_stopped},
                        {"shape", shape_of(failure.shrunk)},
                        {"nonzero_numbers", case_numbers(failure.shrunk, 0).count},
                        {"case_file", failure.case_file},
                        {"repro", failure.repro}};
  return entry;
}

const char* claim_state(ClaimVerdict::State state) {
  switch (state) {
    case ClaimVerdict::State::kVerified:
      return "verified";
    case ClaimVerdict::State::kRefuted:
      return "refuted";
    case ClaimVerdict::State::kNotVerified:
      return "not_verified";
  }
  return "unknown";
}

const char* ledger_state(LedgerOutcome::State state) {
  switch (state) {
    case LedgerOutcome::State::kFound:
      return "tolerated";
    case LedgerOutcome::State::kPassesNow:
      return "passes_now";
    case LedgerOutcome::State::kNotMet:
      return "not_met";
    case LedgerOutcome::State::kQuarantined:
      return "quarantined";
    case LedgerOutcome::State::kExpired:
      return "expired";
  }
  return "unknown";
}

}  // namespace

std::string to_json(const Report& report) {
  const Shapes& shapes = report.shapes;
  ordered_json laws = ordered_json::object();
  for (const auto& [law, tally] : report.laws) {
    ordered_json entry = {{"applicable", tally.applicable}};
    if (!tally.applicable) entry["reason"] = tally.not_applicable_reason;
    entry["cases"] = tally.cases;
    entry["relevant"] = tally.relevant;
    entry["failed"] = tally.failed;
    const auto tolerated = report.tolerated.find(law->id);
    entry["tolerated"] = tolerated == report.tolerated.end() ? 0 : tolerated->second;
    entry["verdict"] = verdict_text(report, *law, tally);
    if (!report.specs.empty()) entry["inconclusive_specs"] = specs_short_of(report, law->id);
    laws[law->id] = std::move(entry);
  }
  ordered_json claims_judged = ordered_json::array();
  for (const ClaimVerdict& claim : claim_verdicts(report)) {
    claims_judged.push_back({{"claim", claim.claim}, {"state", claim_state(claim.state)}, {"by", claim.by}});
  }
  ordered_json specs = ordered_json::array();
  for (const SpecRun& spec : report.specs) {
    specs.push_back({{"spec", spec.name},
                     {"layer", spec.layer},
                     {"cases", spec.cases},
                     {"rows", spec.rows},
                     {"skipped", spec.skipped},
                     {"skip_reason", spec.skip_reason},
                     {"inconclusive", spec.inconclusive}});
  }
  ordered_json ledger = ordered_json::array();
  for (const LedgerOutcome& outcome : report.ledger) {
    ledger.push_back({{"subject", outcome.subject},
                      {"mode", outcome.mode},
                      {"link", outcome.link},
                      {"expires", outcome.expires},
                      {"state", ledger_state(outcome.state)},
                      {"cases", outcome.cases},
                      {"findings", outcome.findings},
                      {"first", outcome.first}});
  }
  ordered_json failures = ordered_json::array();
  for (const Failure& failure : report.failures) failures.push_back(failure_json(failure));
  const ordered_json root = {{"schema_version", kSchemaVersion},
                             {"program", "samebits"},
                             {"program_version", SAMEBITS_VERSION},
                             {"command", report.command},
                             {"exit_code", exit_code(report)},
                             {"spec", report.spec},
                             {"variant", report.variant},
                             {"notes", report.notes},
                             {"backend", report.backend},
                             {"claims", claims_to_json(report.claims)},
                             {"seed", report.seed},
                             {"cases", report.cases},
                             {"rows", report.rows},
                             {"skipped", report.skipped},
                             {"skip_reason", report.skip_reason},
                             {"seconds", report.seconds},
                             {"interrupted", report.interrupted},
                             {"shapes",
                              {{"hidden_size", range(shapes.hidden_size_min, shapes.hidden_size_max)},
                               {"num_experts", range(shapes.num_experts_min, shapes.num_experts_max)},
                               {"top_k", range(shapes.top_k_min, shapes.top_k_max)},
                               {"num_tokens", {{"max", shapes.num_tokens_max}, {"met", shapes.num_tokens}}}}},
                             {"known_cases", report.known_cases},
                             {"claims_judged", std::move(claims_judged)},
                             {"specs", std::move(specs)},
                             {"specs_not_met", specs_not_met(report)},
                             {"ledger", std::move(ledger)},
                             {"hazards_not_met", report.hazards_not_met},
                             {"meaning", meaning_lines(report)},
                             {"hazards", report.hazards},
                             {"families", report.families},
                             {"laws", std::move(laws)},
                             {"failures", std::move(failures)}};
  // Text of a router may be any bytes; what is not UTF-8 is replaced.
  return root.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace samebits::harness
