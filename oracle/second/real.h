// One MPFR number, released with its owner.
#pragma once

#include <mpfr.h>

namespace samebits::second {

// Bits of an inexact intermediate value. Below 128, MPFR works on two limbs without a loop.
inline constexpr mpfr_prec_t kWorkingBits = 120;

class Real {
 public:
  explicit Real(mpfr_prec_t bits = kWorkingBits) {
    mpfr_init2(value_, bits);
    mpfr_set_zero(value_, 1);
  }
  Real(const Real& other) {
    mpfr_init2(value_, mpfr_get_prec(other.value_));
    mpfr_set(value_, other.value_, MPFR_RNDN);
  }
  Real(Real&& other) noexcept : Real(MPFR_PREC_MIN) { mpfr_swap(value_, other.value_); }
  Real& operator=(const Real& other) {
    if (this == &other) return *this;
    mpfr_set_prec(value_, mpfr_get_prec(other.value_));
    mpfr_set(value_, other.value_, MPFR_RNDN);
    return *this;
  }
  Real& operator=(Real&& other) noexcept {
    mpfr_swap(value_, other.value_);
    return *this;
  }
  ~Real() { mpfr_clear(value_); }

  operator mpfr_ptr() { return value_; }
  operator mpfr_srcptr() const { return value_; }

 private:
  mpfr_t value_;
};

}  // namespace samebits::second
