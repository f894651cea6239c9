#include "harness/io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "harness/test/io_temp_folder.h"

namespace samebits::harness {
namespace {

using ::testing::HasSubstr;

std::string file_of(const std::string& header, const std::string& data, std::uint64_t stated_length) {
  std::string file(8, '\0');
  std::memcpy(file.data(), &stated_length, 8);
  return file + header + data;
}
std::string file_of(const std::string& header, const std::string& data) {
  return file_of(header, data, header.size());
}

std::string error_of(const std::filesystem::path& path) {
  try {
    read_safetensors(path);
  } catch (const FileError& error) {
    return error.what();
  }
  return "no error";
}

SafeTensors sample() {
  SafeTensors content;
  content.tensors["a/b"] = {"BF16", {1, 3}, std::vector<std::byte>(6, std::byte{7})};
  content.tensors["empty"] = {"F32", {0, 5}, {}};
  content.tensors["ids"] = {"I64", {2}, std::vector<std::byte>(16, std::byte{1})};
  content.tensors["scalar"] = {"F32", {}, std::vector<std::byte>(4, std::byte{2})};
  content.metadata = {{"claims", "{\"quoted\": \"\\n\"}"}, {"unicode", "\xc3\xa9"}};
  return content;
}

void expect_same(const SafeTensors& a, const SafeTensors& b) {
  EXPECT_EQ(a.metadata, b.metadata);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const auto& [name, tensor] : a.tensors) {
    ASSERT_TRUE(b.tensors.contains(name));
    EXPECT_EQ(tensor.dtype, b.tensors.at(name).dtype);
    EXPECT_EQ(tensor.shape, b.tensors.at(name).shape);
    EXPECT_EQ(tensor.bytes, b.tensors.at(name).bytes);
  }
}

TEST(Safetensors, WhatWasWrittenIsRead) {
  const TempFolder folder;
  for (const SafeTensors& content : {sample(), SafeTensors{}}) {
    write_safetensors(folder / "x.safetensors", content);
    expect_same(content, read_safetensors(folder / "x.safetensors"));
  }
}

TEST(Safetensors, EveryTensorIsAlignedToItsElement) {
  const TempFolder folder;
  write_safetensors(folder / "x.safetensors", sample());
  const std::string file = content_of(folder / "x.safetensors");
  EXPECT_EQ(file.size() % 2, 0u);
  EXPECT_THAT(file, HasSubstr(R"("ids":{"data_offsets":[0,16])"));
}

TEST(Safetensors, NothingButTheFileStaysInTheFolder) {
  const TempFolder folder;
  write_safetensors(folder / "x.safetensors", sample());
  write_safetensors(folder / "x.safetensors", sample());
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) ++files;
  EXPECT_EQ(files, 1);
}

TEST(Safetensors, AFolderThatDoesNotExistIsAnErrorThatNamesTheFile) {
  const TempFolder folder;
  EXPECT_THROW(write_safetensors(folder / "no/x.safetensors", sample()), FileError);
  EXPECT_THROW(write_safetensors(folder.path(), sample()), FileError);
  EXPECT_THAT(error_of(folder / "missing.safetensors"), HasSubstr("missing.safetensors: no such file"));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("not a regular file"));
}

struct Lie {
  const char* name;
  std::string file;
  const char* message;  // part of it
};

