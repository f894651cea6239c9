#include "oracle/second/exact_sum.h"

#include <gmp.h>

namespace samebits::second {

void ExactSum::get(mpfr_ptr out) const {
  mpz_t sum;
  mpz_init(sum);
  // From the greatest exponent down: sum = 2 sum + bin.
  for (int bin = last_; bin >= first_; --bin) {
    mpz_mul_2exp(sum, sum, 1);
    const std::int64_t value = bins_[static_cast<std::size_t>(bin)];
    if (value < 0) {
      mpz_sub_ui(sum, sum, static_cast<unsigned long>(-value));
    } else {
      mpz_add_ui(sum, sum, static_cast<unsigned long>(value));
    }
  }
  mpfr_set_z_2exp(out, sum, first_ + kLeastExponent, MPFR_RNDN);
  mpz_clear(sum);
}

}  // namespace samebits::second
