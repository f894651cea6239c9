// The laws, one file each; a file's name is the law's id.
#pragma once

#include "properties/law.h"

namespace samebits::properties {

extern const Law kTermination, kBuffers, kRunToRun, kBatchInvariance, kFiniteIsolated;
extern const Law kUniqueInRange, kPadding, kNonFinite;
extern const Law kTotalDispatch, kLayout, kHistory, kOrdering, kDeviceHealth, kMetamorphic;
extern const Law kPrecision, kSelection, kHashRouting, kOrder, kWeights, kSum, kBookkeeping;

}  // namespace samebits::properties
