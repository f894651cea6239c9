// The routers that are compared: every spec file, its variants and its layer overrides, at small sizes or at their own.
#pragma once

#include <string>
#include <vector>

#include "oracle/second/test/compare/random.h"
#include "oracle/spec/router_spec.h"

namespace samebits::second {

struct NamedSpec {
  std::string name;  // glm-5.3-flash, glm-5.3-flash/llama_cpp, deepseek-v4-flash/layer 0
  oracle::RouterSpec spec;
  bool is_base;  // of its file: neither a variant nor a layer override
};

// All of fixtures/models that a router can answer row by row (capacity: none).
std::vector<NamedSpec> all_specs();

// E and H at most 64; k, groups, zero experts and tables smaller with them.
oracle::RouterSpec reduced(oracle::RouterSpec spec, Random& random);

// Some fields that do not name a published router, such as eps modes, stages and dtypes, chosen at random; valid.
oracle::RouterSpec varied(const oracle::RouterSpec& spec, Random& random);

// Own sizes; a hidden size that the file does not give is 1024.
oracle::RouterSpec full_size(oracle::RouterSpec spec);

}  // namespace samebits::second
