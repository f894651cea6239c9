// The specs that ci/gpu-torch.py and ci/gpu-bench-torch.py write down for machines that have PyTorch and no program of
// ours beside them: they are those of fixtures/models. And what these scripts and ci/gpu say where something is
// missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <iomanip>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "harness/backend/abi_adapter.h"
#include "harness/bench/router_data.h"
#include "harness/io/spec_library.h"
#include "harness/test/cli_child.h"
#include "oracle/spec/spec_yaml.h"

namespace samebits::harness {
namespace {

// Loads the script without PyTorch. A line for each field of each spec: name of the spec, of the field, its offset and
// its bytes; and one for the range of its biases.
constexpr const char* kPrintSpecs = R"(
import importlib.util, sys, unittest.mock
sys.modules["torch"] = unittest.mock.MagicMock()
loaded = importlib.util.spec_from_file_location("script", sys.argv[1])
script = importlib.util.module_from_spec(loaded)
loaded.loader.exec_module(script)
for name, (spec, biases) in script.MODELS.items():
    for field, _ in spec._fields_:
        place = getattr(type(spec), field)
        print(name, field, place.offset, bytes(spec)[place.offset:place.offset + place.size].hex())
    print(name, "size", len(bytes(spec)), "-")
    print(name, "biases", *(biases or ()))
)";

struct Field {
  std::string name;
  std::size_t offset = 0;
  std::string bytes;  // hexadecimal, in memory order
};
struct Printed {
  std::vector<Field> fields;
  std::vector<float> biases;
  std::size_t size = 0;
};

std::map<std::string, Printed> specs_of_script() {
  const TempFolder folder;
  const ChildResult child =
      Child(folder, {"-c", kPrintSpecs, SAMEBITS_SOURCE_DIR "/ci/gpu-bench-torch.py"}, "/usr/bin/python3").wait();
  EXPECT_EQ(child.exit_code, 0) << "98: there is no /usr/bin/python3, which ci/deps test installs\n" << child.err;
  std::map<std::string, Printed> specs;
  std::istringstream text(child.out);
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string spec, field;
    words >> spec >> field;
    if (field == "biases") {
      for (float value = 0; words >> value;) specs[spec].biases.push_back(value);
    } else if (field == "size") {
      words >> specs[spec].size;
    } else {
      Field& printed = specs[spec].fields.emplace_back();
      printed.name = field;
      words >> printed.offset >> printed.bytes;
    }
  }
  return specs;
}

std::string hexadecimal(const samebits_router_spec& spec, std::size_t offset, std::size_t bytes) {
  std::ostringstream text;
  for (std::size_t i = 0; i < bytes; ++i) {
    unsigned char byte = 0;
    std::memcpy(&byte, reinterpret_cast<const char*>(&spec) + offset + i, 1);
    text << std::hex << std::setw(2) << std::setfill('0') << static_cast<int>(byte);
  }
  return text.str();
}

TEST(GpuScripts, HaveTheSpecsOfTheModels) {
  const auto printed = specs_of_script();
  std::vector<std::string> names;
  for (const auto& [name, spec] : printed) names.push_back(name);
  // Those that `samebits bench` takes on a GPU.
  EXPECT_THAT(names,
              testing::ElementsAre("deepseek-v3", "deepseek-v4.1-flash", "glm-5.3-flash", "kimi-k3", "qwen3-30b-a3b"));
  for (const auto& [name, spec] : printed) {
    samebits_router_spec expected = to_abi(oracle::resolve(load_spec(name), {}));
    // Experts that are always taken are no matter of the router unless the gate has them.
    ASSERT_NE(expected.shared_mode, SAMEBITS_SHARED_IN_GATE) << name;
    expected.shared_experts = expected.shared_mode = 0;
    // The scripts have text rows alone.
    expected.num_bias_variants = expected.selection_bias_dtype == 0 ? 0 : 1;
    // PyTorch is asked for fp32, by torch.mm(out_dtype=float32) and by fp32 parameters; Qwen3 publishes bf16.
    expected.logits_dtype = expected.weights_dtype = SAMEBITS_FP32;
    EXPECT_EQ(spec.size, sizeof(expected)) << name;
    for (const Field& field : spec.fields) {
      EXPECT_EQ(field.bytes, hexadecimal(expected, field.offset, field.bytes.size() / 2)) << name << ": " << field.name;
    }
  }
}

TEST(GpuScripts, DrawBiasesAsTheProgramDoes) {
  for (const auto& [name, spec] : specs_of_script()) {
    const bool has_bias = oracle::resolve(load_spec(name), {}).selection.bias != oracle::BiasType::kNone;
    const BiasRange range = bench_selection_biases(name);
    if (has_bias) {
      EXPECT_THAT(spec.biases, testing::ElementsAre(range.mean, range.deviation, range.least, range.most)) << name;
    } else {
      EXPECT_THAT(spec.biases, testing::IsEmpty()) << name;
    }
  }
}

// Runs a script as if torch were not installed, whether it is or not.
constexpr const char* kWithoutTorch = R"(
import runpy, sys
sys.modules["torch"] = None
runpy.run_path(sys.argv[1], run_name="__main__"))";

TEST(GpuScripts, SayThatTorchIsMissing) {
  for (const std::string name : {"gpu-torch", "gpu-bench-torch"}) {
    const TempFolder folder;
    const ChildResult child =
        Child(folder, {"-c", kWithoutTorch, SAMEBITS_SOURCE_DIR "/ci/" + name + ".py"}, "/usr/bin/python3").wait();
    EXPECT_EQ(child.exit_code, 2) << child.err;
    EXPECT_THAT(child.err, testing::MatchesRegex(name + ": python3 has no torch \\([^\n]*\\); pip install torch\n"));
  }
}

TEST(GpuScripts, SayThatThePackageIsMissing) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "ci");
  std::filesystem::copy_file(SAMEBITS_SOURCE_DIR "/ci/gpu", folder / "ci/gpu");
  for (const char* part : {"bits", "record", "sanitize", "mutants", "bench"}) {
    const ChildResult child = Child(folder, {"ci/gpu", part}, "/bin/bash").wait();
    EXPECT_EQ(child.exit_code, 2) << part;
    EXPECT_THAT(child.err, testing::EndsWith("/dist-gpu/cuda_test is not there; make it with ci/gpu-package\n"))
        << part;
  }
}

}  // namespace
}  // namespace samebits::harness
