// The oracle that is compared with this one, as functions that a test can replace by faulty ones.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "oracle/emulate/prepared_input.h"
#include "oracle/emulate/tc256.h"
#include "oracle/reference/answer.h"
#include "oracle/second/functions.h"

namespace samebits::second {

struct FirstOracle {
  using Rows = std::span<const std::int64_t>;
  using Route = oracle::RowAnswer<float>(const oracle::RouterSpec&, std::span<const float>,
                                         const oracle::RowConstants&);

  // Finished logits [rows, G].
  std::function<std::vector<float>(const oracle::RouterSpec&, const oracle::RouterInputs&, Rows)> logits =
      oracle::tc256_logits;
  std::function<std::vector<std::uint16_t>(const oracle::RouterSpec&, const oracle::RouterInputs&, std::int64_t)>
      prepared_input = oracle::prepared_input;
  std::function<oracle::RowConstants(const oracle::RouterSpec&, const oracle::RouterInputs&, std::int64_t)>
      row_constants = oracle::row_constants;
  std::function<Route> route = static_cast<Route*>(oracle::route_row);
  std::function<oracle::Bookkeeping(std::span<const std::int64_t>, std::int64_t, std::int64_t, std::int64_t,
                                    std::int32_t)>
      bookkeeping = oracle::bookkeeping;
  // Its elementwise functions, whose values the second oracle is fed with.
  Fp32Functions functions = {oracle::tc256::exp,  oracle::tc256::sigmoid, oracle::tc256::sqrt_softplus,
                             oracle::tc256::tanh, oracle::tc256::log,     oracle::tc256::log1p};
};

}  // namespace samebits::second
