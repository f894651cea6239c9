// The elementwise functions behind oracle/emulate/tc256.h, compiled once per instruction set: a fused multiply-add
// without the hardware instruction is a library call, and with AVX-512 the compiler makes vectors of the loops over
// many values. Same bits whichever is taken.
#pragma once

#include <cstddef>
#include <span>

namespace samebits::oracle::elementwise {

struct Functions {
  float (*exp)(float);
  float (*sigmoid)(float);
  float (*softplus)(float);
  float (*sqrt_softplus)(float);
  float (*tanh)(float);
  float (*log)(float);
  float (*log1p)(float);
  float (*rsqrt)(float);
  // y[i] of x[i] for the n values of a row; x and y have no element in common.
  void (*exp_all)(const float* x, std::size_t n, float* y);
  void (*sigmoid_all)(const float* x, std::size_t n, float* y);
  void (*sqrt_softplus_all)(const float* x, std::size_t n, float* y);
};
extern const Functions portable;
extern const Functions hardware_fma;     // needs FMA3
extern const Functions hardware_avx512;  // needs FMA3 and AVX-512 F, BW, DQ and VL

// The tables that this CPU can run, the fastest first.
struct Isa {
  const char* name;
  const Functions* functions;
};
std::span<const Isa> available_isas();

}  // namespace samebits::oracle::elementwise
