#include "properties/boundaries.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <set>

namespace samebits::properties {
namespace {

constexpr std::int64_t kEveryCount = 33;

using Bits = std::vector<std::uint32_t>;

// What one run says: the kind of the row's bits at each place.
using Kinds = std::vector<std::int64_t>;

std::vector<BitRange> ranges(std::int64_t first, const Kinds& kinds) {
  std::vector<BitRange> result;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const std::int64_t position = first + static_cast<std::int64_t>(i);
    if (!result.empty() && result.back().kind == kinds[i]) {
      result.back().last = position;
    } else {
      result.push_back({position, position, kinds[i]});
    }
  }
  return result;
}

class Search {
 public:
  Search(Subject& subject, const Case& c, const oracle::RouterInputs& inputs, std::int64_t row)
      : subject_(subject), c_(c), inputs_(inputs), row_(row) {}

  // The kind in the first place; -1 when the run did not end well.
  std::int64_t kind_at(std::int64_t count) {
    const auto known = first_place_.find(count);
    if (known != first_place_.end()) return known->second;
    const Kinds kinds = run(count);
    const std::int64_t kind = kinds.empty() ? -1 : kinds.front();
    first_place_[count] = kind;
    if (!kinds.empty() && std::any_of(kinds.begin(), kinds.end(), [&](std::int64_t k) { return k != kind; })) {
      if (place_count == 0 || count < place_count) {
        place_count = count;
        places = ranges(0, kinds);
      }
    }
    return kind;
  }

  // Every change between two counts whose bits differ. The middle may have bits of a third kind.
  void bisect(std::int64_t below, std::int64_t above) {
    if (!failure.empty() || above - below < 2 || kind_at(below) == kind_at(above)) return;
    const std::int64_t middle = below + (above - below) / 2;
    if (kind_at(middle) < 0) return;
    bisect(below, middle);
    bisect(middle, above);
  }

  const std::map<std::int64_t, std::int64_t>& first_place() const { return first_place_; }

  std::int64_t runs = 0, place_count = 0;
  std::vector<BitRange> places;
  std::string failure;

 private:
  Kinds run(std::int64_t count) {
    RunRequest request;
    request.id = "copies/" + std::to_string(count);
    request.rows.assign(static_cast<std::size_t>(count), row_);
    request.want_logits = subject_.claims().returns_logits;
    ++runs;
    const std::vector<Run> made = subject_.run(c_, inputs_, {request});
    const RunResult& result = made.front().result;
    const auto rows = static_cast<std::size_t>(count);
    const oracle::RouterOutputs& out = result.outputs;
    const bool whole = result.status == RunResult::Status::kOk && !out.topk_ids.empty() &&
                       out.topk_ids.size() % rows == 0 && out.topk_weights.size() == out.topk_ids.size();
    if (!whole) {
      failure = "the run of " + std::to_string(count) + " rows did not end well" +
                (result.message.empty() ? "" : ": " + result.message);
      return {};
    }
    Kinds kinds;
    const std::size_t columns = out.topk_ids.size() / rows, width = out.router_logits.size() / rows;
    Bits bits;
    for (std::size_t r = 0; r < rows; ++r) {
      bits.clear();
      for (std::size_t i = r * columns; i < (r + 1) * columns; ++i) {
        bits.push_back(static_cast<std::uint32_t>(out.topk_ids[i]));
        bits.push_back(std::bit_cast<std::uint32_t>(out.topk_weights[i]));
      }
      for (std::size_t i = r * width; i < (r + 1) * width; ++i) {
        bits.push_back(std::bit_cast<std::uint32_t>(out.router_logits[i]));
      }
      kinds.push_back(kinds_.try_emplace(bits, static_cast<std::int64_t>(kinds_.size())).first->second);
    }
    return kinds;
  }

