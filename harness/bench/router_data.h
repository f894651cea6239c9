// Inputs of a benchmark: a spec as the C ABI has it, constants of ordinary size, and the router made of them.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "harness/backend/abi_table.h"
#include "harness/backend/memory.h"
#include "oracle/spec/router_spec.h"
#include "oracle/tensors/router_inputs.h"
#include "samebits/samebits.h"

namespace samebits::harness {

struct BenchSpec {
  std::string name;
  oracle::RouterSpec spec;
};

// What a router cannot do or returned as an error; the benchmark of this spec ends.
class BenchError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Of the values N(mean, deviation^2), clamped.
struct BiasRange {
  float mean, deviation, least, most;
};
BiasRange bench_selection_biases(const std::string& spec);

// Constants and no rows: gate weight N(0, 1/H) in bf16, selection biases in the range that the model's have
// (GLM-5.3-Flash 11.54 to 11.96, Kimi-K3 -0.76 to 0.15) or N(0, 0.1), other biases N(0, 0.1), scales 1. The same for
// the same spec.
oracle::RouterInputs bench_constants(const BenchSpec& spec);
// N(0, 1) in bf16.
std::vector<std::uint16_t> bench_hidden_states(std::int64_t count);

// Memory of a router, freed with it.
class BenchMemory {
 public:
  explicit BenchMemory(Memory& memory) : memory_(memory) {}
  ~BenchMemory();
  BenchMemory(const BenchMemory&) = delete;
  BenchMemory& operator=(const BenchMemory&) = delete;

  void* allocate(std::size_t bytes);
  template <class T>
  T* allocate(std::int64_t count) {
    return static_cast<T*>(allocate(static_cast<std::size_t>(count) * sizeof(T)));
  }
  template <class T>
  T* copy(const std::vector<T>& values) {
    T* to = allocate<T>(static_cast<std::int64_t>(values.size()));
    memory_.copy_in(to, values.data(), values.size() * sizeof(T));
    memory_.settle();
    return to;
  }
  Memory& memory() { return memory_; }

 private:
  Memory& memory_;
  std::vector<void*> allocated_;
};

template <class T>
samebits_tensor dense(T* data, std::int64_t rows, std::int64_t columns, std::int32_t dtype) {
  return {data, rows, columns, columns, dtype, 0};
}

// What a call writes beside ids and weights, and what it starts from.
enum class BenchOutputs { kIds, kLogits, kBookkeeping, kGiven };
struct BenchOutputsName {
  BenchOutputs outputs;
  const char* name;
};
inline constexpr BenchOutputsName kBenchOutputs[] = {{BenchOutputs::kIds, "ids"},
                                                     {BenchOutputs::kLogits, "logits"},
                                                     {BenchOutputs::kBookkeeping, "bookkeeping"},
                                                     {BenchOutputs::kGiven, "given"}};
const char* name_of(BenchOutputs outputs);

// A router with buffers for calls of up to max_rows rows. hidden_states and given_logits are left to be filled.
class BenchRouter {
 public:
  // Throws BenchError with the router's reason.
  BenchRouter(const AbiTable& table, const BenchSpec& spec, Memory& memory, std::int64_t max_rows);
  ~BenchRouter();
  BenchRouter(const BenchRouter&) = delete;
  BenchRouter& operator=(const BenchRouter&) = delete;

  // One call on the stream; the name of the kernel that served it. Throws BenchError.
  std::string route(std::int64_t rows, BenchOutputs outputs, void* stream = nullptr);

  const auto& spec() const { return spec_; }
  const samebits_constants& constants() const { return constants_; }
  const oracle::RouterInputs& host_constants() const { return host_; }
  std::uint16_t* hidden_states() const { return hidden_; }
  float* given_logits() const { return logits_in_; }
  std::int64_t gate_rows() const { return gate_rows_; }
  std::int64_t max_rows() const { return max_rows_; }

  std::string route_given(std::int64_t rows, const float* logits, void* stream);

 private:
  void fail(const char* function, samebits_status status) const;
  samebits_constants make_constants(std::int32_t table_dtype);

  const AbiTable& table_;
  BenchMemory buffers_;
  samebits_router_spec spec_;
  oracle::RouterInputs host_;
  std::int64_t gate_rows_, columns_, max_rows_;
  samebits_constants constants_{};
  samebits_router* router_ = nullptr;
  samebits_outputs bookkeeping_{};
  std::uint16_t* hidden_ = nullptr;
  float *logits_in_ = nullptr, *logits_out_ = nullptr, *weights_ = nullptr;
  std::int32_t* ids_ = nullptr;
  std::int32_t* token_ids_ = nullptr;
  void* workspace_ = nullptr;
};

}  // namespace samebits::harness
