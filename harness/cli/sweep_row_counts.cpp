// samebits sweep: one pool of rows at every row count at which routers change their kernels. The oracle's answers are
// computed once; every call reads a prefix or a permutation of the pool.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "harness/cli/interrupt.h"
#include "harness/cli/output.h"
#include "harness/cli/sweep.h"
#include "harness/io/files.h"
#include "harness/report/case_text.h"
#include "properties/generate.h"

namespace samebits::harness {
namespace {

using oracle::RouterInputs;
using properties::Case;
using properties::HiddenFamily;
using properties::RunRequest;

// At and around the edges of tiles and the row counts that public dispatchers ask for.
constexpr std::int64_t kRowCounts[] = {1,    2,    3,    4,    5,    7,    8,    9,    15,    16,    17,   31,   32,
                                       33,   48,   49,   63,   64,   65,   80,   96,   112,   116,   117,  127,  128,
                                       129,  192,  193,  255,  256,  257,  511,  512,  513,   1023,  1024, 1025, 2047,
                                       2048, 2049, 4095, 4096, 4097, 8191, 8192, 8193, 65535, 65536, 65537};

constexpr std::int64_t kCountsWithoutLogits[] = {1, 17, 33, 65, 112, 300};

// Those that need no run of another kind (a repeated call, padding, replaced rows): `fuzz` has these.
constexpr const char* kLaws[] = {"termination", "buffers",    "batch_invariance", "unique_in_range", "non_finite",
                                 "precision",   "selection",  "hash_routing",     "order",           "weights",
                                 "sum",         "bookkeeping"};

// Every second row is normal, the others are of all other families in turn; every 97th row has a NaN or an Inf.
RouterInputs make_pool(const Case& c) {
  constexpr HiddenFamily kFamilies[] = {
      HiddenFamily::kOrderSensitive, HiddenFamily::kSmallInteger, HiddenFamily::kWideExponent, HiddenFamily::kSubnormal,
      HiddenFamily::kUnitRows,       HiddenFamily::kFewTerms,     HiddenFamily::kZero};
  constexpr std::int64_t kNumFamilies = std::size(kFamilies);
  constexpr std::uint16_t kNonFinite[] = {0x7fc0, 0x7f80, 0xff80};
  Case normal = c;
  normal.description.hidden = HiddenFamily::kNormal;
  RouterInputs pool = properties::materialize(normal);
  const std::int64_t rows = pool.num_tokens, width = pool.hidden_size;
  for (std::int64_t f = 0; f < kNumFamilies; ++f) {
    Case family = c;
    family.description.hidden = kFamilies[f];
    family.description.num_tokens = rows / (2 * kNumFamilies) + 1;
    const RouterInputs block = properties::materialize(family);
    for (std::int64_t i = 0; i < block.num_tokens; ++i) {
      const std::int64_t row = 2 * (i * kNumFamilies + f) + 1;
      if (row < rows)
        std::copy_n(block.hidden_states.begin() + i * width, width, pool.hidden_states.begin() + row * width);
    }
  }
  for (std::int64_t row = 96; row < rows; row += 97) {
    pool.hidden_states[static_cast<std::size_t>(row * width + row * 31 % width)] = kNonFinite[row / 97 % 3];
  }
  return pool;
}

std::vector<RunRequest> plan(std::int64_t pool_rows, const properties::Claims& claims) {
  std::int64_t step = pool_rows / 2 + 1;
  while (std::gcd(step, pool_rows) != 1) ++step;
  std::vector<RunRequest> requests;
  const auto add = [&](std::string id, std::int64_t count, bool permuted) {
    RunRequest request;
    request.id = std::move(id);
    for (std::int64_t i = 0; i < count; ++i) {
      request.rows.push_back(permuted ? (count + i * step) % pool_rows : i);
    }
    request.want_logits = claims.returns_logits;
    request.want_bookkeeping = claims.returns_bookkeeping;
    if (request.want_bookkeeping) request.block_size = requests.size() % 2 == 0 ? 16 : 64;
    requests.push_back(std::move(request));
  };
  add("main", pool_rows, false);
  for (const std::int64_t count : kRowCounts) {
    if (count > pool_rows) break;
    const bool permuted = requests.size() % 2 == 0 || count == pool_rows;
    add(fmt::format("{}/{}", permuted ? "permuted" : "prefix", count), count, permuted);
  }
  // Another kernel may run where nobody wants the logits.
  for (const std::int64_t count : kCountsWithoutLogits) {
    if (!claims.returns_logits || count > pool_rows) break;
    add(fmt::format("without_logits/{}", count), count, true);
    requests.back().want_logits = false;
  }
  return requests;
}

}  // namespace

int sweep_row_counts(const SweepOptions& options, const std::string& program) {
  const ChosenSpec spec = resolve_runnable_spec(options.spec);
  if (!options.json.empty()) check_writable_file(options.json);
  const std::unique_ptr<properties::Subject> subject = open(options.backend);

  const std::vector<std::string> laws =
      options.laws.empty() ? std::vector<std::string>{std::begin(kLaws), std::end(kLaws)} : options.laws;
  Campaign campaign(sweep_header(options, spec, *subject), laws);
  Progress progress(progress_mode(options.progress));

  // The first directed case: logits whose bits depend on the order of additions. With an even seed normal weights, and
  // so logits of usual size.
  CaseFile file;
  file.c = properties::generate_case(spec.name, spec.variant, spec.spec, options.seed, 0, {});
  if (options.seed % 2 == 0) file.c.description.weight = properties::WeightFamily::kNormal;
  file.c.description.hazard = "row_counts";
  const std::int64_t max_tokens = subject->claims().max_tokens;
  file.c.description.num_tokens = max_tokens > 0 ? std::min(options.rows, max_tokens) : options.rows;
  file.full_spec = spec.spec;
  file.layer = spec.layer;
  if (const auto reason = subject->unsupported(file.c.spec)) {
    campaign.skip(*reason);
  } else {
    const std::vector<RunRequest> requests = plan(file.c.description.num_tokens, subject->claims());
    progress.update(
        fmt::format("sweep {} on {}: {} row counts", spec.name, options.backend.name(), requests.size() - 1));
    const CaseRuns runs = within_memory([&] { return "a case of " + case_sizes(file.c); },
                                        [&] {
                                          CaseRuns made;
                                          made.inputs = make_pool(file.c);
                                          made.runs = subject->run(file.c, made.inputs, requests);
                                          return made;
                                        });
    campaign.add(file, runs);
  }
  progress.clear();
  Report report = campaign.finish(interrupted());
  for (const FirstFailure& first : campaign.first_failures()) {
    Failure failure;
    failure.violation = first.violation;
    failure.original_summary = first.violation.summary;
    failure.shrunk = first.file.c;
    failure.repro = fmt::format("{} sweep --spec {} {} --seed {} --rows {}", shell_word(program), shell_word(spec.name),
                                options.backend.words(), options.seed, options.rows);
    report.failures.push_back(std::move(failure));
  }
  publish(report, options.json);
  return exit_code(report);
}

}  // namespace samebits::harness
