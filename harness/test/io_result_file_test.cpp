#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "harness/backend/backend.h"
#include "harness/io/case_file.h"
#include "harness/test/io_temp_folder.h"
#include "oracle/spec/spec_yaml.h"
#include "properties/generate.h"

namespace samebits::harness {
namespace {

using properties::Case;

using properties::RunResult;
using ::testing::HasSubstr;

Case small_case() {
  const oracle::RouterSpec spec =
      oracle::parse_spec(
          "spec_version: 1\nname: tiny\nshape: {hidden_size: 16, num_experts: 8, top_k: 2}\nscore: {func: sigmoid}\n",
          "tiny")
          .base;
  return properties::generate_case("tiny", "", spec, 1, 2, {});
}

struct Answered {
  Case c = small_case();
  ResultFile file;
  Answered() {
    const auto subject = open_backend({"cpu", {}, {}});
    file.claims = subject->claims();
    file.runs = subject->run(c, properties::materialize(c), properties::plan_runs(c, file.claims));
  }
};

std::string error_of(const std::filesystem::path& path, const Case& c) {
  try {
    read_result_file(path, c);
  } catch (const FileError& error) {
    return error.what();
  }
  return "no error";
}

template <class Element>
bool same_bits(const std::vector<Element>& a, const std::vector<Element>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(Element)) == 0);
}

TEST(ResultFile, EveryRunReadsBackToTheBit) {
  const TempFolder folder;
  Answered answered;
  properties::Run broken = answered.file.runs.back();
  broken.result = {};
  broken.result.status = RunResult::Status::kCrashed;
  broken.result.message = "signal 11";
  broken.result.guards_intact = false;
  broken.result.damage = "topk_ids + 16";
  answered.file.runs.back() = broken;
  write_result_file(folder / "r.safetensors", answered.file, answered.c);
  const ResultFile read = read_result_file(folder / "r.safetensors", answered.c);
  EXPECT_EQ(read.claims.name, answered.file.claims.name);
  EXPECT_EQ(read.claims.arithmetic, answered.file.claims.arithmetic);
  EXPECT_EQ(read.claims.determinism, answered.file.claims.determinism);
  EXPECT_EQ(read.claims.tie_rule, answered.file.claims.tie_rule);
  EXPECT_EQ(read.claims.output_order, answered.file.claims.output_order);
  EXPECT_EQ(read.claims.returns_logits, answered.file.claims.returns_logits);
  EXPECT_EQ(read.claims.returns_bookkeeping, answered.file.claims.returns_bookkeeping);
  ASSERT_EQ(read.runs.size(), answered.file.runs.size());
  ASSERT_GE(read.runs.size(), 2u);
  for (std::size_t i = 0; i < read.runs.size(); ++i) {
    const properties::Run &a = answered.file.runs[i], &b = read.runs[i];
    EXPECT_EQ(a.request.id, b.request.id);
    EXPECT_EQ(a.request.rows, b.request.rows);
    EXPECT_EQ(a.request.num_valid_rows, b.request.num_valid_rows);
    EXPECT_EQ(a.result.status, b.result.status);
    EXPECT_EQ(a.result.message, b.result.message);
    EXPECT_EQ(a.result.guards_intact, b.result.guards_intact);
    EXPECT_EQ(a.result.damage, b.result.damage);
    EXPECT_EQ(a.result.outputs.topk_ids, b.result.outputs.topk_ids);
    EXPECT_TRUE(same_bits(a.result.outputs.topk_weights, b.result.outputs.topk_weights));
    EXPECT_TRUE(same_bits(a.result.outputs.router_logits, b.result.outputs.router_logits));
    EXPECT_EQ(a.result.outputs.bookkeeping, b.result.outputs.bookkeeping);
  }
}

TEST(ResultFile, AProgramInTheMiddleMayWriteTheMainRunOnly) {
  const TempFolder folder;
  const Answered answered;
  const oracle::RouterOutputs& outputs = answered.file.runs.front().result.outputs;
  const std::vector<std::int64_t> shape = {outputs.num_tokens, outputs.top_k};
  SafeTensors plain;
  std::vector<std::int32_t> ids(outputs.topk_ids.begin(), outputs.topk_ids.end());
  plain.tensors["main/topk_ids"] = {"I32", shape, std::vector<std::byte>(ids.size() * 4)};
  std::memcpy(plain.tensors["main/topk_ids"].bytes.data(), ids.data(), ids.size() * 4);
  plain.tensors["main/topk_weights"] = {"F32", shape, std::vector<std::byte>(ids.size() * 4)};
  std::memcpy(plain.tensors["main/topk_weights"].bytes.data(), outputs.topk_weights.data(), ids.size() * 4);
  write_safetensors(folder / "r.safetensors", plain);
  const ResultFile read = read_result_file(folder / "r.safetensors", answered.c);
  ASSERT_EQ(read.runs.size(), 1u);
  EXPECT_EQ(read.runs[0].result.outputs.topk_ids, outputs.topk_ids);
  EXPECT_TRUE(same_bits(read.runs[0].result.outputs.topk_weights, outputs.topk_weights));
  EXPECT_EQ(read.claims.determinism, properties::Determinism::kNone);
  EXPECT_EQ(read.claims.arithmetic, oracle::Arithmetic::kFp32AnyOrder);
  EXPECT_EQ(read.claims.name, "default claims, as the file states none");
}

