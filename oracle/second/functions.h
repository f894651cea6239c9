// The elementwise functions of a router, in two readings.
#pragma once

#include "oracle/second/ball.h"

namespace samebits::second {

struct Functions {
  virtual ~Functions() = default;
  virtual Ball exp(const Ball& x) const = 0;
  virtual Ball sigmoid(const Ball& x) const = 0;
  virtual Ball sqrt_softplus(const Ball& x) const = 0;  // sqrt(log(1 + e^x))
  virtual Ball tanh(const Ball& x) const = 0;
  virtual Ball log(const Ball& x) const = 0;
  virtual Ball log1p(const Ball& x) const = 0;
};

// The mathematical functions. Their radius is what the error of the argument makes of the result, and the largest error
// of the contract's functions (docs/contract.md), which sweeps over all 2^32 inputs give.
const Functions& published_functions();

// fp32 functions of somebody else, taken as they are; the arguments must be exact. With these every operation is exact,
// so that what remains to be compared is everything but the bits of these functions.
struct Fp32Functions {
  using Function = float (*)(float);
  Function exp, sigmoid, sqrt_softplus, tanh, log, log1p;
};

class FedFunctions final : public Functions {
 public:
  explicit FedFunctions(const Fp32Functions& functions) : functions_(functions) {}

  Ball exp(const Ball& x) const override;
  Ball sigmoid(const Ball& x) const override;
  Ball sqrt_softplus(const Ball& x) const override;
  Ball tanh(const Ball& x) const override;
  Ball log(const Ball& x) const override;
  Ball log1p(const Ball& x) const override;

 private:
  Fp32Functions functions_;
};

}  // namespace samebits::second
