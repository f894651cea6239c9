// The two arithmetics in which the reference steps are written: float is the contract, double is the witness.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "oracle/emulate/fp32.h"
#include "oracle/emulate/tc256.h"
#include "oracle/tensors/bf16.h"

namespace samebits::oracle {

template <class Real>
struct ArithmeticOf;

template <>
struct ArithmeticOf<float> {
  static float nan() { return the_nan(); }
  static float one_nan(float x) { return oracle::one_nan(x); }
  static float add(float a, float b) { return fadd_rn(a, b); }
  static float sub(float a, float b) { return fsub_rn(a, b); }
  static float mul(float a, float b) { return fmul_rn(a, b); }
  static float div(float a, float b) { return fdiv_rn(a, b); }
  static float exp(float x) { return tc256::exp(x); }
  static float sigmoid(float x) { return tc256::sigmoid(x); }
  static float sqrt_softplus(float x) { return tc256::sqrt_softplus(x); }
  static float log(float x) { return tc256::log(x); }
  static float log1p(float x) { return tc256::log1p(x); }
  static void exp(std::span<const float> x, std::span<float> y) { tc256::exp(x, y); }
  static void sigmoid(std::span<const float> x, std::span<float> y) { tc256::sigmoid(x, y); }
  static void sqrt_softplus(std::span<const float> x, std::span<float> y) { tc256::sqrt_softplus(x, y); }
  static float sum(std::span<const float> values) { return tc256::sum32(values); }
  static float round_to_bf16(float x) { return oracle::round_to_bf16(x); }
};

template <>
struct ArithmeticOf<double> {
  static double nan() { return std::numeric_limits<double>::quiet_NaN(); }
  static double one_nan(double x) { return x; }
  static double add(double a, double b) { return a + b; }
  static double sub(double a, double b) { return a - b; }
  static double mul(double a, double b) { return a * b; }
  static double div(double a, double b) { return a / b; }
  static double exp(double x) { return std::exp(x); }
  static double sigmoid(double x) {
    if (x >= 0) return 1 / (1 + std::exp(-x));
    const double e = std::exp(x);
    return e / (1 + e);
  }
  static double sqrt_softplus(double x) {
    if (std::isnan(x)) return x;
    if (x < -700) return std::exp(x / 2);  // e^x leaves the normal range of double
    return std::sqrt(std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x))));
  }
  static double log(double x) { return std::log(x); }
  static double log1p(double x) { return std::log1p(x); }
  // The same of every value of x, into as many of y.
  static void exp(std::span<const double> x, std::span<double> y) {
    std::transform(x.begin(), x.end(), y.begin(), [](double value) { return exp(value); });
  }
  static void sigmoid(std::span<const double> x, std::span<double> y) {
    std::transform(x.begin(), x.end(), y.begin(), [](double value) { return sigmoid(value); });
  }
  static void sqrt_softplus(std::span<const double> x, std::span<double> y) {
    std::transform(x.begin(), x.end(), y.begin(), [](double value) { return sqrt_softplus(value); });
  }
  static double sum(std::span<const double> values) {
    double total = 0;
    for (const double value : values) total += value;
    return total;
  }
  static double round_to_bf16(double x);  // one rounding, ties to even, as from fp32
};

}  // namespace samebits::oracle
