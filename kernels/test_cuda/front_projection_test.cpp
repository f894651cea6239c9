// The merged front projection, by bits: its logits against the router of the same gate, its blocks against the plain
// form of their own weight, at every row count.
#include "samebits/front_projection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/cuda/force_form.h"
#include "kernels/cuda/front_projection.h"
#include "kernels/test_cuda/device_router.h"
#include "kernels/test_cuda/logits_case.h"

namespace samebits::cuda::test {
namespace {

using cpu::test::abi_constants;
using cpu::test::plain_spec;
using cpu::test::random_constants;
using cpu::test::rows_of;
using cpu::test::same_bits;
using cpu::test::sigmoid_bias_spec;

constexpr std::uint8_t kPoison = 0x5a;
constexpr std::int64_t kGuardBytes = 64;  // behind an output

// The functions of libsamebits_cuda.so.
struct FrontLibrary {
  template <class Function>
  static Function* find(const char* name) {
    void* symbol = dlsym(CudaLibrary::get().handle, name);
    if (symbol == nullptr) throw std::runtime_error(dlerror());
    return reinterpret_cast<Function*>(symbol);
  }
  decltype(&samebits_front_create) create = find<decltype(samebits_front_create)>("samebits_front_create");
  decltype(&samebits_front_workspace_bytes) workspace_bytes =
      find<decltype(samebits_front_workspace_bytes)>("samebits_front_workspace_bytes");
  decltype(&samebits_front_project) project = find<decltype(samebits_front_project)>("samebits_front_project");
  decltype(&samebits_front_last_error) last_error =
      find<decltype(samebits_front_last_error)>("samebits_front_last_error");
  decltype(&samebits_front_destroy) destroy = find<decltype(samebits_front_destroy)>("samebits_front_destroy");
};

const FrontLibrary& library() {
  static const FrontLibrary kLibrary;
  return kLibrary;
}

struct BlockShape {
  std::int32_t columns, dtype;
};

// A gate and blocks whose weights are consecutive rows of one matrix, so that no two have a row in common.
struct FrontCase {
  FrontCase(const samebits_router_spec& router_spec, std::vector<BlockShape> shapes, std::int64_t num_rows,
            Category category = Category::kNormal)
      : spec(router_spec),
        block_shapes(std::move(shapes)),
        gate_rows(static_cast<std::int32_t>(cpu::test::rows_of_gate(spec))),
        data({category, num_rows, spec.hidden_size, gate_rows + columns_of_blocks()}),
        constants(random_constants(spec, 7)) {
    const std::int64_t h = spec.hidden_size;
    constants.gate_weight = rows_of(data.bf16_weights, h, 0, gate_rows);
    std::int64_t first = gate_rows;
    for (const BlockShape& shape : block_shapes) {
      blocks.push_back({matrix(data.bf16_weights.data() + first * h, shape.columns, h, SAMEBITS_BF16), shape.dtype, 0});
      first += shape.columns;
    }
  }
  std::int32_t columns_of_blocks() const {
    std::int32_t columns = 0;
    for (const BlockShape& shape : block_shapes) columns += shape.columns;
    return columns;
  }