std::vector<Lie> lies() {
  const std::string good = R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"x":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  const std::string eight(8, 'd');
  std::string deep = R"({"x":)";
  for (int i = 0; i < 100000; ++i) deep += '[';
  return {
      {"empty file", "", "at least 8"},
      {"seven bytes", "1234567", "at least 8"},
      {"header longer than the file", file_of(good, eight, 1000), "header of 1000 bytes"},
      {"header length of all ones", file_of(good, eight, UINT64_MAX), "header of"},
      {"header length that overflows with the 8 bytes", file_of(good, eight, UINT64_MAX - 7), "header of"},
      {"header past the limit", file_of(good, eight, 100'000'001), "header of"},
      {"header of zero bytes", file_of("", ""), "JSON object"},
      {"header that starts with a space", file_of(" " + good, eight), "starts with '{'"},
      {"header that is a list", file_of("[]", ""), "starts with '{'"},
      {"JSON cut off", file_of(good.substr(0, 20), eight), "not valid JSON"},
      {"header length cuts the JSON", file_of(good, eight, good.size() - 1), "not valid JSON"},
      {"text after the JSON", file_of(good + "x", eight), "not valid JSON"},
      {"NUL bytes as padding", file_of(good + std::string(2, '\0'), eight), "NUL byte"},
      {"invalid UTF-8", file_of("{\"\xff\":1}", ""), "not valid JSON"},
      {"deep nesting", file_of(deep, ""), "nested deeper"},
      {"the same tensor twice",
       file_of(
           R"({"x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
           eight),
       "twice"},
      {"the same key twice", file_of(R"({"x":{"dtype":"U8","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", eight),
       "twice"},
      {"metadata twice", file_of(R"({"__metadata__":{},"__metadata__":{}})", ""), "twice"},
      {"metadata that is no object", file_of(R"({"__metadata__":[]})", ""), "__metadata__"},
      {"metadata with a number", file_of(R"({"__metadata__":{"a":1}})", ""), "allowed are strings"},
      {"tensor that is no object", file_of(R"({"x":1})", ""), "needs an object"},
      {"missing dtype", file_of(R"({"x":{"shape":[2],"data_offsets":[0,8]}})", eight), "all needed"},
      {"unknown key", file_of(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"y":1}})", eight), "unknown key"},
      {"unknown dtype", file_of(tensor(R"("F31")", "[2]", "[0,8]"), eight), "dtype \"F31\"; allowed are"},
      {"dtype that is a number", file_of(tensor("32", "[2]", "[0,8]"), eight), "dtype 32"},
      {"negative size", file_of(tensor(R"("F32")", "[-2]", "[0,8]"), eight), "integers >= 0"},
      {"size with a fraction", file_of(tensor(R"("F32")", "[2.0]", "[0,8]"), eight), "integers >= 0"},
      {"size that is text", file_of(tensor(R"("F32")", R"(["2"])", "[0,8]"), eight), "integers >= 0"},
      {"shape that is a number", file_of(tensor(R"("F32")", "2", "[0,8]"), eight), "shape must be a list"},
      {"shape of too many sizes", file_of(tensor(R"("F32")", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), eight), "at most 8"},
      {"shape whose product overflows to the right length",
       file_of(tensor(R"("F32")", "[4611686018427387906]", "[0,8]"), eight), "too large"},
      {"product of sizes that overflows to zero", file_of(tensor(R"("F32")", "[281474976710656,65536]", "[0,0]"), ""),
       "too large"},
      {"shape of more bytes than the range", file_of(tensor(R"("F32")", "[3]", "[0,8]"), eight), "need 12"},
      {"shape of fewer bytes than the range", file_of(tensor(R"("F32")", "[1]", "[0,8]"), eight), "need 4"},
      {"one offset", file_of(tensor(R"("F32")", "[2]", "[8]"), eight), "two offsets"},
      {"negative offset", file_of(tensor(R"("F32")", "[2]", "[-8,0]"), eight), "integers >= 0"},
      {"range that ends before it begins", file_of(tensor(R"("F32")", "[2]", "[8,0]"), eight), "end before they begin"},
      {"range past the file", file_of(tensor(R"("F32")", "[4]", "[0,16]"), eight), "only 8 bytes"},
      {"range of 2^60 bytes", file_of(tensor(R"("U8")", "[1048576,1048576,1048576]", "[0,1152921504606846976]"), eight),
       "only 8 bytes"},
      {"hole before the tensor", file_of(tensor(R"("F32")", "[1]", "[4,8]"), eight), "begins at byte 4"},
      {"bytes after the tensor", file_of(tensor(R"("F32")", "[1]", "[0,4]"), eight), "after the last tensor"},
      {"overlap",
       file_of(
           R"({"x":{"dtype":"U8","shape":[6],"data_offsets":[0,6]},"y":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
           eight),
       "overlap"},
      {"two tensors in one place",
       file_of(
           R"({"x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"y":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
           eight),
       "overlap"},
  };
}

TEST(Safetensors, LyingHeadersAreRefusedWithTheReason) {
  const TempFolder folder;
  ASSERT_GE(lies().size(), 25u);
  for (const Lie& lie : lies()) {
    const std::filesystem::path path = folder.write("lie.safetensors", lie.file);
    const std::string error = error_of(path);
    EXPECT_THAT(error, HasSubstr(lie.message)) << lie.name;
    EXPECT_THAT(error, HasSubstr("lie.safetensors: ")) << lie.name;
  }
}

// Deterministic: the same mutations in every run.
TEST(Safetensors, MutatedFilesAreReadOrRefusedAndNothingElse) {
  const TempFolder folder;
  write_safetensors(folder / "x.safetensors", sample());
  const std::string good = content_of(folder / "x.safetensors");
  std::mt19937 random(1);
  int refused = 0;
  constexpr int kRounds = 1000;
  for (int round = 0; round < kRounds; ++round) {
    std::string bad = good;
    const std::uint64_t changes = 1 + random() % 3;
    for (std::uint64_t change = 0; change < changes; ++change) {
      const std::size_t place = random() % (round % 2 == 0 ? std::min<std::size_t>(bad.size(), 64) : bad.size());
      switch (random() % 4) {
        case 0:
          bad[place] = static_cast<char>(random());
          break;
        case 1:
          bad[place] = static_cast<char>(bad[place] ^ (1 << random() % 8));
          break;
        case 2:
          bad.erase(place, 1 + random() % 4);
          break;
        default:
          bad.insert(place, 1, "0123456789[]{},:\""[random() % 17]);
      }
      if (bad.empty()) break;
    }
    const std::filesystem::path path = folder.write("bad.safetensors", bad);
    if (error_of(path) != "no error") ++refused;
  }
  EXPECT_GT(refused, kRounds / 2);
}

}  // namespace
}  // namespace samebits::harness
