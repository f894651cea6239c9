// Damaged spec files: whatever the bytes are, the answer is a spec or a SpecError that names the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "oracle/spec/validate.h"
#include "oracle/test/spec_testing.h"

namespace samebits::oracle {
namespace {

// Pieces that mean something to YAML or to the schema.
const std::vector<std::string> kPieces = {"\n",
                                          ": ",
                                          "- ",
                                          "[",
                                          "]",
                                          "{",
                                          "}",
                                          "&a ",
                                          "*a",
                                          "!!int ",
                                          "|",
                                          ">",
                                          "'",
                                          "\"",
                                          "#",
                                          "? ",
                                          "---\n",
                                          "...\n",
                                          "\t",
                                          "%YAML 1.2\n",
                                          "<<: ",
                                          ".nan",
                                          "-.inf",
                                          "1e999",
                                          "-1",
                                          "99999999999999999999",
                                          "null",
                                          "~",
                                          std::string(1, '\0'),
                                          "\x04",
                                          "\xff",
                                          "\xef\xbb\xbf",
                                          "\xfe\xff",
                                          "\r\n",
                                          "variants:\n",
                                          "layer_overrides:\n",
                                          "shape:\n",
                                          "  ",
                                          ",",
                                          "\\"};

std::string mutated(std::string text, std::mt19937& random) {
  const auto below = [&random](std::size_t limit) { return limit == 0 ? 0 : random() % limit; };
  for (std::size_t edit = 0, edits = 1 + below(4); edit < edits; ++edit) {
    const std::size_t at = below(text.size() + 1);
    const std::size_t length = std::min<std::size_t>(below(40), text.size() - at);
    switch (below(6)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(random() & 0xff);
        break;
      case 1:
        text.insert(at, kPieces[below(kPieces.size())]);
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(below(text.size() + 1), text.substr(at, length));
        break;
      case 4:
        text.resize(at);
        break;
      default:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
    }
  }
  return text;
}

TEST(SpecFuzz, DamagedFilesGiveASpecOrASpecError) {
  constexpr int kMutations = 2000;
  std::vector<std::string> texts;
  for (const auto& path : fixtures()) texts.push_back(read_text(path));
  ASSERT_FALSE(texts.empty());
  std::mt19937 random(1);  // the engine's sequence is fixed by the standard
  int parsed = 0;
  int refused = 0;
  for (int i = 0; i < kMutations; ++i) {
    const std::string text = mutated(texts[random() % texts.size()], random);
    try {
      const RouterSpec spec = parse_spec(text, "f.yaml").base;
      EXPECT_TRUE(find_problems(spec).empty()) << text;
      EXPECT_TRUE(parse_spec(to_yaml(spec), "written").base == spec) << text;
      ++parsed;
    } catch (const SpecError& error) {
      EXPECT_THAT(error.what(), testing::StartsWith("f.yaml:")) << text;
      ++refused;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "mutation " << i << ": " << error.what() << "\n" << text;
    }
  }
  EXPECT_GT(parsed, kMutations / 10);  // both outcomes were really met
  EXPECT_GT(refused, kMutations / 10);
}

}  // namespace
}  // namespace samebits::oracle