  samebits_router_spec spec;
  std::vector<BlockShape> block_shapes;
  std::int32_t gate_rows;
  LogitsData data;
  cpu::test::Constants constants;
  std::vector<samebits_front_block> blocks;
};

std::vector<std::uint8_t> bytes_of_bf16(const std::vector<float>& values) {
  std::vector<std::uint8_t> bytes;
  for (const float value : values) {
    const std::uint16_t bits = float_to_bf16(value);
    bytes.push_back(static_cast<std::uint8_t>(bits & 255));
    bytes.push_back(static_cast<std::uint8_t>(bits >> 8));
  }
  return bytes;
}
std::vector<std::uint8_t> bytes_of_fp32(const std::vector<float>& values) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(values.data());
  return {bytes, bytes + values.size() * sizeof(float)};
}

// The right outputs of all rows, as bytes without gaps: the logits of the router alone, then each block from the plain
// form of all weights.
std::vector<std::vector<std::uint8_t>> right_outputs(const FrontCase& front) {
  const std::int64_t t = front.data.shape.num_rows, h = front.spec.hidden_size;
  std::vector<std::uint16_t> hidden;
  for (std::int64_t row = 0; row < t; ++row) {
    const auto from = front.data.rows.begin() + row * front.data.stride;
    hidden.insert(hidden.end(), from, from + h);
  }
  const DeviceRouter router(front.spec, abi_constants(front.spec, front.constants));
  std::vector<std::vector<std::uint8_t>> right{bytes_of_fp32(route(router, hidden).logits)};
  const DeviceLogits device(front.data, SAMEBITS_BF16);
  const std::vector<float> all = device.run(launch_logits_plain, 1, 0, t);
  std::int64_t first = front.gate_rows;
  for (const BlockShape& shape : front.block_shapes) {
    std::vector<float> block;
    for (std::int64_t row = 0; row < t; ++row) {
      const auto from = all.begin() + row * front.data.shape.gate_rows + first;
      block.insert(block.end(), from, from + shape.columns);
    }
    right.push_back(shape.dtype == SAMEBITS_BF16 ? bytes_of_bf16(block) : bytes_of_fp32(block));
    first += shape.columns;
  }
  return right;
}

// Outputs [T][columns + gap] of a call, poisoned before it.
class Output {
 public:
  Output(std::int64_t num_rows, std::int32_t columns, std::int32_t dtype, std::int64_t gap)
      : num_rows_(num_rows),
        width_(columns * (dtype == SAMEBITS_BF16 ? 2 : 4)),
        pitch_((columns + gap) * (dtype == SAMEBITS_BF16 ? 2 : 4)),
        bytes_(static_cast<std::size_t>(num_rows * pitch_ + kGuardBytes)),
        tensor_{bytes_.data(), num_rows, columns, columns + gap, dtype, 0} {
    bytes_.fill_bytes(kPoison);
  }
  const samebits_tensor& tensor() const { return tensor_; }

  // The first `valid` rows hold rows [first, ...) of `right`; all else is untouched.
  bool holds(const std::vector<std::uint8_t>& right, std::int64_t first, std::int64_t valid) const {
    std::vector<std::uint8_t> wanted(bytes_.size(), kPoison);
    for (std::int64_t row = 0; row < valid; ++row)
      std::copy_n(right.begin() + (first + row) * width_, width_, wanted.begin() + row * pitch_);
    return same_bits(bytes_.read(), wanted);
  }

 private:
  std::int64_t num_rows_, width_, pitch_;
  DeviceArray<std::uint8_t> bytes_;
  samebits_tensor tensor_;
};

class Outputs {
 public:
  Outputs(const FrontCase& front, std::int64_t num_rows, std::int64_t gap = 3) {
    add(num_rows, front.gate_rows, SAMEBITS_FP32, gap);
    for (const BlockShape& shape : front.block_shapes) add(num_rows, shape.columns, shape.dtype, gap);
  }
  const samebits_tensor* logits() const { return tensors_.data(); }
  const samebits_tensor* blocks() const { return tensors_.data() + 1; }
  samebits_tensor& tensor(std::size_t i) { return tensors_[i]; }  // 0: the logits
  bool holds(std::size_t i, const std::vector<std::uint8_t>& right, std::int64_t first, std::int64_t valid) const {
    return outputs_[i]->holds(right, first, valid);
  }
  void expect(const std::vector<std::vector<std::uint8_t>>& right, std::int64_t first, std::int64_t valid,
              const std::string& what) const {
    check(cudaDeviceSynchronize(), "the call");
    for (std::size_t i = 0; i < outputs_.size(); ++i)
      EXPECT_TRUE(holds(i, right[i], first, valid)) << what << ", output " << i << " (0: logits)";
  }

 private:
  void add(std::int64_t num_rows, std::int32_t columns, std::int32_t dtype, std::int64_t gap) {
    outputs_.push_back(std::make_unique<Output>(num_rows, columns, dtype, gap));
    tensors_.push_back(outputs_.back()->tensor());
  }
  std::vector<std::unique_ptr<Output>> outputs_;
  std::vector<samebits_tensor> tensors_;
};

// A projection of the library, the rows of its case on the device, and a workspace for calls of all of them.
class DeviceFront {
 public:
  explicit DeviceFront(const FrontCase& front) : case_(front), rows_(front.data.rows) {
    const samebits_constants constants = abi_constants(front.spec, front.constants);
    EXPECT_EQ(library().create(&front.spec, &constants, front.blocks.data(),
                               static_cast<std::int32_t>(front.blocks.size()), &front_),
              SAMEBITS_OK)
        << library().last_error(nullptr);
    workspace_ =
        std::make_unique<DeviceArray<std::uint8_t>>(library().workspace_bytes(front_, front.data.shape.num_rows));
    workspace_->fill_bytes(0xa5);
  }
  ~DeviceFront() { library().destroy(front_); }
  DeviceFront(const DeviceFront&) = delete;
  DeviceFront& operator=(const DeviceFront&) = delete;

