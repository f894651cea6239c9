// A router of samebits.h as a C++ object: destroyed with it, and failures are exceptions. C++17; link the library whose
// router it is to be, libsamebits.so (host memory) or libsamebits_cuda.so (device memory).
#ifndef SAMEBITS_ROUTER_HPP_
#define SAMEBITS_ROUTER_HPP_

#include <samebits/samebits.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace samebits {

class RouterError : public std::runtime_error {
 public:
  RouterError(samebits_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  samebits_status status() const { return status_; }

 private:
  samebits_status status_;
};

// A zeroed struct of the ABI with its size set.
template <class Struct>
Struct sized() {
  Struct fields{};
  fields.struct_size = sizeof(Struct);
  return fields;
}

// All functions throw RouterError with the status and the text of the function of samebits.h that they call.
class Router {
 public:
  Router(const samebits_router_spec& spec, const samebits_constants& constants) {
    samebits_router* made = nullptr;
    const samebits_status status = samebits_create(&spec, &constants, &made);
    if (status != SAMEBITS_OK) throw RouterError(status, samebits_last_error(nullptr));
    router_.reset(made);
  }

  std::size_t workspace_bytes(std::int64_t max_tokens) const {
    return samebits_workspace_bytes(router_.get(), max_tokens);
  }
  void init_workspace(void* workspace, std::size_t bytes, void* stream = nullptr) const {
    check(samebits_workspace_init(router_.get(), workspace, bytes, stream));
  }
  void route(const samebits_inputs& inputs, samebits_outputs& outputs, void* workspace, void* stream = nullptr) const {
    check(samebits_route(router_.get(), &inputs, &outputs, workspace, stream));
  }
  void route_from_logits(const samebits_inputs& inputs, samebits_outputs& outputs, void* workspace,
                         void* stream = nullptr) const {
    check(samebits_route_from_logits(router_.get(), &inputs, &outputs, workspace, stream));
  }
  samebits_router* get() const { return router_.get(); }

 private:
  struct Destroy {
    void operator()(samebits_router* router) const { samebits_destroy(router); }
  };
  void check(samebits_status status) const {
    if (status != SAMEBITS_OK) throw RouterError(status, samebits_last_error(router_.get()));
  }

  std::unique_ptr<samebits_router, Destroy> router_;
};

}  // namespace samebits

#endif  // SAMEBITS_ROUTER_HPP_
