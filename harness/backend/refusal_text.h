// Refusals of routers speak of fields of the C ABI; users of specs know them by other names.
#pragma once

#include <string>

namespace samebits::harness {

// "score_func: found ..." becomes "score_func (score.func in a spec): found ..."; any other text stays.
std::string with_spec_field(const std::string& reason);

}  // namespace samebits::harness
