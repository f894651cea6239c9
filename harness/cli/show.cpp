// samebits show: a spec as it is resolved.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "harness/cli/options.h"
#include "harness/cli/output.h"
#include "harness/cli/program.h"
#include "harness/io/spec_library.h"
#include "oracle/spec/validate.h"

namespace samebits::harness {
namespace {

struct ShowOptions {
  SpecOptions spec;
  bool all = false;
};

int show(const ShowOptions& options) {
  const ChosenSpec chosen = resolve_spec(options.spec);
  std::string applied = chosen.name;
  if (!chosen.variant.empty()) applied += ", variant " + chosen.variant;
  if (!chosen.layer.empty()) applied += ", layer " + chosen.layer;
  for (const std::string& change : options.spec.set) applied += ", " + change;
  print_out("# {}\n{}", applied, oracle::to_yaml(chosen.spec, options.all));
  const oracle::SpecFile file = load_spec(options.spec.spec);
  if (!file.variants.empty() && chosen.variant.empty()) {
    print_out("\n# Variants, for --variant:\n");
    for (const auto& [name, assignments] : file.variants) {
      print_out("#   {}:", name);
      for (const oracle::Assignment& assignment : assignments) print_out(" {}={}", assignment.path, assignment.text);
      print_out("\n");
    }
  }
  if (const auto reason = oracle::unsupported_reason(chosen.spec))
    print_out("\n# This spec cannot be run: {}\n", *reason);
  return 0;
}

}  // namespace

void add_show(CLI::App& app, Program& program) {
  CLI::App* command = app.add_subcommand("show", "Print a spec with its variant, layer and changes applied");
  auto options = std::make_shared<ShowOptions>();
  add_spec_options(*command, options->spec);
  command->add_flag("--all", options->all, "All fields, also those with their default");
  command->footer("Example:\n  samebits show --spec deepseek-v3 --all");
  command->callback([options, &program] { program.action = [options] { return show(*options); }; });
}

}  // namespace samebits::harness
