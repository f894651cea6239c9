#include "harness/cli/mutants_elsewhere.h"

#include <fmt/format.h>

#include <sstream>

namespace samebits::harness {

std::vector<MutantElsewhere> mutants_elsewhere() {
  const std::string oracle = "oracle/second/test/faulty_reference_test.cpp";
  std::vector<MutantElsewhere> list = {
      {"M93", "oracle_zero_mask", "the reference masks the experts of rejected groups with 0",
       "FaultyReference.ZeroMask", oracle},
      {"M94", "oracle_library_topk", "the reference chooses by a library function that knows no tie rule",
       "FaultyReference.PartialSort and NthElement", oracle},
      {"M95", "oracle_calls_dispatcher", "the reference asks the dispatcher under test",
       "FaultyReference.CallsTheDispatcherUnderTest", oracle},
  };
  std::istringstream text(kCudaMutants);
  for (std::string line; std::getline(text, line);) {
    if (line.empty() || line[0] == '#') continue;
    MutantElsewhere mutant;
    std::string source, run;
    std::istringstream words(line);
    words >> mutant.name >> source >> run >> mutant.caught_by >> std::ws;
    std::getline(words, mutant.fault);
    mutant.where = "ci/gpu mutants";
    list.push_back(std::move(mutant));
  }
  return list;
}

}  // namespace samebits::harness
