// Which function of a router runs at the moment: who owns a crash, and whose time the watchdog measures.
#pragma once

#include <cstdint>
#include <functional>

namespace samebits::harness {

enum class Call : std::uint32_t {
  kNone,  // the harness's own work
  kDlopen,
  kAbiVersion,
  kDescribe,
  kSupports,
  kTopkColumns,
  kCreate,
  kWorkspaceBytes,
  kWorkspaceInit,
  kRoute,
  kRouteFromLogits,
  kLastError,
  kDestroy,
};

// Told each change: before a function is called, and kNone after it has returned.
using CallWatch = std::function<void(Call)>;

// As messages name it: "samebits_route". Never null, also not for a value that a damaged worker sent.
constexpr const char* name_of(Call call) {
  switch (call) {
    case Call::kDlopen:
      return "dlopen (the library's constructors)";
    case Call::kAbiVersion:
      return "samebits_abi_version";
    case Call::kDescribe:
      return "samebits_describe";
    case Call::kSupports:
      return "samebits_supports";
    case Call::kTopkColumns:
      return "samebits_topk_columns";
    case Call::kCreate:
      return "samebits_create";
    case Call::kWorkspaceBytes:
      return "samebits_workspace_bytes";
    case Call::kWorkspaceInit:
      return "samebits_workspace_init";
    case Call::kRoute:
      return "samebits_route";
    case Call::kRouteFromLogits:
      return "samebits_route_from_logits";
    case Call::kLastError:
      return "samebits_last_error";
    case Call::kDestroy:
      return "samebits_destroy";
    case Call::kNone:
      break;
  }
  return "the worker's start";
}

// Tells the watch about one call, however it ends.
class WatchedCall {
 public:
  WatchedCall(const CallWatch& watch, Call call) : watch_(watch) {
    if (watch_) watch_(call);
  }
  ~WatchedCall() {
    if (watch_) watch_(Call::kNone);
  }
  WatchedCall(const WatchedCall&) = delete;
  WatchedCall& operator=(const WatchedCall&) = delete;

 private:
  const CallWatch& watch_;
};

}  // namespace samebits::harness
