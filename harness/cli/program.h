// The command line: one subcommand a file.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace samebits::harness {

// What the parsed command line asks for; each subcommand sets `action` when it was named.
struct Program {
  std::string path;  // of this program as it was called: first word of a REPRO line
  std::function<int()> action;
};

void add_fuzz(CLI::App& app, Program& program);
void add_sweep(CLI::App& app, Program& program);
void add_gen(CLI::App& app, Program& program);
void add_run(CLI::App& app, Program& program);
void add_check(CLI::App& app, Program& program);
void add_replay(CLI::App& app, Program& program);
void add_shrink(CLI::App& app, Program& program);
void add_explain(CLI::App& app, Program& program);
void add_bench(CLI::App& app, Program& program);
void add_list(CLI::App& app, Program& program);
void add_show(CLI::App& app, Program& program);
void add_mutants(CLI::App& app, Program& program);

// Exit codes: 0 clean; 1 a law was broken; 2 usage or input; 3 the backend could not be loaded, described or reached;
// 4 nothing or too little was tested; 130 interrupted.
int run_program(int argc, char** argv);

}  // namespace samebits::harness
