// What a valid spec may ask for that this program refuses, by name.
#include "oracle/spec/field.h"
#include "oracle/spec/validate.h"

namespace samebits::oracle {

std::optional<std::string> unsupported_reason(const RouterSpec& spec) {
  if (spec.capacity == Capacity::kBatchDependent) {
    return "refused by design: capacity: batch_dependent makes a row depend on the rows beside it, so no answer for "
           "the row alone exists; route without a capacity bound (capacity: none)";
  }
  const auto value = [&spec](const char* path) {
    return std::string(path) + " " + yaml::find_field(path)->write(spec);
  };
  if (spec.special.shared_mode == SharedMode::kFusedIds) {
    return "not implemented: " + value("special.shared_mode") +
           " (which id a fused shared expert gets is decided by the engine's dispatch, not by the router); "
           "route with special.shared_mode outside_router";
  }
  if (spec.outputs.pad_id != -1) {
    return "not implemented: " + value("outputs.pad_id") + " (padding rows get -1); set it to -1";
  }
  return std::nullopt;
}

}  // namespace samebits::oracle
