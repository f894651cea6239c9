#include "harness/cli/program.h"

int main(int argc, char** argv) {
  return samebits::harness::run_program(argc, argv);
}