  const samebits_front* get() const { return front_; }
  std::string error() const { return library().last_error(front_); }
  DeviceArray<std::uint8_t>& workspace() const { return *workspace_; }
  DeviceArray<std::uint16_t>& rows() { return rows_; }
  samebits_inputs inputs(std::int64_t first, std::int64_t num_rows) const {
    samebits_inputs inputs{};
    inputs.struct_size = sizeof(inputs);
    inputs.num_tokens = num_rows;
    inputs.hidden_states = {rows_.data() + first * case_.data.stride,
                            num_rows,
                            case_.spec.hidden_size,
                            case_.data.stride,
                            SAMEBITS_BF16,
                            0};
    return inputs;
  }
  samebits_status project(const samebits_inputs& inputs, const Outputs& outputs, cudaStream_t stream = nullptr) const {
    return library().project(front_, &inputs, outputs.logits(), outputs.blocks(), workspace_->data(),
                             workspace_->size(), stream);
  }

 private:
  const FrontCase& case_;
  DeviceArray<std::uint16_t> rows_;
  samebits_front* front_ = nullptr;
  std::unique_ptr<DeviceArray<std::uint8_t>> workspace_;
};

// Calls of rows [first, first + T) for each T, each with a dirty workspace. With outputs that are 8-byte aligned at
// every 4th column, tiles of the prefill form store them.
void expect_right_rows(const FrontCase& front, const std::vector<std::int64_t>& row_counts, std::int64_t first = 0,
                       std::int64_t gap = 3) {
  const std::vector<std::vector<std::uint8_t>> right = right_outputs(front);
  const DeviceFront device(front);
  for (const std::int64_t t : row_counts) {
    const Outputs outputs(front, t, gap);
    ASSERT_EQ(device.project(device.inputs(first, t), outputs), SAMEBITS_OK) << device.error();
    outputs.expect(right, first, t, "T = " + std::to_string(t));
    device.workspace().fill_bytes(0xff);
  }
}

class FrontProjectionTest : public DeviceTest {};

TEST_F(FrontProjectionTest, EveryRowCountGivesTheBitsOfTheRouterAndOfThePlainForm) {
  const FrontCase front(plain_spec(1024, 60, 6), {{192, SAMEBITS_BF16}, {2056, SAMEBITS_FP32}}, 1000);
  expect_right_rows(front, {0, 1, 2, 8, 9, 16, 17, 32, 33, 64, 255, 256, 257, 1000});
}

TEST_F(FrontProjectionTest, RowsInAnyPlace) {
  const FrontCase front(plain_spec(768, 33, 4), {{192, SAMEBITS_FP32}, {24, SAMEBITS_BF16}}, 600);
  expect_right_rows(front, {1, 5, 100, 300}, 299);
}

// A hidden size that is padded, so that the rows are copied; every operation that finishes a logit; blocks of odd
// widths, more of them than one kernel writes.
TEST_F(FrontProjectionTest, FinishedLogitsAndManyBlocks) {
  samebits_router_spec spec = sigmoid_bias_spec(1000, 37, 6);
  spec.linear_bias_dtype = SAMEBITS_BF16;
  spec.logits_dtype = SAMEBITS_BF16;
  spec.temperature = 1.7f;
  spec.softcap = 30.0f;
  std::vector<BlockShape> shapes{{2056, SAMEBITS_BF16}};
  for (std::int32_t i = 0; i < 34; ++i) shapes.push_back({1 + 5 * i, i % 2 == 0 ? SAMEBITS_FP32 : SAMEBITS_BF16});
  const FrontCase front(spec, shapes, 400);
  expect_right_rows(front, {1, 17, 256, 257, 400});
}

TEST_F(FrontProjectionTest, HostileValues) {
  for (int category = 0; category < cpu::test::kNumCategories; ++category) {
    const FrontCase front(plain_spec(528, 20, 2), {{40, SAMEBITS_BF16}, {100, SAMEBITS_FP32}}, 300,
                          static_cast<Category>(category));
    expect_right_rows(front, {1, 100, 300});
  }
}

// Kimi K3's gate and latent projection.
TEST_F(FrontProjectionTest, TheSizesOfKimiK3) {
  const FrontCase front(sigmoid_bias_spec(7168, 896, 16), {{3584, SAMEBITS_BF16}}, 300);
  expect_right_rows(front, {1, 16, 64, 300});
  expect_right_rows(front, {1, 8, 9, 16, 63, 65, 128, 129, 200, 256, 257, 300}, 0, 8);
}

// Rows that are copied, and more blocks than tiles store.
TEST_F(FrontProjectionTest, AlignedOutputs) {
  for (const std::int32_t columns : {8, 136}) {
    std::vector<BlockShape> shapes{{columns, SAMEBITS_BF16}, {24, SAMEBITS_FP32}};
    for (const std::size_t more : {0, 4}) {
      shapes.resize(2 + more, {16, SAMEBITS_BF16});
      const FrontCase front(plain_spec(1000, 40, 4), shapes, 600);
      expect_right_rows(front, {1, 9, 100, 513}, 0, 0);
      expect_right_rows(front, {9, 300}, 299, 8);
    }
  }
}

// Sums of 0.6 MB a row in the decode form and 33 KB in the prefill form: two slices each.
TEST_F(FrontProjectionTest, SlicesChangeNoBit) {
  const FrontCase decode(plain_spec(8192, 16, 2), {{5000, SAMEBITS_BF16}}, 250);
  expect_right_rows(decode, {250});
  const FrontCase prefill(plain_spec(64, 16, 2), {{8400, SAMEBITS_BF16}}, 4500);
  const std::vector<std::vector<std::uint8_t>> right = right_outputs(prefill);
  const DeviceFront device(prefill);
  for (const std::int32_t valid : {-1, 0, 100, 4200, 9999}) {
    const DeviceArray<std::int32_t> num_valid_rows(std::vector<std::int32_t>{valid});
    samebits_inputs inputs = device.inputs(0, 4500);
    inputs.num_valid_rows = num_valid_rows.data();
    const Outputs outputs(prefill, 4500);
    ASSERT_EQ(device.project(inputs, outputs), SAMEBITS_OK) << device.error();
    outputs.expect(right, 0, clamp_rows(valid, 4500), "valid " + std::to_string(valid));
  }
}

// Outputs that tiles store themselves, one row more than a slice has.
TEST_F(FrontProjectionTest, SlicesOfAlignedOutputsChangeNoBit) {
  constexpr std::int64_t kRows = 65537;
  const FrontCase front(plain_spec(64, 16, 2), {{24, SAMEBITS_BF16}}, kRows);
  const std::vector<std::vector<std::uint8_t>> right = right_outputs(front);
  const DeviceFront device(front);
  for (const std::int32_t valid : {65537, 65536, 40000}) {
    const DeviceArray<std::int32_t> num_valid_rows(std::vector<std::int32_t>{valid});
    samebits_inputs inputs = device.inputs(0, kRows);
    inputs.num_valid_rows = num_valid_rows.data();
    const Outputs outputs(front, kRows, 0);
    ASSERT_EQ(device.project(inputs, outputs), SAMEBITS_OK) << device.error();
    outputs.expect(right, 0, valid, "valid " + std::to_string(valid));
  }
}

// Through the library's own functions, because the hook is not part of the ABI.
TEST_F(FrontProjectionTest, FormsGiveTheSameBits) {
  const FrontCase front(plain_spec(512, 40, 4), {{72, SAMEBITS_BF16}, {30, SAMEBITS_FP32}}, 300);
  const std::vector<std::vector<std::uint8_t>> right = right_outputs(front);
  const DeviceFront rows(front);
  const samebits_constants constants = abi_constants(front.spec, front.constants);
  for (const Form form : {Form::kPlain, Form::kDecode, Form::kPrefill}) {
    force_form(form);
    FrontProjection projection;
    make_front_projection(&front.spec, &constants, front.blocks.data(), 2, projection);
    for (const std::int64_t t : {1, 100, 300}) {
      const Outputs outputs(front, t);
      const DeviceArray<std::uint8_t> workspace(front_workspace_bytes(projection, t) + 8);
      const samebits_inputs inputs = rows.inputs(0, t);
      project(projection, &inputs, outputs.logits(), outputs.blocks(), workspace.data() + 8, workspace.size() - 8,
              nullptr);
      outputs.expect(right, 0, t, std::string(form_name(form)) + " of " + std::to_string(t) + " rows");
    }
    force_form(std::nullopt);
  }
}

TEST_F(FrontProjectionTest, SelectionFromItsLogitsIsTheRouters) {
  const FrontCase front(sigmoid_bias_spec(1024, 64, 8), {{128, SAMEBITS_BF16}}, 300);
  const samebits_constants constants = abi_constants(front.spec, front.constants);
  samebits_constants without_gate = constants;
  without_gate.gate_weight = {};
  const DeviceRouter whole(front.spec, constants), selection(front.spec, without_gate);
  const DeviceFront device(front);
  for (const std::int64_t t : {1, 300}) {
    std::vector<std::uint16_t> hidden;
    for (std::int64_t row = 0; row < t; ++row) {
      const auto from = front.data.rows.begin() + row * front.data.stride;
      hidden.insert(hidden.end(), from, from + 1024);
    }
    const Outputs outputs(front, t, 0);
    ASSERT_EQ(device.project(device.inputs(0, t), outputs), SAMEBITS_OK) << device.error();
    DeviceCall call(selection, std::vector<float>(static_cast<std::size_t>(t * 64)), {});
    call.inputs().router_logits = *outputs.logits();
    ASSERT_EQ(call.launch(), SAMEBITS_OK) << selection.error();
    expect_same(call.read(), route(whole, hidden), "T = " + std::to_string(t));
  }
}

TEST_F(FrontProjectionTest, OutputsThatAreNotWanted) {
  const FrontCase front(plain_spec(256, 20, 2), {{24, SAMEBITS_BF16}, {40, SAMEBITS_FP32}}, 50);
  const std::vector<std::vector<std::uint8_t>> right = right_outputs(front);
  const DeviceFront device(front);
  for (const std::size_t left_out : {0, 1, 2}) {
    Outputs outputs(front, 50);
    outputs.tensor(left_out).data = nullptr;
    ASSERT_EQ(device.project(device.inputs(0, 50), outputs), SAMEBITS_OK) << device.error();
    check(cudaDeviceSynchronize(), "the call");
    for (const std::size_t i : {0, 1, 2}) EXPECT_TRUE(outputs.holds(i, right[i], 0, i == left_out ? 0 : 50)) << i;
  }
}

void replay_graphs(std::int32_t hidden_size) {
  const FrontCase front(plain_spec(hidden_size, 20, 2), {{24, SAMEBITS_BF16}, {40, SAMEBITS_FP32}}, 700);
  const std::vector<std::vector<std::uint8_t>> right = right_outputs(front);
  DeviceFront device(front);
  const std::size_t stride = static_cast<std::size_t>(front.data.stride);
  for (const std::int64_t t : {3, 256, 350}) {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    const DeviceArray<std::int32_t> num_valid_rows(1);
    DeviceArray<std::uint16_t> rows(static_cast<std::size_t>(t) * stride);
    samebits_inputs inputs = device.inputs(0, t);
    inputs.hidden_states.data = rows.data();
    inputs.num_valid_rows = num_valid_rows.data();
    const Outputs outputs(front, t);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    ASSERT_EQ(device.project(inputs, outputs, stream), SAMEBITS_OK) << device.error();
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    for (const std::int64_t valid : {std::int64_t{0}, t / 2, t}) {  // growing: what a replay wrote is written again
      const std::int64_t first = 350 - valid;
      const auto valid32 = static_cast<std::int32_t>(valid);
      check(cudaMemcpy(num_valid_rows.data(), &valid32, sizeof(valid32), cudaMemcpyHostToDevice), "copy");
      check(cudaMemcpy(rows.data(), device.rows().data() + first * front.data.stride, rows.size() * 2,
                       cudaMemcpyDeviceToDevice),
            "copy");
      check(cudaDeviceSynchronize(), "copies");
      check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
      outputs.expect(right, first, valid, "replay of " + std::to_string(t) + " rows, valid " + std::to_string(valid));
    }
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
  }
}

TEST_F(FrontProjectionTest, GraphsReplayWithOtherContents) {
  replay_graphs(512);
}
TEST_F(FrontProjectionTest, GraphsReplayWithRowsThatAreCopied) {
  replay_graphs(500);
}

class FrontRefusals : public FrontProjectionTest {
 protected:
  void expect_refused(samebits_status status, const std::string& text) {
    samebits_front* made = nullptr;
    EXPECT_EQ(library().create(&front_.spec, &constants_, front_.blocks.data(),
                               static_cast<std::int32_t>(front_.blocks.size()), &made),
              status);
    EXPECT_EQ(made, nullptr);
    const std::string found = library().last_error(nullptr);
    EXPECT_NE(found.find(text), std::string::npos) << found;
  }

