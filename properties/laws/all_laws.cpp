#include "properties/laws/laws.h"

namespace samebits::properties {

std::span<const Law> all_laws() {
  static const Law laws[] = {
      kTermination, kTotalDispatch, kBuffers,     kRunToRun,     kBatchInvariance, kFiniteIsolated,
      kLayout,      kHistory,       kOrdering,    kDeviceHealth, kUniqueInRange,   kPadding,
      kNonFinite,   kMetamorphic,   kPrecision,   kSelection,    kHashRouting,     kOrder,
      kWeights,     kSum,           kBookkeeping,
  };
  return laws;
}

const Law* find_law(const std::string& id) {
  for (const Law& law : all_laws()) {
    if (id == law.id) return &law;
  }
  return nullptr;
}

}  // namespace samebits::properties
