// The table of CUDA mutants: each has a library with the whole ABI and a guard in its source, and names a law and a
// spec or a test. That the law catches it is shown on a machine with a GPU, by ci/gpu-mutants.
#ifdef SAMEBITS_HAVE_CUDA
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "harness/io/spec_library.h"
#include "harness/test/cli_child.h"
#include "harness/test/io_temp_folder.h"
#include "properties/law.h"
#include "samebits/samebits.h"

namespace samebits::harness {
namespace {

struct Line {
  std::string name, source, run, caught_by, fault;
};

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<Line> table() {
  std::istringstream text(read_text(SAMEBITS_SOURCE_DIR "/kernels/mutants/cuda_mutants.txt"));
  std::vector<Line> lines;
  for (std::string line; std::getline(text, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    Line& mutant = lines.emplace_back();
    words >> mutant.name >> mutant.source >> mutant.run >> mutant.caught_by >> std::ws;
    std::getline(words, mutant.fault);
  }
  return lines;
}

TEST(CudaMutants, AreThoseOfTheTable) {
  std::vector<std::string> names;
  for (const Line& mutant : table()) names.push_back(mutant.name);
  EXPECT_THAT(names, testing::UnorderedElementsAre("row_dependent_dispatch", "dropped_wait", "stale_workspace",
                                                   "missing_barrier", "index_overflow", "atomics_for_slot_order"));
}

TEST(CudaMutants, HaveAGuardInTheirSource) {
  for (const Line& mutant : table()) {
    std::string guard = "SAMEBITS_MUTANT_" + mutant.name;
    std::ranges::transform(guard, guard.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    // Two of them are a source and a header of its own.
    const std::string kernels = SAMEBITS_SOURCE_DIR "/kernels/";
    std::string text = read_text(kernels + mutant.source);
    if (mutant.source == "select/select.cu") text += read_text(kernels + "select/fold_finish.cuh");
    if (mutant.source == "logits/decode_wide.cu") text += read_text(kernels + "logits/decode_wide.cuh");
    EXPECT_NE(text.find(guard + "\n"), std::string::npos) << guard << " in " << mutant.source;
    EXPECT_FALSE(mutant.fault.empty()) << mutant.name;
  }
}

TEST(CudaMutants, HaveALibrary) {
  for (const Line& mutant : table()) {
    const std::string path = SAMEBITS_CUDA_MUTANTS_DIR "/libsamebits_cuda_" + mutant.name + ".so";
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << ::dlerror();
    const auto describe = reinterpret_cast<decltype(&samebits_describe)>(::dlsym(library, "samebits_describe"));
    ASSERT_NE(describe, nullptr) << path;
    samebits_info info{};
    info.struct_size = sizeof(info);
    EXPECT_EQ(describe(&info), SAMEBITS_OK) << path;
    EXPECT_STREQ(info.name, "samebits-cuda");
    ::dlclose(library);
  }
}

TEST(CudaMutants, NameALawAndASpecOrATest) {
  const TempFolder folder;
  for (const Line& mutant : table()) {
    if (mutant.run == "test") {
      const ChildResult listed =
          Child(folder, {"--gtest_list_tests", "--gtest_filter=" + mutant.caught_by}, SAMEBITS_CUDA_TEST).wait();
      const std::size_t dot = mutant.caught_by.find('.');
      EXPECT_NE(listed.out.find(mutant.caught_by.substr(0, dot + 1) + "\n  " + mutant.caught_by.substr(dot + 1) + "\n"),
                std::string::npos)
          << mutant.caught_by << "\n"
          << listed.out;
      continue;
    }
    ASSERT_EQ(mutant.run.rfind("fuzz:", 0), 0u) << mutant.name << ": " << mutant.run;
    const std::size_t last = mutant.run.rfind(':');
    ASSERT_GT(last, 5u) << mutant.name << ": " << mutant.run;
    EXPECT_NO_THROW(load_spec(mutant.run.substr(5, last - 5))) << mutant.name;
    EXPECT_GT(std::stoi(mutant.run.substr(last + 1)), 0) << mutant.name;
    EXPECT_NE(properties::find_law(mutant.caught_by), nullptr) << mutant.name << ": " << mutant.caught_by;
  }
}

}  // namespace
}  // namespace samebits::harness
#endif  // SAMEBITS_HAVE_CUDA