TEST(ResultFile, AnUnsupportedCaseKeepsItsReason) {
  const TempFolder folder;
  Answered answered;
  answered.file.runs.clear();
  answered.file.unsupported = "k > 1";
  write_result_file(folder / "r.safetensors", answered.file, answered.c);
  EXPECT_EQ(read_result_file(folder / "r.safetensors", answered.c).unsupported, "k > 1");
}

TEST(ResultFile, LiesAreRefused) {
  const TempFolder folder;
  const Answered answered;
  const std::filesystem::path path = folder / "r.safetensors";
  const auto lie = [&](auto change, const char* message) {
    write_result_file(path, answered.file, answered.c);
    SafeTensors content = read_safetensors(path);
    change(content);
    write_safetensors(path, content);
    EXPECT_THAT(error_of(path, answered.c), HasSubstr(message));
  };
  lie([](SafeTensors&) {}, "no error");
  lie([](SafeTensors& s) { s.metadata["samebits_result"] = "2"; }, "this program reads 1");
  lie([](SafeTensors& s) { s.metadata["case"] = "0000000000000000"; }, "written for case 0000000000000000");
  lie([](SafeTensors& s) { s.metadata["claims"] = "{"; }, "metadata claims");
  lie([](SafeTensors& s) { s.metadata["claims"] = "[]"; }, "allowed is an object");
  lie([](SafeTensors& s) { s.metadata["claims"] = R"({"arithmetic":"exact"})"; }, "tc256, fp32-any-order");
  lie([](SafeTensors& s) { s.metadata["claims"] = R"({"speed":"fast"})"; }, "unknown field \"speed\"");
  lie([](SafeTensors& s) { s.metadata["runs"] = "{}"; }, "allowed is a list");
  lie([](SafeTensors& s) { s.metadata["runs"] = std::string(10000, '['); }, "nested too deeply");
  lie([](SafeTensors& s) { s.metadata["runs"] = R"([{"id":"other","status":"ok"}])"; }, "run \"other\"");
  lie([](SafeTensors& s) { s.metadata["runs"] = R"([{"id":"other","status":"ok"}])"; }, "this case and these claims");
  lie([](SafeTensors& s) { s.metadata.clear(); }, "the metadata claims are missing");
  lie([](SafeTensors& s) { s.metadata["runs"] = R"([{"id":"main","status":"good"}])"; }, "ok, error, crashed");
  lie([](SafeTensors& s) { s.metadata["runs"] = R"([{"id":"main","status":"ok"},{"id":"main","status":"ok"}])"; },
      "twice");
  lie([](SafeTensors& s) { s.metadata["runs"] = R"([{"id":"main","status":"ok","guards_intact":1}])"; }, "true, false");
  lie([](SafeTensors& s) { s.metadata["runs"] = R"([{"id":"main","status":"ok"}])"; }, "belongs to no run");
  lie([](SafeTensors& s) { s.tensors["main/notes"] = {"U8", {1}, std::vector<std::byte>(1)}; }, "belongs to no run");
  lie([](SafeTensors& s) { s.tensors.erase("main/topk_weights"); }, "topk_ids and topk_weights are needed");
  lie([](SafeTensors& s) { s.tensors.at("main/topk_weights").dtype = "I32"; }, "dtype I32; allowed: F32");
  lie(
      [](SafeTensors& s) {
        SafeTensor& ids = s.tensors.at("main/topk_ids");
        ids.shape = {ids.shape[1], ids.shape[0]};
        ids.shape.push_back(1);
      },
      "this run has");
  lie([](SafeTensors& s) { s.tensors["x"] = s.tensors.at("main/topk_ids"), s.metadata.erase("runs"); }, "RUN/topk_ids");
  lie([](SafeTensors& s) { s.tensors["x/topk_ids"] = s.tensors.at("main/topk_ids"), s.metadata.erase("runs"); },
      "run \"x\"");
  lie([](SafeTensors& s) { s.tensors.clear(), s.metadata.erase("runs"); }, "at least main/topk_ids");
  EXPECT_THAT(error_of(folder / "none.safetensors", answered.c), HasSubstr("no such file"));
}

}  // namespace
}  // namespace samebits::harness
