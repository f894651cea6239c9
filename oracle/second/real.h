// One MPFR number that holds its own digits, so that it is copied and moved like any value, without allocations.
#pragma once

#include <mpfr.h>

namespace samebits::second {

// Bits of an inexact intermediate value. Below 128, MPFR works on two limbs without a loop.
inline constexpr mpfr_prec_t kWorkingBits = 120;

class Real {
 public:
  explicit Real(mpfr_prec_t bits = kWorkingBits) { initialize(bits); }
  Real(const Real& other) {
    initialize(mpfr_get_prec(other.value_));
    mpfr_set(value_, other.value_, MPFR_RNDN);
  }
  Real& operator=(const Real& other) {
    if (this == &other) return *this;
    initialize(mpfr_get_prec(other.value_));
    mpfr_set(value_, other.value_, MPFR_RNDN);
    return *this;
  }

  operator mpfr_ptr() { return value_; }
  operator mpfr_srcptr() const { return value_; }

 private:
  void initialize(mpfr_prec_t bits) {
    mpfr_custom_init(limbs_, bits);
    mpfr_custom_init_set(value_, MPFR_ZERO_KIND, 0, bits, limbs_);
  }

  mpfr_t value_;
  mp_limb_t limbs_[(kWorkingBits + GMP_NUMB_BITS - 1) / GMP_NUMB_BITS];
};

}  // namespace samebits::second
