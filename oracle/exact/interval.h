// Closed intervals of real numbers, their ends in double, and the roundings that they pass through.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

#include "oracle/reference/arithmetic.h"
#include "oracle/tensors/bf16.h"

namespace samebits::oracle {

struct Interval {
  double lower = 0.0;
  double upper = 0.0;
  bool contains(double value) const { return lower <= value && value <= upper; }
  bool is_point() const { return lower == upper; }
};

inline constexpr Interval kUnbounded{-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
inline constexpr Interval kNothingClaimed{1.0, 0.0};  // of a value that may be NaN or Inf

// An infinite end stays where it is.
inline Interval widened(Interval interval, double relative, double absolute) {
  const auto slack = [&](double end) { return std::isinf(end) ? 0.0 : std::fabs(end) * relative + absolute; };
  return {interval.lower - slack(interval.lower), interval.upper + slack(interval.upper)};
}

inline Interval non_negative(Interval interval) {
  return {std::max(interval.lower, 0.0), std::max(interval.upper, 0.0)};
}

inline Interval hull(Interval a, Interval b) {
  return {std::min(a.lower, b.lower), std::max(a.upper, b.upper)};
}

// The largest absolute value.
inline double magnitude(Interval interval) {
  return std::max(std::fabs(interval.lower), std::fabs(interval.upper));
}

// False for kNothingClaimed and for NaN ends too.
inline bool finite_in_fp32(Interval interval) {
  return interval.lower <= interval.upper && magnitude(interval) <= static_cast<double>(FLT_MAX);
}

// fp32 or bf16 values that rounding to nearest makes of the fp32 values in an interval. Rounding is monotone, so the
// ends suffice, and an end in double may be rounded to fp32 first: no fp32 value of the interval lies beyond it then.
inline Interval rounded_to_fp32(Interval interval) {
  return {static_cast<double>(static_cast<float>(interval.lower)),
          static_cast<double>(static_cast<float>(interval.upper))};
}
inline Interval rounded_to_bf16(Interval interval) {
  return {static_cast<double>(round_to_bf16(static_cast<float>(interval.lower))),
          static_cast<double>(round_to_bf16(static_cast<float>(interval.upper)))};
}

// How a value follows from exact or bounded operands: by fp32 operations of a router that declares a bound, or by the
// published formula itself, evaluated in double.
struct Steps {
  double unit;      // relative error of one rounding to nearest
  double flush;     // what a result may lose because it is too small to be a normal number
  double vanishes;  // an exponential below leads to a score of 0: see score_bounds.cpp
  bool formula;     // a rounding that the spec asks for takes place; else the router may also leave it out
};
inline constexpr Steps kFp32Steps{0x1p-24, 0x1p-126, 0x1p-152, false};
inline constexpr Steps kFormula{0x1p-53, 0x1p-1022, 0.0, true};

// The rounding to bf16 of such a value: of a fp32 value, or of a real number.
inline Interval rounded_to_bf16(Interval interval, const Steps& steps) {
  if (!steps.formula) return rounded_to_bf16(interval);
  return {ArithmeticOf<double>::round_to_bf16(interval.lower), ArithmeticOf<double>::round_to_bf16(interval.upper)};
}

}  // namespace samebits::oracle
