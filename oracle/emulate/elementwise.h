// The elementwise functions behind oracle/emulate/tc256.h, compiled twice because a fused multiply-add without the
// hardware instruction is a library call. Same bits either way.
#pragma once

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
};
extern const Functions portable;
extern const Functions hardware_fma;  // needs FMA3

}  // namespace samebits::oracle::elementwise
