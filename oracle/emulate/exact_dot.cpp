#include "oracle/emulate/exact_dot.h"

#include <cmath>

#include "oracle/emulate/exact_sum.h"
#include "oracle/emulate/fp32.h"

namespace samebits::oracle {
float exact_dot(std::span<const float> x, std::span<const float> w) {
  ExactSum sum;
  double special = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double product = static_cast<double>(x[i]) * static_cast<double>(w[i]);
    if (!std::isfinite(product)) {
      special += product;
    } else {
      sum.add(product);
    }
  }
  if (special != 0 || special != special) return one_nan(static_cast<float>(special));
  return static_cast<float>(sum.rounded_to_odd());
}

}  // namespace samebits::oracle
