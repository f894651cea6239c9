// How far sums in each arithmetic lie from the exact one: the figures that made chunks of 256 the contract.
//
// x ~ N(0, 1) and w ~ N(0, 1/H), both rounded to bf16; the table was taken over 256 rows and 288 experts.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>

#include "oracle/emulate/arithmetic_model.h"
#include "oracle/tensors/bf16.h"
#include "oracle/test/emulate_inputs.h"

namespace samebits::oracle {
namespace {

constexpr std::int64_t kExperts = 288, kTableRows = 256;

// Root mean square, maximum and mean of (error * sign of the logit) over the errors of one method.
struct Figures {
  double rms, max, bias;
};
struct Line {
  const char* model;
  Figures printed[2];  // hidden sizes 4096 and 7168, two digits each
  std::int64_t table_rows = kTableRows;
};
const Line kTable[] = {
    {"exact", {{2.5e-8, 1.2e-7, 0}, {2.5e-8, 1.2e-7, 0}}},
    {"fp32-fma-sequential", {{6.1e-7, 7.4e-6, 0}, {8.7e-7, 9.4e-6, 0}}},
    {"fp32-fma-chains:8", {{1.7e-7, 1.2e-6, 0}, {2.3e-7, 1.8e-6, 0}}},
    {"fp32-fma-slices:256", {{7.8e-8, 4.1e-7, 0}, {8.3e-8, 4.3e-7, 0}}},
    {"tc-chain", {{4.4e-6, 2.0e-5, -3.0e-6}, {7.9e-6, 3.4e-5, -5.3e-6}}},
    {"tc-chunks:64", {{1.6e-7, 1.4e-6, -4.0e-8}, {2.0e-7, 2.0e-6, -3.9e-8}}},
    {"tc-chunks:128", {{1.6e-7, 1.3e-6, -7.5e-8}, {1.8e-7, 1.4e-6, -7.6e-8}}},
    {"tc256", {{2.4e-7, 1.4e-6, -1.5e-7}, {2.5e-7, 1.8e-6, -1.5e-7}}},
    {"tc-chunks-tree:256", {{2.3e-7, 1.2e-6, -1.5e-7}, {2.4e-7, 1.2e-6, -1.5e-7}}},
    {"tc-chunks:512", {{4.7e-7, 2.6e-6, -3.2e-7}, {4.8e-7, 2.5e-6, -3.2e-7}}},
    {"tc-chunks:1024", {{9.9e-7, 5.2e-6, -6.8e-7}, {9.9e-7, 4.7e-6, -6.8e-7}}},
    {"tc-chain@sm_80", {{5.2e-6, 2.3e-5, -3.4e-6}, {9.8e-6, 3.8e-5, -6.6e-6}}, 8},
    {"exact+bf16-logits", {{1.7e-3, 7.8e-3, 0}, {1.7e-3, 7.8e-3, 0}}},
};

RouterInputs normal_inputs(std::int64_t rows, std::int64_t hidden) {
  std::mt19937_64 random(static_cast<std::uint64_t>(hidden));
  std::normal_distribution<double> normal;
  const double scale = 1 / std::sqrt(static_cast<double>(hidden));
  RouterInputs inputs;
  inputs.num_tokens = rows;
  inputs.hidden_size = hidden;
  inputs.gate_rows = kExperts;
  for (std::int64_t i = 0; i < kExperts * hidden; ++i) {
    inputs.gate_weight_bf16.push_back(fp32_to_bf16(static_cast<float>(normal(random) * scale)));
  }
  for (std::int64_t i = 0; i < rows * hidden; ++i) {
    inputs.hidden_states.push_back(fp32_to_bf16(static_cast<float>(normal(random))));
  }
  return inputs;
}

// In double: its error, H * 2^-53 of the sum of magnitudes at the most, is below 1e-9 of every figure of the table.
std::vector<double> exact_logits(const RouterInputs& inputs) {
  const std::size_t hidden = static_cast<std::size_t>(inputs.hidden_size);
  std::vector<double> logits;
  for (std::size_t x = 0; x < inputs.hidden_states.size(); x += hidden) {
    for (std::size_t w = 0; w < inputs.gate_weight_bf16.size(); w += hidden) {
      double sum = 0;
      for (std::size_t k = 0; k < hidden; ++k) {
        sum += static_cast<double>(bf16_to_fp32(inputs.hidden_states[x + k])) *
               static_cast<double>(bf16_to_fp32(inputs.gate_weight_bf16[w + k]));
      }
      logits.push_back(sum);
    }
  }
  return logits;
}

// The variance that the mean of values [rows][experts] has as an estimate, and that of such a mean over `table_rows`.
// Errors of one row share x and errors of one expert share w, so the means of rows, and those of experts, are the
// independent samples; the sum of both variances is an upper bound of the variance of the mean.
struct Mean {
  double value, variance, table_variance;
};
Mean mean_of(const std::vector<double>& values, std::int64_t table_rows) {
  const std::size_t experts = kExperts, rows = values.size() / experts;
  std::vector<double> of_row(rows), of_expert(experts);
  double mean = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    mean += values[i] / static_cast<double>(values.size());
    of_row[i / experts] += values[i] / static_cast<double>(experts);
    of_expert[i % experts] += values[i] / static_cast<double>(rows);
  }
  const auto variance = [mean](const std::vector<double>& means) {
    double sum = 0;
    for (const double m : means) sum += (m - mean) * (m - mean);
    return sum / static_cast<double>(means.size() - 1);
  };
  const double row_variance = variance(of_row), expert_variance = variance(of_expert);
  const double table = static_cast<double>(table_rows);
  // The means of experts over more rows vary less; taking them as they are keeps the bound.
  return {mean, row_variance / static_cast<double>(rows) + expert_variance / static_cast<double>(experts),
          row_variance / table + expert_variance / static_cast<double>(experts)};
}

// Half of the second digit.
double half_digit(double printed) {
  return printed == 0 ? 0 : 0.5 * std::pow(10.0, std::floor(std::log10(std::fabs(printed))) - 1);
}

void expect_figures(const Line& line, const Figures& printed, const std::vector<float>& logits,
                    const std::vector<double>& exact) {
  std::vector<double> squares, signed_errors, errors;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double error = static_cast<double>(logits[i]) - exact[i];
    squares.push_back(error * error);
    signed_errors.push_back(exact[i] < 0 ? -error : error);
    errors.push_back(std::fabs(error));
  }
  // Six standard deviations of the difference of two independent estimates, and the rounding of the print.
  const Mean square = mean_of(squares, line.table_rows);
  const double rms = std::sqrt(square.value);
  const double rms_deviation = std::sqrt(square.variance + square.table_variance) / (2 * rms);
  EXPECT_NEAR(rms, printed.rms, 6 * rms_deviation + half_digit(printed.rms)) << line.model;
  const Mean bias = mean_of(signed_errors, line.table_rows);
  EXPECT_NEAR(bias.value, printed.bias, 6 * std::sqrt(bias.variance + bias.table_variance) + half_digit(printed.bias))
      << line.model;

