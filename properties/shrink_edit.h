// Edits of a case that leave a valid case, whether its tensors are generated or explicit.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "properties/case.h"

namespace samebits::properties {

// `c` with another description, or nothing when the spec is not valid with that shape.
std::optional<Case> with_description(const Case& c, CaseDescription description);

// The part of `c` at `positions` (ascending, of the present tensors). Nothing when nothing would be left.
std::optional<Case> keep_rows(const Case& c, const std::vector<std::int64_t>& positions);
// `positions` among the experts of one kind; the others stay. top_k is lowered where fewer experts remain. Groups must
// stay equally large.
std::optional<Case> keep_experts(const Case& c, const std::vector<std::int64_t>& positions, std::int64_t n_group);
std::optional<Case> keep_zero_experts(const Case& c, const std::vector<std::int64_t>& positions);
std::optional<Case> keep_shared_experts(const Case& c, const std::vector<std::int64_t>& positions);
std::optional<Case> with_top_k(const Case& c, std::int64_t top_k);
// A smaller hash table. Generated: `size` tokens. Explicit: those that rows have, in the order of first use.
std::optional<Case> with_vocabulary(const Case& c, std::int64_t size);
std::optional<Case> with_used_vocabulary(const Case& c);
std::optional<Case> keep_columns(const Case& c, const std::vector<std::int64_t>& positions);

// The same tensors, given explicitly.
Case with_explicit_tensors(const Case& c);
// The case from its finished logits onwards.
Case from_finished_logits(const Case& c);

// Numbers in all tensors of the case.
std::int64_t count_numbers(const Case& c);

}  // namespace samebits::properties
