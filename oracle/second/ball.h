// Arithmetic on values that are known up to an error, with the roundings of fp32 and bf16 (to nearest even, subnormals
// kept). A ball holds what an fp32 computation returns: some number within `radius` of `center`. Radius 0 is the fp32
// value itself, so on exact operands every operation here is the rounded operation, bit for bit; on others it is the
// operation over the reals with a bound of all the errors that a computation in fp32 adds.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "oracle/second/real.h"

namespace samebits::second {

struct Ball {
  Real center;
  double radius = 0;  // +Inf: nothing is known. NaN and infinities have radius 0
};

inline constexpr double kUnknown = std::numeric_limits<double>::infinity();

// Unit roundoff of fp32.
inline constexpr double kUnit = 0x1p-24;

// A floating-point format: digits of the significand, and the exponent e of its least number 2^(e - 1).
struct Format {
  int digits;
  int least_exponent;
};
inline constexpr Format kFp32{24, -148};
inline constexpr Format kBf16{8, -132};

Ball exact(float value);
Ball exact_bf16(std::uint16_t bits);
Ball unknown();
bool is_exact(const Ball& a);
bool is_unknown(const Ball& a);
bool is_nan(const Ball& a);
bool is_positive_infinity(const Ball& a);
bool is_negative_infinity(const Ball& a);
bool is_finite(const Ball& a);
// The fp32 value of an exact ball; NaN is 0x7fffffff.
float to_float(const Ball& a);
// Upper bound of |center| + radius.
double magnitude(const Ball& a);

// One rounding to a format. Where both ends of the ball round to one number, the result is exact.
Ball rounded(Ball value, const Format& format);
// A ball that comes from mathematics rather than from a rounded operation: `center` is correct to the working
// precision, `radius` bounds the error of fp32.
Ball with_error(const Real& center, double radius);

// Single operations, rounded to fp32.
Ball add(const Ball& a, const Ball& b);
Ball subtract(const Ball& a, const Ball& b);
Ball multiply(const Ball& a, const Ball& b);
Ball divide(const Ball& a, const Ball& b);
Ball square_root(const Ball& a);

// Without rounding.
Ball negated(Ball a);
Ball absolute(Ball a);
Ball maximum(const Ball& a, const Ball& b);  // neither may be NaN; of zeros, either
Ball minimum(const Ball& a, const Ball& b);

// Left fold of rounded additions, starting with the first term; +0 without terms.
Ball left_fold(const std::vector<Ball>& terms);
// Term i belongs to lane i mod 32, each lane is folded from the left, then lanes at distance 16, 8, 4, 2, 1 are added.
Ball sum32(const std::vector<Ball>& terms);

}  // namespace samebits::second
