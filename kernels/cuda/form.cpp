#include "kernels/cuda/form.h"

#include <atomic>
#include <cstdlib>
#include <string>

#include "kernels/common/error.h"
#include "kernels/cuda/force_form.h"

namespace samebits::cuda {
namespace {

constexpr Form kForms[] = {Form::kPlain, Form::kDecode, Form::kPrefill, Form::kFused};
constexpr int kNotForced = -1;
std::atomic<int> g_forced_form{kNotForced};

std::optional<Form> form_of_environment() {
  const char* name = std::getenv("SAMEBITS_CUDA_FORM");
  if (name == nullptr || *name == '\0') return std::nullopt;
  for (const Form form : kForms) {
    if (std::string(name) == form_name(form)) return form;
  }
  fail_invalid(std::string("SAMEBITS_CUDA_FORM: found ") + name + ", allowed plain, decode, prefill, fused");
}

constexpr std::int32_t kPatience = 1024;  // about a millisecond: the multiplying blocks of a launch take microseconds
std::atomic<bool> g_never_wait{false};

}  // namespace

const char* form_name(Form form) {
  switch (form) {
    case Form::kPlain:
      return "plain";
    case Form::kDecode:
      return "decode";
    case Form::kPrefill:
      return "prefill";
    case Form::kFused:
      return "fused";
  }
  return "";
}

void force_form(std::optional<Form> form) {
  g_forced_form = form ? static_cast<int>(*form) : kNotForced;
}

std::optional<Form> forced_form() {
  static const std::optional<Form> kOfEnvironment = form_of_environment();
  const int forced = g_forced_form;
  return forced == kNotForced ? kOfEnvironment : static_cast<Form>(forced);
}

void force_no_waiting(bool never_wait) {
  g_never_wait = never_wait;
}

std::int32_t handover_patience() {
  static const bool kSwitchedOff = [] {
    const char* found = std::getenv("SAMEBITS_CUDA_WAIT");
    return found != nullptr && std::string(found) == "never";
  }();
  return kSwitchedOff || g_never_wait ? 0 : kPatience;
}

}  // namespace samebits::cuda
