#include "harness/cli/program.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <stdexcept>

#include "harness/backend/backend.h"
#include "harness/cli/interrupt.h"
#include "harness/cli/options.h"
#include "harness/cli/output.h"
#include "harness/io/nearest.h"
#include "harness/io/safetensors.h"
#include "harness/report/printable.h"
#include "oracle/emulate/tc256.h"
#include "oracle/spec/spec_yaml.h"

namespace samebits::harness {
namespace {

constexpr int kUsage = 2, kBackend = 3, kInterruptedCode = 130;

int fail(int code, const std::string& message) {
  std::fflush(stdout);
  print_error("samebits: {}\n", message);
  return code;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

// " fuzz", or nothing when no command was named.
std::string command_word(const CLI::App& app) {
  return app.get_subcommands().empty() ? "" : " " + app.get_subcommands().front()->get_name();
}

// A word that is no option is the cause of whatever else is wrong, so it is told first.
std::string parse_error(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> unknown = app.remaining(true);
  if (unknown.empty() || app.get_subcommands().empty()) return error.what();
  std::vector<std::string> options;
  for (const CLI::Option* option : app.get_subcommands().front()->get_options()) options.push_back(option->get_name());
  return fmt::format("unknown option \"{}\"; {}", unknown.front(), suggest_names(unknown.front(), options));
}

// The word before the first value that is empty, which would else count as an option not given; "" when there is none.
std::string empty_value(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word.empty()) return i > 1 ? argv[i - 1] : "command";
    if (word.starts_with("--") && word.find('=') == word.size() - 1)
      return std::string(word.substr(0, word.size() - 1));
  }
  return "";
}

int parse_and_act(int argc, char** argv) {
  CLI::App app(
      "Tests Mixture-of-Experts routers: generates cases, judges every answer by laws and an independent oracle,\n"
      "and shrinks what fails to a few numbers.");
  app.name("samebits");
  app.set_version_flag("--version", "samebits " SAMEBITS_VERSION);
  app.set_help_flag("--help", "Print this help");
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 clean, 1 a law was broken, 2 usage or input error, 3 backend not loaded, 4 too little tested,\n"
      "130 interrupted.\n\nExample:\n  samebits fuzz --spec glm-5.3-flash --backend cpu");
  Program program;
  program.path = argv[0];
  add_fuzz(app, program);
  add_sweep(app, program);
  add_gen(app, program);
  add_run(app, program);
  add_check(app, program);
  add_replay(app, program);
  add_shrink(app, program);
  add_explain(app, program);
  add_bench(app, program);
  add_list(app, program);
  add_show(app, program);
  add_mutants(app, program);
  const std::vector<std::string> names = command_names(app);
  if (argc > 1 && argv[1][0] != '-' && std::find(names.begin(), names.end(), argv[1]) == names.end()) {
    return fail(kUsage, fmt::format("unknown command \"{}\"; {}", argv[1], suggest_names(argv[1], names)));
  }
  if (const std::string option = empty_value(argc, argv); !option.empty()) {
    return fail(kUsage,
                fmt::format("{}: found an empty value; allowed: a text of at least one character\nsee: {} --help",
                            option, program.path));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return fail(kUsage, fmt::format("{}\nsee: {}{} --help", parse_error(app, error), program.path, command_word(app)));
  }
  if (const std::string problem = oracle::self_test(); !problem.empty()) {
    return fail(kBackend, "this build or machine cannot compute the oracle: " + problem);
  }
  install_interrupt_handler();
  return program.action();
}

// Every error as a message and an exit code.
int guarded(int argc, char** argv) {
  try {
    return parse_and_act(argc, argv);
  } catch (const UsageError& error) {
    return fail(kUsage, error.what());
  } catch (const UnknownBackend& error) {
    return fail(kUsage, error.what());
  } catch (const oracle::SpecError& error) {
    return fail(kUsage, error.what());
  } catch (const FileError& error) {
    return fail(kUsage, error.what());
  } catch (const Interrupted& end) {
    return fail(kInterruptedCode, end.what());
  } catch (const BackendError& error) {
    return fail(kBackend, printable_line(error.what()));  // may hold text of a plug-in
  } catch (const std::bad_alloc&) {
    return fail(kUsage, out_of_memory("this command").what());
  } catch (const std::length_error&) {
    return fail(kUsage, out_of_memory("this command").what());
  } catch (const std::exception& error) {
    return fail(kBackend, fmt::format("stopped by an unexpected error: {}", error.what()));
  }
}

}  // namespace

int run_program(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "worker") == 0) return run_worker(argc, argv);
  hold_standard_streams();
  return finish_output(guarded(argc, argv));
}

}  // namespace samebits::harness
