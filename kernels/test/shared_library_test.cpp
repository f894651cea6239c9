// libsamebits.so, loaded as a plug-in is: all symbols there, same bits as the embedded backend.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/test/test_router.h"

namespace samebits::cpu::test {
namespace {

class Library {
 public:
  Library() : handle_(dlopen(SAMEBITS_ROUTER_LIBRARY, RTLD_NOW | RTLD_LOCAL)) {}
  ~Library() {
    if (handle_ != nullptr) dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  template <class Function>
  Function* find(Function& like, const char* name) const {
    void* symbol = handle_ == nullptr ? nullptr : dlsym(handle_, name);
    EXPECT_NE(symbol, nullptr) << name;
    EXPECT_NE(symbol, reinterpret_cast<void*>(&like)) << name << " came from this program";
    return reinterpret_cast<Function*>(symbol);
  }
  void* handle() const { return handle_; }

 private:
  void* handle_;
};

#define FIND(library, name) (library).find(name, #name)

TEST(SharedLibrary, GivesTheSameBits) {
  const Library library;
  ASSERT_NE(library.handle(), nullptr) << dlerror();
  EXPECT_EQ(FIND(library, samebits_abi_version)(), SAMEBITS_ABI_VERSION);
  EXPECT_EQ(dlsym(library.handle(), "_ZN8samebits3cpu11tc256_stepsEv"), nullptr) << "only the C ABI is exported";

  const samebits_router_spec spec = sigmoid_bias_spec(100, 33, 4);
  const Constants constants = random_constants(spec, 8);
  const auto hidden = normal_bf16(9, 20 * 100);
  const Routed expected = TestRouter(spec, constants).route(hidden);

  const samebits_constants abi = abi_constants(spec, constants);
  samebits_router* router = nullptr;
  ASSERT_EQ(FIND(library, samebits_create)(&spec, &abi, &router), SAMEBITS_OK);
  std::vector<unsigned char> workspace(FIND(library, samebits_workspace_bytes)(router, 20));
  ASSERT_EQ(FIND(library, samebits_workspace_init)(router, workspace.data(), workspace.size(), nullptr), SAMEBITS_OK);
  std::vector<std::int32_t> ids(80);
  std::vector<float> weights(80);
  samebits_inputs inputs{};
  inputs.struct_size = sizeof(inputs);
  inputs.num_tokens = 20;
  inputs.hidden_states = tensor(hidden, 20, 100, SAMEBITS_BF16);
  samebits_outputs outputs{};
  outputs.struct_size = sizeof(outputs);
  outputs.topk_ids = tensor(ids, 20, 4, SAMEBITS_INT32);
  outputs.topk_weights = tensor(weights, 20, 4, SAMEBITS_FP32);
  ASSERT_EQ(FIND(library, samebits_route)(router, &inputs, &outputs, workspace.data(), nullptr), SAMEBITS_OK);
  EXPECT_TRUE(same_bits(ids, expected.ids));
  EXPECT_TRUE(same_bits(weights, expected.weights));
  FIND(library, samebits_destroy)(router);
}

}  // namespace
}  // namespace samebits::cpu::test
