// Case files: YAML for the description, safetensors beside it for tensors that are neither generated nor small.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "harness/io/safetensors.h"
#include "oracle/tensors/router_outputs.h"
#include "properties/case.h"
#include "properties/run.h"

namespace samebits::harness {

// An answer that a known-answer case states. ids are exact; weights and logits are compared as the tolerance says.
struct ExpectedRow {
  std::int64_t row = 0;
  std::vector<std::int64_t> topk_ids;
  std::vector<double> topk_weights;  // may be empty
};
struct KnownAnswer {
  std::string source;  // public link or article section
  std::string fault;   // what a wrong router did
  std::vector<ExpectedRow> rows;
  double weight_tolerance = 0.0;  // relative; the file states where it comes from
  std::string tolerance_reason;
};

struct CaseFile {
  properties::Case c;
  std::string law;    // the law that failed, when the file was written for a failure
  std::string layer;  // of which the spec is, when it was chosen by one; empty: none
  std::optional<KnownAnswer> expected;
  // The spec before the sizes of the case were applied; always set by reading. Writing without it keeps c.spec.
  std::optional<oracle::RouterSpec> full_spec;
};

// Fields of the file: samebits_case (1), spec (a built-in name, a path relative to the file, or an inline mapping),
// variant, origin (spec, variant and layer that an inline spec came from), law, description (fields of
// CaseDescription), tensors (explicit data; each with dtype, shape and one of values, nonzero, file) and expected
// (fields of KnownAnswer). Sizes that the description leaves out are those of the tensors, or else of the spec.
CaseFile read_case_file(const std::filesystem::path& path);
// The same of a text; `path` names it in messages, and is where relative paths in it start.
CaseFile read_case_text(const std::string& text, const std::filesystem::path& path);
// with_data: all tensors are written, also generated ones, for programs that cannot generate.
void write_case_file(const std::filesystem::path& path, const CaseFile& file, bool with_data = false);
// Identity of a case: its description, spec and explicit tensors.
std::uint64_t case_hash(const properties::Case& c);
// All *.yaml of a folder in name order, or the one file.
std::vector<std::filesystem::path> list_case_files(const std::filesystem::path& file_or_folder);

// Result files: one safetensors a case, tensors "RUN/topk_ids", "RUN/topk_weights", "RUN/router_logits", and so on;
// claims and statuses in the metadata. A program in the middle may write only "main/topk_ids" and "main/topk_weights".
struct ResultFile {
  properties::Claims claims;
  std::vector<properties::Run> runs;
  std::string unsupported;  // reason why the router does not take this case; then there are no runs
};
void write_result_file(const std::filesystem::path& path, const ResultFile& file, const properties::Case& c);
// Throws FileError also when the file was written for another case. without_weights: topk_weights may be absent, which
// reads as zeros; for laws that do not look at weights.
ResultFile read_result_file(const std::filesystem::path& path, const properties::Case& c, bool without_weights = false);

}  // namespace samebits::harness
