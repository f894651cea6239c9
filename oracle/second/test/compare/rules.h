// Which special rules of the contract a row meets, so that a campaign can show that it met them.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "oracle/reference/answer.h"

namespace samebits::second {

std::vector<std::string> rules_met(const oracle::RouterSpec& spec, std::span<const float> logits,
                                   const oracle::RowAnswer<float>& answer);

// All that rules_met may name.
std::span<const char* const> all_rules();

}  // namespace samebits::second