  FrontCase front_{plain_spec(256, 20, 2), {{24, SAMEBITS_BF16}, {40, SAMEBITS_FP32}}, 8};
  samebits_constants constants_ = abi_constants(front_.spec, front_.constants);
};

TEST_F(FrontRefusals, PreparedInput) {
  front_.spec.input_scale = 0.5f;
  expect_refused(SAMEBITS_UNSUPPORTED, "input norm or scale");
}
TEST_F(FrontRefusals, NoGateWeight) {
  constants_.gate_weight = {};
  expect_refused(SAMEBITS_INVALID_ARGUMENT, "gate_weight: absent");
}
TEST_F(FrontRefusals, Fp32GateWeight) {
  constants_.gate_weight.dtype = SAMEBITS_FP32;
  expect_refused(SAMEBITS_UNSUPPORTED, "gate_weight: found dtype 1 (fp32)");
}
TEST_F(FrontRefusals, BlocksThatDoNotFit) {
  const std::vector<samebits_front_block> right = front_.blocks;
  front_.blocks[1].weight.cols = 255;
  expect_refused(SAMEBITS_INVALID_ARGUMENT, "blocks[1].weight: found shape [40, 255], allowed [40, 256]");
  front_.blocks = right;
  front_.blocks[0].weight.rows = 0;
  expect_refused(SAMEBITS_INVALID_ARGUMENT, "blocks[0].weight: found shape [0, 256], allowed [1, 256]");
  front_.blocks = right;
  front_.blocks[0].weight.dtype = SAMEBITS_FP32;
  expect_refused(SAMEBITS_INVALID_ARGUMENT, "blocks[0].weight: found dtype 1 (fp32), allowed 2 (bf16)");
  front_.blocks = right;
  front_.blocks[1].output_dtype = SAMEBITS_INT32;
  expect_refused(SAMEBITS_INVALID_ARGUMENT, "blocks[1].output_dtype: found 3, allowed 1 (fp32), 2 (bf16)");
  front_.blocks = right;
  front_.blocks[1].weight.rows = kMaxFrontColumns - 63;
  expect_refused(SAMEBITS_UNSUPPORTED, "blocks[1].weight: found 1048513 rows after 64 columns");
}

TEST_F(FrontRefusals, CallsThatDoNotFit) {
  const DeviceFront device(front_);
  Outputs outputs(front_, 8);
  const samebits_inputs right = device.inputs(0, 8);
  samebits_inputs inputs = right;
  const auto expect = [&](const std::string& text) {
    EXPECT_EQ(device.project(inputs, outputs), SAMEBITS_INVALID_ARGUMENT);
    EXPECT_NE(device.error().find(text), std::string::npos) << device.error();
    inputs = right;
  };
  inputs.num_tokens = -1;
  expect("inputs.num_tokens: found -1");
  inputs.num_tokens = 7;
  expect("hidden_states: found shape [8, 256], allowed [7, 256]");
  outputs.tensor(1).dtype = SAMEBITS_FP32;
  expect("outputs[0]: found dtype 1 (fp32), allowed 2 (bf16)");
  outputs.tensor(1).dtype = SAMEBITS_BF16;
  outputs.tensor(2).row_stride = 39;
  expect("outputs[1]: found row_stride 39");
  outputs.tensor(2).row_stride = 43;
  EXPECT_EQ(library().project(device.get(), &inputs, outputs.logits(), nullptr, device.workspace().data(),
                              device.workspace().size(), nullptr),
            SAMEBITS_INVALID_ARGUMENT);
  EXPECT_NE(device.error().find("outputs: null"), std::string::npos) << device.error();
  EXPECT_EQ(library().project(device.get(), &inputs, outputs.logits(), outputs.blocks(), device.workspace().data(),
                              device.workspace().size() - 1, nullptr),
            SAMEBITS_INVALID_ARGUMENT);
  EXPECT_NE(device.error().find("ask samebits_front_workspace_bytes"), std::string::npos) << device.error();
  outputs.expect({{}, {}, {}}, 0, 0, "after refusals");
}

}  // namespace
}  // namespace samebits::cuda::test
