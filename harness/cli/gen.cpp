// samebits gen: the cases of `fuzz` with the same seed, as files.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <set>

#include "harness/cli/interrupt.h"
#include "harness/cli/options.h"
#include "harness/cli/output.h"
#include "harness/cli/program.h"
#include "harness/io/case_file.h"
#include "harness/io/files.h"
#include "harness/report/case_text.h"
#include "properties/generate.h"

namespace samebits::harness {
namespace {

namespace fs = std::filesystem;

struct GenOptions {
  SpecOptions spec;
  std::uint64_t seed = 1, cases = 200;
  std::string out, progress = "auto";
  bool with_data = false;
};

std::string file_name(std::uint64_t index) {
  return fmt::format("case-{:06}.yaml", index);
}

// `run` and `check` take every case file of a folder, so older ones must not be among the new.
void refuse_other_cases(const fs::path& folder, std::uint64_t cases) {
  std::set<std::string> ours;
  for (std::uint64_t index = 0; index < cases; ++index) ours.insert(file_name(index));
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() == ".yaml" && !ours.contains(name)) {
      throw UsageError(
          fmt::format("--out {}: holds another case file, {}; choose an empty folder", folder.string(), name));
    }
  }
}

int gen(const GenOptions& options) {
  const ChosenSpec spec = resolve_runnable_spec(options.spec);
  check_writable_folder(options.out);
  refuse_other_cases(options.out, options.cases);
  Progress progress(progress_mode(options.progress));
  std::uint64_t index = 0;
  for (; index < options.cases && !interrupted(); ++index) {
    progress.update(fmt::format("gen {}: {}/{} cases", spec.name, index, options.cases));
    CaseFile file;
    file.c = within_memory(
        [&] { return shape_text(spec.spec); },
        [&] { return properties::generate_case(spec.name, spec.variant, spec.spec, options.seed, index, {}); });
    file.full_spec = spec.spec;
    file.layer = spec.layer;
    write_case_file(fs::path(options.out) / file_name(index), file, options.with_data);
  }
  progress.clear();
  print_out("{} cases of {}, seed {}, in {}\n", grouped(static_cast<std::int64_t>(index)), spec.name, options.seed,
            options.out);
  return interrupted() ? 130 : 0;
}

}  // namespace

void add_gen(CLI::App& app, Program& program) {
  CLI::App* command = app.add_subcommand("gen", "Write the cases that `fuzz` would run as files");
  auto options = std::make_shared<GenOptions>();
  add_spec_options(*command, options->spec);
  command->add_option("--seed", options->seed, "Case I of a seed is the same everywhere")
      ->type_name("N")
      ->check(whole_number(0, UINT64_MAX))
      ->capture_default_str();
  command->add_option("--cases", options->cases, "Number of cases")
      ->type_name("N")
      ->check(whole_number(1, 1'000'000))
      ->capture_default_str();
  command->add_option("--out", options->out, "Folder for the case files")->required()->type_name("DIR");
  command->add_flag("--with-data", options->with_data, "Write all tensors, for programs that cannot generate them");
  add_progress_option(*command, options->progress);
  command->footer("Example:\n  samebits gen --spec mixtral-8x7b --seed 1 --cases 50 --out cases/");
  command->callback([options, &program] { program.action = [options] { return gen(*options); }; });
}

}  // namespace samebits::harness
