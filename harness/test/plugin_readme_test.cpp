// The plug-in that README.md shows is examples/plugin.cpp, character by character; that text is compiled and judged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>

namespace samebits::harness {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const fs::path kSource = SAMEBITS_SOURCE_DIR;

std::string read_text(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The content of the first code block after `marker`.
std::optional<std::string> code_block_after(const std::string& markdown, const std::string& marker) {
  const std::size_t at = markdown.find(marker);
  if (at == std::string::npos) return std::nullopt;
  const std::size_t fence = markdown.find("```", at);
  if (fence == std::string::npos) return std::nullopt;
  const std::size_t first = markdown.find('\n', fence) + 1;
  const std::size_t last = markdown.find("```", first);
  if (last == std::string::npos) return std::nullopt;
  return markdown.substr(first, last - first);
}

struct Outcome {
  int exit_code;
  std::string output;
};

Outcome shell(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1 </dev/null").c_str(), "r");
  if (pipe == nullptr) return {-1, "popen failed"};
  Outcome outcome{0, {}};
  char buffer[4096];
  for (std::size_t size = 0; (size = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) outcome.output.append(buffer, size);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

class PluginReadme : public ::testing::Test {
 protected:
  PluginReadme() : folder_(fs::path(::testing::TempDir()) / ("samebits_readme_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~PluginReadme() override { fs::remove_all(folder_); }

  fs::path build(const std::string& text) {
    std::ofstream(folder_ / "plugin.cpp") << text;
    const fs::path library = folder_ / "plugin.so";
    const Outcome built = shell(
        std::string(SAMEBITS_CXX_COMPILER) + " -std=c++17 -O2 -Wall -Wextra -Werror -shared -fPIC -I " +
        (kSource / "kernels/include").string() + " " + (folder_ / "plugin.cpp").string() + " -o " + library.string());
    EXPECT_EQ(built.exit_code, 0) << built.output;
    return library;
  }

  std::string example() { return read_text(kSource / "examples/plugin.cpp"); }

  // Small sizes: this is about the plug-in, not about the model.
  Outcome fuzz(const fs::path& library, const std::string& spec) {
    return shell(std::string(SAMEBITS_PROGRAM) + " fuzz --seed 1 --cases 20 --fail-fast --progress none --spec " +
                 spec + " --set shape.hidden_size=300 --set shape.num_experts=72 --plugin " + library.string() +
                 " --corpus " + (folder_ / "failures").string());
  }

  fs::path folder_;
};

TEST_F(PluginReadme, TheReadmeShowsTheExample) {
  const auto text = code_block_after(read_text(kSource / "README.md"), "<!-- plugin -->");
  ASSERT_TRUE(text.has_value()) << "README.md has no code block after <!-- plugin -->";
  EXPECT_EQ(*text, example());
  EXPECT_LT(std::count(text->begin(), text->end(), '\n'), 50);
}

TEST_F(PluginReadme, TheExamplePassesUnderItsClaims) {
  const Outcome outcome = fuzz(build(example()), "glm-5.3-flash");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

// With one character more the same text is caught, so the pass above is not an empty one.
TEST_F(PluginReadme, TheExampleWithTiesToTheHigherIdIsCaught) {
  std::string text = example();
  const std::string right = "key(e) > key(best)";
  const std::size_t at = text.find(right);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, right.size(), "key(e) >= key(best)");
  const Outcome outcome = fuzz(build(text), "glm-5.3-flash");
  EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("selection"));
}

TEST_F(PluginReadme, ASpecThatTheExampleDoesNotDoIsRefusedByName) {
  const Outcome outcome = fuzz(build(example()), "deepseek-v3");
  EXPECT_THAT(outcome.output, HasSubstr("n_group (selection.n_group in a spec): found 8, this router has 1"));
  EXPECT_NE(outcome.exit_code, 0);
}

}  // namespace
}  // namespace samebits::harness
