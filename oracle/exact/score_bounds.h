// Where a score can lie when its logits lie in intervals.
#pragma once

#include <span>
#include <vector>

#include "oracle/exact/interval.h"
#include "oracle/spec/router_spec.h"

namespace samebits::oracle {

// Relative error of e^x: 2 ulp, and the rounding of its argument (x - max, or x log2(e) for exp2), which moves the
// result by |x| u. The fast __expf of CUDA has 2 + 1.173 |x| ulp (CUDA C++ Programming Guide, intrinsic functions),
// which is the larger.
inline double exp_error(double x, const Steps& steps) {
  return (4.0 + 2.4 * std::fabs(x)) * steps.unit;
}
// 2 ulp for an approximate reciprocal with its product.
inline double division_error(const Steps& steps) {
  return 4.0 * steps.unit;
}

// A value of the spec's type: rounded to bf16, or by a router that declares a bound perhaps not.
Interval stored(Interval value, FloatType dtype, const Steps& steps);

// Finished scores of finite logits: of the R experts that compete before selection, or of the slots after it. A softmax
// runs over all that are given.
std::vector<Interval> score_bounds(const RouterSpec::Score& spec, std::span<const Interval> logits, const Steps& steps);

// The logarithm of a sigmoid, min(x, 0) - log1p(e^-|x|); grows with x.
Interval log_sigmoid_bounds(Interval x, const Steps& steps);

}  // namespace samebits::oracle
