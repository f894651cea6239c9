// samebits list: what there is to name in other commands.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>

#include "harness/backend/backend.h"
#include "harness/cli/explain_arithmetics.h"
#include "harness/cli/known_answer.h"
#include "harness/cli/options.h"
#include "harness/cli/output.h"
#include "harness/cli/program.h"
#include "harness/io/known_cases.h"
#include "harness/io/spec_library.h"
#include "oracle/spec/validate.h"
#include "properties/exhaustive/exhaustive.h"
#include "properties/generators/hazards.h"
#include "properties/law.h"

namespace samebits::harness {
namespace {

std::string spec_line(const oracle::SpecFile& file) {
  const oracle::RouterSpec& spec = file.base;
  const auto size = [](const std::optional<std::int64_t>& value) { return value ? fmt::format("{}", *value) : "?"; };
  std::string line = fmt::format("E={:<4} H={:<5} k={:<2}", size(spec.shape.num_experts), size(spec.shape.hidden_size),
                                 size(spec.shape.top_k));
  if (const auto reason = oracle::unsupported_reason(spec)) line += fmt::format("  cannot be run: {}", *reason);
  if (!file.variants.empty()) line += fmt::format("  variants: {}", file.variants.size());
  return line;
}

int list_specs() {
  std::size_t width = 0;
  for (const BuiltinSpec& builtin : builtin_specs()) width = std::max(width, builtin.name.size());
  for (const BuiltinSpec& builtin : builtin_specs()) {
    const std::string name(builtin.name);
    print_out("{:<{}}{}\n", name, width + 2, spec_line(load_spec(name)));
  }
  return 0;
}

int list_backend_names() {
  const std::vector<BackendListing> backends = list_backends();
  std::size_t width = 0;
  for (const BackendListing& backend : backends) width = std::max(width, backend.name.size());
  for (const BackendListing& backend : backends) {
    print_out("{:<{}}{}\n", backend.name, width + 2, backend.description);
  }
  return 0;
}

int list_arithmetics() {
  const std::vector<ArithmeticForm> forms = arithmetic_forms();
  std::size_t width = 0;
  for (const ArithmeticForm& form : forms) width = std::max(width, form.form.size());
  for (const ArithmeticForm& form : forms) print_out("{:<{}}{}\n", form.form, width + 2, form.meaning);
  return 0;
}

int list_laws() {
  const auto print = [](const properties::Law& law) {
    print_out("{:<20}{}\n{:<20}needs: {}; from {}\n", law.id, law.statement, "", law.hazards, law.source);
  };
  for (const properties::Law& law : properties::all_laws()) print(law);
  print(known_answer_law());
  return 0;
}

int list_hazards() {
  // By HazardStage.
  constexpr const char* kStarts[] = {"hidden states", "hidden states or given logits",
                                     "given logits, or a gate weight that yields them", "given logits",
                                     "hidden states, or given logits with a selection bias"};
  for (const properties::Hazard& hazard : properties::all_hazards()) {
    print_out("{:<28}from {}\n", hazard.label, kStarts[static_cast<std::size_t>(hazard.stage)]);
  }
  return 0;
}

int list_cases() {
  for (const KnownCase& known : known_cases()) {
    print_out("{:<44}{}\n", known.name, known.file.expected ? known.file.expected->source : "");
  }
  return 0;
}

int list_sweeps() {
  for (const properties::ExhaustiveSweep& sweep : properties::exhaustive_sweeps()) {
    print_out("{:<16}{}\n", sweep.name, sweep.statement);
  }
  return 0;
}

int list_fields() {
  for (const oracle::FieldInfo& field : oracle::schema()) {
    print_out("{:<36}{} [{}]\n", field.path, field.allowed, field.default_text);
  }
  return 0;
}

}  // namespace

void add_list(CLI::App& app, Program& program) {
  CLI::App* command = app.add_subcommand(
      "list", "List specs, backends, laws, hazards, known cases, sweeps, arithmetics or the fields of a spec");
  auto what = std::make_shared<std::string>();
  command->add_option("WHAT", *what, "specs, backends, laws, hazards, cases, sweeps, arithmetics or fields")
      ->required()
      ->check(CLI::IsMember({"specs", "backends", "laws", "hazards", "cases", "sweeps", "arithmetics", "fields"}));
  command->footer("Example:\n  samebits list specs");
  command->callback([what, &program] {
    program.action = [what] {
      if (*what == "specs") return list_specs();
      if (*what == "backends") return list_backend_names();
      if (*what == "hazards") return list_hazards();
      if (*what == "cases") return list_cases();
      if (*what == "sweeps") return list_sweeps();
      if (*what == "arithmetics") return list_arithmetics();
      return *what == "laws" ? list_laws() : list_fields();
    };
  });
}

}  // namespace samebits::harness
