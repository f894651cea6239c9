// Include before any Highway header. Highway 1.0.3's MulAdd has two roundings on SSSE3 and SSE4, and none of the code
// here needs a vector target below AVX2, so CPUs without AVX2 run plain C++ with std::fma's rounding instead; vectors
// of unknown length are left out because tiles have a fixed width.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
