// The merged front projection of Kimi-K3 (samebits/front_projection.h) and the selection from its logits.
#pragma once

#include <filesystem>
#include <string>

#include "harness/bench/router_data.h"
#include "samebits/front_projection.h"

namespace samebits::harness {

inline constexpr const char* kFrontSpec = "kimi-k3";

class FrontBench {
 public:
  // Throws BenchError: the library has no front projection, or refused.
  FrontBench(const std::filesystem::path& library, BenchRouter& router, Memory& memory);
  ~FrontBench();
  FrontBench(const FrontBench&) = delete;
  FrontBench& operator=(const FrontBench&) = delete;

  std::string name() const;  // "kimi-k3+latent"
  // As many bytes as gate and latent weight have together, for the floor.
  const void* weights() const { return all_weights_; }
  std::size_t weight_bytes() const;

  // Both launches; the name of what ran.
  std::string call(std::int64_t rows, void* stream);

 private:
  BenchRouter& router_;
  BenchMemory buffers_;
  decltype(&samebits_front_create) create_;
  decltype(&samebits_front_workspace_bytes) workspace_bytes_;
  decltype(&samebits_front_project) project_;
  decltype(&samebits_front_last_error) last_error_;
  decltype(&samebits_front_destroy) destroy_;
  samebits_front* front_ = nullptr;
  void* all_weights_ = nullptr;
  float* logits_ = nullptr;
  std::uint16_t* latent_ = nullptr;
  void* workspace_ = nullptr;
  std::size_t workspace_size_ = 0;
};

}  // namespace samebits::harness
