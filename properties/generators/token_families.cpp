// What belongs to tokens rather than to numbers: hash table, token ids, row classes.
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <span>

#include "properties/generators/families.h"
#include "properties/generators/random_bits.h"

namespace samebits::properties {
namespace {

using Int32 = std::numeric_limits<std::int32_t>;
using Int64 = std::numeric_limits<std::int64_t>;

// Uniform below `size`, or one in four of `edges`.
std::int64_t with_edges(std::uint64_t bits, std::int64_t size, bool has_edges, std::span<const std::int64_t> edges) {
  if (!has_edges || (bits & 3) != 0) return uniform_below(bits, size);
  return edges[(bits >> 2) % edges.size()];
}

}  // namespace

std::vector<std::int32_t> generate_hash_table(const CaseDescription& d, const Kept& kept) {
  const auto k = static_cast<std::size_t>(d.top_k);
  std::vector<std::int32_t> table;
  table.reserve(static_cast<std::size_t>(d.vocab_size) * k);
  std::vector<std::uint64_t> ranks(kept.ranked.size());
  std::vector<std::int32_t> order(kept.ranked.size());
  for (std::int64_t token = 0; token < d.vocab_size; ++token) {
    RandomRow bits(d.data_key, Stream::kHashTable, token);
    for (std::size_t e = 0; e < ranks.size(); ++e) ranks[e] = bits.at(kept.ranked[e]);
    std::iota(order.begin(), order.end(), 0);
    const auto middle = order.begin() + static_cast<std::ptrdiff_t>(k);
    std::partial_sort(order.begin(), middle, order.end(), [&](std::int32_t a, std::int32_t b) {
      const std::uint64_t x = ranks[static_cast<std::size_t>(a)], y = ranks[static_cast<std::size_t>(b)];
      return x != y ? x < y : a < b;
    });
    table.insert(table.end(), order.begin(), middle);
  }
  return table;
}

std::vector<std::int64_t> generate_token_ids(const CaseDescription& d, const Kept& kept) {
  constexpr std::int64_t kWrap = std::int64_t{1} << 32;
  std::vector<std::int64_t> ids;
  for (const std::int64_t row : kept.rows) {
    const std::uint64_t bits = random_bits(d.data_key, Stream::kTokenIds, row, 0);
    const std::int64_t id = uniform_below(bits, d.vocab_size);
    // Cut to 32 bits, the wide ones are tokens of the table or -1.
    const std::array<std::int64_t, 12> all = {
        0,          d.vocab_size - 1, d.vocab_size, -1,           Int32::max(), Int32::min(),
        kWrap + id, id - kWrap,       kWrap + id,   Int64::min(), id - kWrap,   Int64::max()};
    const std::span<const std::int64_t> edges = std::span(all).first(d.token_ids_int32 ? 6 : all.size());
    ids.push_back(with_edges(bits, d.vocab_size, d.tokens == TokenFamily::kEdges, edges));
  }
  return ids;
}

std::vector<std::int32_t> generate_row_class(const Case& c, const Kept& kept) {
  const CaseDescription& d = c.description;
  const auto classes = static_cast<std::int64_t>(c.spec.selection.bias_variants.size());
  std::vector<std::int32_t> result;
  if (d.row_classes == RowClassFamily::kAbsent || classes < 2) return result;
  const std::array<std::int64_t, 4> edges = {-1, classes, Int32::max(), Int32::min()};
  for (const std::int64_t row : kept.rows) {
    const std::uint64_t bits = random_bits(d.data_key, Stream::kRowClass, row, 0);
    result.push_back(
        static_cast<std::int32_t>(with_edges(bits, classes, d.row_classes == RowClassFamily::kEdges, edges)));
  }
  return result;
}

}  // namespace samebits::properties
