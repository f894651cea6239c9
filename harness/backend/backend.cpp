#include "harness/backend/backend.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>
#include <system_error>

#include "harness/backend/abi_table.h"
#include "harness/backend/local_router.h"
#include "harness/backend/router_under_test.h"
#include "harness/backend/worker_router.h"
#include "harness/io/nearest.h"
#include "kernels/mutants/mutants.h"

namespace samebits::harness {
namespace {

constexpr std::string_view kMutantPrefix = "mutant:";
constexpr std::string_view kCudaName = "cuda", kCudaLibrary = "libsamebits_cuda.so";
#ifdef SAMEBITS_HAVE_CUDA
constexpr bool kHasCuda = true;
#else
constexpr bool kHasCuda = false;
#endif

// The CUDA router runs in a worker, as any router that a device fault may take down.
std::unique_ptr<RouterUnderTest> open_cuda(const BackendOptions& options) {
  return std::make_unique<WorkerRouter>(cuda_library(), options.timeout, options.interrupted);
}

std::unique_ptr<RouterUnderTest> open_embedded(const AbiTable& table) {
  try {
    return std::make_unique<LocalRouter>(table);
  } catch (const AbiError& error) {
    throw BackendError(fmt::format("the embedded router: {}", error.what()));
  }
}

}  // namespace

std::filesystem::path cuda_library() {
  if (!kHasCuda) {
    throw BackendError(
        "backend cuda: this program was built without CUDA; build it where nvcc is found "
        "(-DSAMEBITS_CUDA=ON)");
  }
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::canonical(worker_program(), error).parent_path();
  for (const auto& library : {folder / kCudaLibrary, folder.parent_path() / SAMEBITS_INSTALL_LIBDIR / kCudaLibrary}) {
    if (std::filesystem::exists(library, error)) return library;
  }
  throw BackendError(
      fmt::format("backend cuda: {} is not there; build the target samebits_cuda, or copy it beside the program",
                  (folder / kCudaLibrary).string()));
}

std::unique_ptr<properties::Subject> open_backend(const BackendOptions& options) {
  if (options.plugin) {
    return make_subject(std::make_unique<WorkerRouter>(*options.plugin, options.timeout, options.interrupted));
  }
  if (options.name == "cpu") return make_subject(open_embedded(embedded_table()));
  if (options.name == kCudaName) return make_subject(open_cuda(options));
  if (options.name.starts_with(kMutantPrefix)) {
    const std::string name = options.name.substr(kMutantPrefix.size());
    if (const mutants::Mutant* mutant = mutants::find_mutant(name.c_str())) {
      return make_subject(open_embedded(mutant_table(*mutant)));
    }
  }
  std::vector<std::string> names;
  for (const BackendListing& listing : list_backends()) names.push_back(listing.name);
  throw UnknownBackend(fmt::format("unknown backend \"{}\"; {}", options.name, suggest_names(options.name, names)));
}

std::vector<BackendListing> list_backends() {
  std::vector<BackendListing> listings = {{"cpu", "the embedded CPU router (contract tc256)"}};
  if (kHasCuda) listings.push_back({std::string(kCudaName), "the CUDA router (contract tc256), in a worker"});
  for (const mutants::Mutant& mutant : mutants::all_mutants()) {
    listings.push_back({fmt::format("{}{}", kMutantPrefix, mutant.name), mutant.fault});
  }
  return listings;
}

}  // namespace samebits::harness
