// Compares the two oracles on many rows; kUsage says how.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

#include "oracle/second/test/compare/campaign.h"

namespace {

using namespace samebits;

constexpr const char* kUsage =
    "Compares the two oracles. Prints counts, and the differences in full; exit code 1 when there are any.\n"
    "  second_compare --cases N --seed S --shard i/n         N rows in all, of which shard i of n takes the i-th part\n"
    "  second_compare --case I --seed S                      one case\n"
    "  second_compare --full-size ROWS --seed S --shard i/n  rows of every spec at its own size\n";

struct Options {
  std::int64_t cases = 100000;
  std::int64_t single_case = -1;
  std::int64_t full_size_rows = 0;
  std::uint64_t seed = 1;
  std::int64_t shard = 0;
  std::int64_t shards = 1;
};

std::int64_t number(const std::string& option, const std::string& text, std::int64_t least = 0) {
  std::size_t end = 0;
  long long value = -1;
  try {
    value = std::stoll(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  if (end == 0 || end != text.size() || value < least) {
    throw std::invalid_argument(option + ": found '" + text + "'; allowed: an integer from " + std::to_string(least) +
                                " on");
  }
  return value;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (i + 1 >= argc) throw std::invalid_argument(option + ": found no value; write one after it");
    const std::string value = argv[i + 1];
    if (option == "--cases") {
      options.cases = number(option, value, 1);
    } else if (option == "--case") {
      options.single_case = number(option, value);
    } else if (option == "--full-size") {
      options.full_size_rows = number(option, value, 1);
    } else if (option == "--seed") {
      options.seed = static_cast<std::uint64_t>(number(option, value));
    } else if (option == "--shard") {
      const std::size_t slash = value.find('/');
      if (slash == std::string::npos)
        throw std::invalid_argument("--shard: found '" + value + "'; allowed: i/n, i < n");
      options.shard = number(option, value.substr(0, slash));
      options.shards = number(option, value.substr(slash + 1));
      if (options.shard >= options.shards) {
        throw std::invalid_argument("--shard: found '" + value + "'; allowed: i/n with 0 <= i < n");
      }
    } else {
      throw std::invalid_argument("found '" + option +
                                  "'; allowed: --cases, --case, --full-size, --seed, --shard, each with a value");
    }
  }
  return options;
}

volatile std::sig_atomic_t stop = 0;

// Adds what a case found, prints new differences, and from time to time the state.
class Progress {
 public:
  explicit Progress(const Options& options) : options_(options) {}

  void add(const second::Tally& tally) {
    for (const std::string& text : tally.differences) {
      if (printed_++ < 20) std::printf("DIFFERENT %s\n", text.c_str());
    }
    total_.add(tally);
    const auto elapsed = std::chrono::steady_clock::now() - last_;
    if (elapsed < std::chrono::seconds(30)) return;
    print("so far");
    last_ = std::chrono::steady_clock::now();
  }
  void print(const char* state) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
    std::printf("%s, seed %llu, shard %lld/%lld, %.1f s: %s", state, static_cast<unsigned long long>(options_.seed),
                static_cast<long long>(options_.shard), static_cast<long long>(options_.shards), seconds.count(),
                total_.text().c_str());
    std::fflush(stdout);
  }
  bool failed() const { return total_.num_different() > 0; }
  std::int64_t rows() const { return total_.rows; }

 private:
  const Options& options_;
  second::Tally total_;
  int printed_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_ = start_;
};

int run(const Options& options) {
  const std::vector<second::NamedSpec> specs = second::all_specs();
  const second::FirstOracle first;
  Progress progress(options);
  if (options.single_case >= 0) {
    progress.add(second::compare(first, second::reduced_case(specs, options.seed, options.single_case)));
  } else if (options.full_size_rows > 0) {
    const auto range = second::shard_range(std::ssize(specs), options.shard, options.shards);
    for (std::int64_t i = range.first; i < range.end && stop == 0; ++i) {
      const auto& spec = specs[static_cast<std::size_t>(i)];
      progress.add(second::compare(
          first, second::full_size_case(spec, options.seed + static_cast<std::uint64_t>(i), options.full_size_rows)));
    }
  } else {
    const std::int64_t count = (options.cases + second::kRowsOfCase - 1) / second::kRowsOfCase;
    const auto range = second::shard_range(count, options.shard, options.shards);
    for (std::int64_t i = range.first; i < range.end && stop == 0; ++i) {
      progress.add(second::compare(first, second::reduced_case(specs, options.seed, i)));
    }
  }
  progress.print(stop != 0 ? "stopped" : "finished");
  return progress.failed() || progress.rows() == 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto ask_to_stop = [](int) { stop = 1; };
  std::signal(SIGINT, ask_to_stop);
  std::signal(SIGTERM, ask_to_stop);
  if (argc == 2 && std::string(argv[1]) == "--help") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  try {
    return run(parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "second_compare: %s\n", error.what());
    return 2;
  }
}
