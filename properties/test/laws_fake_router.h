// Routers for the tests of the laws: the oracle itself, with one planted fault or none, and an honest router that
// computes in another way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "properties/judge.h"
#include "properties/run.h"

namespace samebits::properties {

inline std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

// Sigmoid router with selection bias, L1 renormalisation and scale 2.5: E = 16, K = 4, H = 64.
oracle::RouterSpec small_spec();
// The same with 4 groups of 4, 2 of them kept (best two, mask -inf).
oracle::RouterSpec grouped_spec();
// N(0, 1) data, a bias near 11.5.
Case small_case(const oracle::RouterSpec& spec, std::int64_t num_tokens, std::uint64_t data_key = 1);
// E logits a row and no gate weight.
Case logits_case(const oracle::RouterSpec& spec, const std::vector<std::vector<float>>& rows,
                 const std::vector<float>& bias);

Claims contract_claims();  // tc256, batch invariant, lowest index, ordered, logits and bookkeeping
Claims bounded_claims();   // fp32-any-order, batch invariant, lowest index, ordered, logits

// What a router does to one run after the right answer was computed.
using Fault = std::function<void(const RunRequest&, const oracle::RouterInputs&, RunResult&)>;

class FakeRouter : public Subject {
 public:
  enum class Kind {
    kOracle,      // the contract, bit for bit
    kPlainFp32,   // sums of 4 fp32 lanes, std::exp, selection and weights of its own
    kDouble,      // double precision, rounded at the end
    kBf16Logits,  // kPlainFp32 with logits rounded to bf16
  };
  explicit FakeRouter(Claims claims, Fault fault = {}, Kind kind = Kind::kOracle)
      : claims_(std::move(claims)), fault_(std::move(fault)), kind_(kind) {}

  // The fault of the constructor is in runs of at least one row that ask the router of the case; this one in answers of
  // derived routers and in refusals of wrong calls.
  void plant_in_special(Fault fault) { special_fault_ = std::move(fault); }

  const Claims& claims() const override { return claims_; }
  std::optional<std::string> unsupported(const oracle::RouterSpec&) override { return std::nullopt; }
  std::vector<Run> run(const Case& c, const oracle::RouterInputs& inputs,
                       const std::vector<RunRequest>& requests) override;

 private:
  Claims claims_;
  Fault fault_, special_fault_;
  Kind kind_;
};

// The violation of `law` on this case, if any. judge_case().relevant tells whether the law had a chance.
LawOutcome judge_case(const Case& c, Subject& router, const std::string& law);
// Ids of the laws that were broken.
std::vector<std::string> broken_laws(const Case& c, Subject& router);

}  // namespace samebits::properties
