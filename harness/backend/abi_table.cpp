#include "harness/backend/abi_table.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>

#include "harness/backend/abi_adapter.h"
#include "harness/io/claims_json.h"
#include "oracle/exact/declared_arithmetic.h"

namespace samebits::harness {
namespace {

template <class Function>
Function symbol(void* library, const char* name) {
  void* address = dlsym(library, name);
  if (address == nullptr) {
    throw AbiError(
        fmt::format("{} is missing; a plug-in exports every function of samebits/samebits.h as a C symbol", name));
  }
  return reinterpret_cast<Function>(address);
}

template <std::size_t N>
bool terminated(const char (&text)[N]) {
  return std::find(text, text + N, '\0') != text + N;
}

}  // namespace

AbiTable embedded_table() {
  AbiTable table;
  table.abi_version = samebits_abi_version;
  table.describe = samebits_describe;
  table.supports = samebits_supports;
  table.topk_columns = samebits_topk_columns;
  table.create = samebits_create;
  table.workspace_bytes = samebits_workspace_bytes;
  table.workspace_init = samebits_workspace_init;
  table.route = samebits_route;
  table.route_from_logits = samebits_route_from_logits;
  table.last_error = samebits_last_error;
  table.destroy = samebits_destroy;
  return table;
}

AbiTable mutant_table(const mutants::Mutant& mutant) {
  AbiTable table = embedded_table();
  table.create = [&mutant](const samebits_router_spec* spec, const samebits_constants* constants,
                           samebits_router** router) {
    return cpu::create_with_steps(mutant.steps, spec, constants, router);
  };
  const auto replace = [](auto& function, auto fault) {
    if (fault != nullptr) function = fault;
  };
  const mutants::AbiFaults& faults = mutant.abi;
  replace(table.supports, faults.supports);
  replace(table.create, faults.create);
  replace(table.workspace_bytes, faults.workspace_bytes);
  replace(table.workspace_init, faults.workspace_init);
  replace(table.route, faults.route);
  replace(table.route_from_logits, faults.route_from_logits);
  replace(table.destroy, faults.destroy);
  return table;
}

AbiTable load_table(const std::filesystem::path& library, const CallWatch& watch) {
  // Absolute, because a name without a slash would be searched in the system's library folders.
  const std::filesystem::path path = std::filesystem::absolute(library);
  void* handle = nullptr;
  {
    const WatchedCall watched(watch, Call::kDlopen);
    handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (handle == nullptr) {
    const char* text = dlerror();
    throw AbiError(text == nullptr ? "the loader refused it without a reason" : text);
  }
  AbiTable table;
  // The version comes first: under another version the other symbols may rightly be missing.
  table.abi_version = symbol<decltype(table.abi_version)>(handle, "samebits_abi_version");
  std::uint32_t found = 0;
  {
    const WatchedCall watched(watch, Call::kAbiVersion);
    found = table.abi_version();
  }
  if (found != SAMEBITS_ABI_VERSION) {
    throw AbiError(
        fmt::format("it was built for version {} of the C ABI, this program expects version {}; rebuild it "
                    "with this program's samebits/samebits.h",
                    found, SAMEBITS_ABI_VERSION));
  }
  table.describe = symbol<decltype(table.describe)>(handle, "samebits_describe");
  table.supports = symbol<decltype(table.supports)>(handle, "samebits_supports");
  table.topk_columns = symbol<decltype(table.topk_columns)>(handle, "samebits_topk_columns");
  table.create = symbol<decltype(&samebits_create)>(handle, "samebits_create");
  table.workspace_bytes = symbol<decltype(table.workspace_bytes)>(handle, "samebits_workspace_bytes");
  table.workspace_init = symbol<decltype(table.workspace_init)>(handle, "samebits_workspace_init");
  table.route = symbol<decltype(table.route)>(handle, "samebits_route");
  table.route_from_logits = symbol<decltype(table.route_from_logits)>(handle, "samebits_route_from_logits");
  table.last_error = symbol<decltype(table.last_error)>(handle, "samebits_last_error");
  table.destroy = symbol<decltype(table.destroy)>(handle, "samebits_destroy");
  return table;
}

samebits_info describe(const AbiTable& table) {
  // A router built against a longer struct must not write past the size that it was given; and what it wrote there
  // must not reach this program's own data.
  struct Buffer {
    samebits_info info;
    std::array<unsigned char, 65536> guard;
  };
  const auto buffer = std::make_unique<Buffer>();
  constexpr unsigned char kGuard = 0xa5;
  buffer->guard.fill(kGuard);
  buffer->info.struct_size = sizeof(samebits_info);
  const samebits_status status = table.describe(&buffer->info);
  if (status != SAMEBITS_OK) throw AbiError("samebits_describe returned " + status_text(status));
  if (std::any_of(buffer->guard.begin(), buffer->guard.end(), [](unsigned char byte) { return byte != kGuard; })) {
    throw AbiError(fmt::format("samebits_describe wrote past the struct_size of {} bytes that it was given",
                               sizeof(samebits_info)));
  }
  if (const std::string problem = problem_of(buffer->info); !problem.empty()) {
    throw AbiError("samebits_describe: " + problem);
  }
  return buffer->info;
}

std::string problem_of(const samebits_info& info) {
  const auto out_of_range = [](std::string_view field, std::int64_t found, std::int64_t lowest, std::int64_t highest) {
    return found >= lowest && found <= highest
               ? std::string()
               : fmt::format("{} is {}; allowed are {} to {}", field, found, lowest, highest);
  };
  if (info.struct_size != sizeof(samebits_info)) {
    return fmt::format("struct_size is {}; version {} of the ABI has {}", info.struct_size, SAMEBITS_ABI_VERSION,
                       sizeof(samebits_info));
  }
  if (info.abi_version != SAMEBITS_ABI_VERSION) {
    return fmt::format("abi_version is {}; expected is {}", info.abi_version, SAMEBITS_ABI_VERSION);
  }
  if (!terminated(info.name)) return fmt::format("name has no terminating zero in its {} bytes", sizeof(info.name));
  if (info.name[0] == '\0') return "name is empty";
  if (!terminated(info.version)) {
    return fmt::format("version has no terminating zero in its {} bytes", sizeof(info.version));
  }
  constexpr std::uint32_t kKnownMemory = SAMEBITS_MEMORY_HOST | SAMEBITS_MEMORY_DEVICE;
  if (info.memory_kinds == 0 || (info.memory_kinds & ~kKnownMemory) != 0) {
    return fmt::format("memory_kinds is {:#x}; allowed are 1 (host), 2 (device) and 3 (both)", info.memory_kinds);
  }
  if (!terminated(info.arithmetic)) {
    return fmt::format("arithmetic has no terminating zero in its {} bytes", sizeof(info.arithmetic));
  }
  if (!oracle::parse_arithmetic(info.arithmetic)) {
    return fmt::format("arithmetic is \"{}\"; allowed are {}", info.arithmetic, kArithmetics);
  }
  for (const std::string& problem :
       {out_of_range("determinism", info.determinism, SAMEBITS_DETERMINISM_NONE, SAMEBITS_BATCH_INVARIANT),
        out_of_range("tie_break", info.tie_break, SAMEBITS_TIES_ANY, SAMEBITS_TIES_LOWEST_INDEX),
        out_of_range("output_order", info.output_order, SAMEBITS_ORDER_ANY, SAMEBITS_ORDER_KEY_DESC_THEN_INDEX),
        out_of_range("returns_logits", info.returns_logits, 0, 1),
        out_of_range("returns_bookkeeping", info.returns_bookkeeping, 0, 1)}) {
    if (!problem.empty()) return problem;
  }
  if (info.max_experts < 0 || info.max_top_k < 0 || info.max_hidden_size < 0 || info.max_tokens < 0) {
    return fmt::format(
        "a limit is negative (max_experts {}, max_top_k {}, max_hidden_size {}, max_tokens {}); 0 means "
        "none",
        info.max_experts, info.max_top_k, info.max_hidden_size, info.max_tokens);
  }
  return {};
}

}  // namespace samebits::harness
