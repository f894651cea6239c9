// The functions of one router behind the C ABI, wherever they come from.
#pragma once

#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>

#include "harness/backend/call.h"
#include "kernels/mutants/mutants.h"
#include "samebits/samebits.h"

namespace samebits::harness {

// A router that cannot be used: not loadable, a missing symbol, another ABI version, or a description that makes no
// sense. The message says what was found and what is expected.
class AbiError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct AbiTable {
  decltype(&samebits_abi_version) abi_version = nullptr;
  decltype(&samebits_describe) describe = nullptr;
  decltype(&samebits_supports) supports = nullptr;
  decltype(&samebits_topk_columns) topk_columns = nullptr;
  // Of a mutant: from its steps.
  std::function<samebits_status(const samebits_router_spec*, const samebits_constants*, samebits_router**)> create;
  decltype(&samebits_workspace_bytes) workspace_bytes = nullptr;
  decltype(&samebits_workspace_init) workspace_init = nullptr;
  decltype(&samebits_route) route = nullptr;
  decltype(&samebits_route_from_logits) route_from_logits = nullptr;
  decltype(&samebits_last_error) last_error = nullptr;
  decltype(&samebits_destroy) destroy = nullptr;
};

AbiTable embedded_table();
AbiTable mutant_table(const mutants::Mutant& mutant);

// Loads a shared library for the rest of the process (it is never unloaded: routers may have started threads). Throws
// AbiError: the loader's text, the name of a missing symbol, or the ABI versions found and expected.
AbiTable load_table(const std::filesystem::path& library, const CallWatch& watch = {});

// samebits_describe, checked. Throws AbiError.
samebits_info describe(const AbiTable& table);

// What is wrong with a description; empty: nothing.
std::string problem_of(const samebits_info& info);

}  // namespace samebits::harness