  Subject& subject_;
  const Case& c_;
  const oracle::RouterInputs& inputs_;
  std::int64_t row_;
  std::map<Bits, std::int64_t> kinds_;
  std::map<std::int64_t, std::int64_t> first_place_;
};

std::set<std::int64_t> first_counts(std::int64_t limit) {
  std::set<std::int64_t> counts{1, limit};
  const auto add = [&](std::int64_t count) {
    if (count <= limit) counts.insert(count);
  };
  for (std::int64_t count = 1; count <= kEveryCount; ++count) add(count);
  for (std::int64_t power = 32; power <= limit; power *= 2) {
    for (const std::int64_t count : {power - 1, power, power + 1, power + power / 2}) add(count);
  }
  return counts;
}

std::string span_text(const BitRange& range) {
  return range.first == range.last ? std::to_string(range.first)
                                   : std::to_string(range.first) + " .. " + std::to_string(range.last);
}

constexpr std::size_t kMostRanges = 8;

std::string changes_text(const std::vector<BitRange>& ranges) {
  std::string text;
  for (std::size_t i = 1; i < std::min(ranges.size(), kMostRanges); ++i) {
    text += (i == 1 ? "" : ", ") + std::to_string(ranges[i].first);
  }
  return ranges.size() > kMostRanges ? text + ", ..." : text;
}

std::string list_text(const std::vector<BitRange>& ranges, const std::string& label, const std::string& first_kind) {
  std::string text;
  for (std::size_t i = 0; i < std::min(ranges.size(), kMostRanges); ++i) {
    text += (i == 0 ? label : ", ") + span_text(ranges[i]) + ": " +
            (ranges[i].kind == 0 ? first_kind : "bits " + std::string(1, static_cast<char>('A' + ranges[i].kind % 26)));
  }
  if (ranges.size() > kMostRanges) text += ", and " + std::to_string(ranges.size() - kMostRanges) + " more ranges";
  return text;
}

}  // namespace

Boundaries find_boundaries(Subject& subject, const Case& c, const oracle::RouterInputs& inputs, std::int64_t row,
                           std::int64_t limit) {
  if (subject.claims().max_tokens > 0) limit = std::min(limit, subject.claims().max_tokens);
  Search search(subject, c, inputs, row);
  const std::set<std::int64_t> counts = first_counts(limit);
  std::int64_t before = 0;
  Boundaries found;
  for (const std::int64_t count : counts) {
    if (search.kind_at(count) < 0) break;
    if (before > 0) search.bisect(before, count);
    if (!search.failure.empty()) break;
    before = found.limit = count;
  }

  found.row = row;
  found.runs = search.runs;
  for (const auto& [count, kind] : search.first_place()) {
    if (kind >= 0) found.row_counts.insert(count);
  }
  found.failure = search.failure;
  // Between two counts with the same bits, all are taken to have them.
  for (const auto& [count, kind] : search.first_place()) {
    if (kind < 0 || count > found.limit) continue;
    if (!found.counts.empty() && found.counts.back().kind == kind) {
      found.counts.back().last = count;
    } else {
      found.counts.push_back({count, count, kind});
    }
  }
  found.place_count = search.place_count;
  found.places = std::move(search.places);
  return found;
}

std::vector<std::string> boundary_notes(const Boundaries& found) {
  std::vector<std::string> notes;
  const std::string row = "row " + std::to_string(found.row);
  if (found.counts.size() == 1 && found.places.empty()) {
    notes.push_back(row + ": copies of it have the same bits at every number of rows, T = 1 .. " +
                    std::to_string(found.limit));
  } else if (found.counts.size() == 2) {
    notes.push_back(row + ": rows agree for T <= " + std::to_string(found.counts[0].last) + ", differ from " +
                    std::to_string(found.counts[1].first) + " (up to " + std::to_string(found.limit) + " were run)");
  } else if (found.counts.size() > 2) {
    notes.push_back(row + ": the bits change at T = " + changes_text(found.counts) + "; " +
                    list_text(found.counts, "T = ", "as alone"));
  }
  if (!found.places.empty()) {
    notes.push_back(row + ": from T = " + std::to_string(found.place_count) +
                    " on the bits depend on the place of the row" + list_text(found.places, ": at place ", "as alone"));
  }
  if (!found.failure.empty()) notes.push_back(row + ": " + found.failure);
  return notes;
}

}  // namespace samebits::properties