  // Of n + N errors in random order, k or more of our n exceed all N of the table with probability (n / (n + N))^k.
  const double n = static_cast<double>(errors.size()), table_n = static_cast<double>(line.table_rows * kExperts);
  const double most = std::log(1e-9) / std::log(n / (n + table_n));
  std::sort(errors.begin(), errors.end());
  const auto above =
      errors.end() - std::upper_bound(errors.begin(), errors.end(), printed.max + half_digit(printed.max));
  EXPECT_LT(static_cast<double>(above), most) << line.model << ": errors above the maximum of the table";
  // Tails that fall exponentially with some scale b, or faster: the maximum of N errors is above b (ln N + 21) with a
  // probability below e^-21, and the maximum of n is below b ln(n / 21) with a probability below e^-21.
  const double ratio = (std::log(table_n) + 21) / std::log(n / 21);
  EXPECT_GT(errors.back(), (printed.max - half_digit(printed.max)) / ratio) << line.model << ": largest error";
}

class Accuracy : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(HiddenSizes, Accuracy, testing::Range(0, 2));

TEST_P(Accuracy, OfEachMethodIsThatOfTheTable) {
  const bool all_rows_of_table = std::getenv("SAMEBITS_EXHAUSTIVE") != nullptr;
  const std::int64_t rows = all_rows_of_table ? kTableRows : 32;
  const RouterInputs inputs = normal_inputs(rows, GetParam() == 0 ? 4096 : 7168);
  const std::vector<double> exact = exact_logits(inputs);
  for (const Line& line : kTable) {
    std::vector<std::int64_t> taken = test::all_rows(inputs);
    taken.resize(static_cast<std::size_t>(std::min(rows, line.table_rows)));
    const std::vector<float> logits = emulate_logits(arithmetic_model(line.model), {}, inputs, taken);
    expect_figures(line, line.printed[GetParam()], logits, exact);
  }
}

}  // namespace
}  // namespace samebits::oracle
