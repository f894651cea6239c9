// Routers under test: the embedded CPU router, its mutants, and plug-ins in a worker process.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "properties/run.h"

namespace samebits::harness {

// The router could not be loaded or described, or the worker not started: exit code 3.
class BackendError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
// A name that does not exist: exit code 2.
class UnknownBackend : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The user asked to stop and a plug-in did not come to an end: its worker was killed. Exit code 130.
class Interrupted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct BackendOptions {
  std::string name;                             // "cpu", "cuda", "mutant:NAME"; empty when plugin is given
  std::optional<std::filesystem::path> plugin;  // a shared library with the C ABI
  std::chrono::milliseconds timeout{20000};     // watchdog of one call into a plug-in
  // Asked while a plug-in is awaited; true makes open_backend and the subject's functions throw Interrupted within
  // about a second if the plug-in does not answer.
  bool (*interrupted)() = nullptr;
};

std::unique_ptr<properties::Subject> open_backend(const BackendOptions& options);

// Where the library of the backend cuda lies: beside the program, or installed in the libraries' folder. Throws
// BackendError: it is not there, or the program was built without CUDA.
std::filesystem::path cuda_library();

struct BackendListing {
  std::string name;         // as given to --backend
  std::string description;  // one line
};
std::vector<BackendListing> list_backends();

// Entry point of `samebits worker`: serves requests of the parent until it hangs up. Returns the exit code.
int run_worker(int argc, char** argv);

}  // namespace samebits::harness
