// What the gate may read of a row: the values [H] that a prepared input can be rounded to.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "oracle/exact/declared_arithmetic.h"
#include "oracle/spec/router_spec.h"
#include "oracle/tensors/router_inputs.h"

namespace samebits::oracle {

// Value k lies within its radius of middle[k]; those that are not listed as uncertain are middle[k] exactly.
struct InputBounds {
  struct Uncertain {
    std::size_t k;
    double radius;
  };
  std::vector<double> middle;
  std::vector<Uncertain> uncertain;

  // How far the dot product of the row with `w` [H] may lie from that of the middles.
  double spread(std::span<const double> w) const;
};

// Without norm, vector and scale: the hidden states, which may be NaN or Inf. With them: for tc256 the bits of the
// contract; for other arithmetics, whose norm may add in another order, every bf16 neighbour in reach.
// nullopt: a step may not be finite, so that nothing is claimed about the row.
std::optional<InputBounds> input_bounds(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row,
                                        const Arithmetic& arithmetic);
// The same for the published formula with one rounding to bf16 at its end; uncertain where double cannot tell to which
// neighbour.
std::optional<InputBounds> exact_input(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row);

}  // namespace samebits::oracle
