// The index of recorded runs that fixtures/golden/live.py writes.
#pragma once

#include <filesystem>
#include <vector>

#include "harness/witness/compare.h"

namespace samebits::harness {

// All runs of INDEX.yaml, their files beside it. Throws FileError when it cannot be read, names no run, or has a field
// that is unknown, missing or of another type.
std::vector<RecordedRun> read_index(const std::filesystem::path& path);

}  // namespace samebits::harness
