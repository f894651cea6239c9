#include "harness/io/claims_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

namespace samebits::harness {
namespace {

using nlohmann::json;
using properties::Claims;
using properties::Determinism;
using properties::OutputOrder;
using properties::TieRule;

template <class Enum>
struct Word {
  Enum value;
  const char* text;
};

constexpr Word<Determinism> kDeterminisms[] = {{Determinism::kNone, "none"},
                                               {Determinism::kRunToRun, "run_to_run"},
                                               {Determinism::kBatchInvariant, "batch_invariant"}};
constexpr Word<TieRule> kTieRules[] = {{TieRule::kAny, "any"}, {TieRule::kLowestIndex, "lowest_index"}};
constexpr Word<OutputOrder> kOutputOrders[] = {{OutputOrder::kAny, "any"},
                                               {OutputOrder::kKeyDescThenIndex, "key_desc_then_index"}};

template <class Enum, std::size_t size>
const char* word(const Word<Enum> (&words)[size], Enum value) {
  for (const Word<Enum>& entry : words) {
    if (entry.value == value) return entry.text;
  }
  return "unknown";
}

template <class Enum, std::size_t size>
void parse_word(const Word<Enum> (&words)[size], const std::string& field, const json& value, Enum& result) {
  std::vector<const char*> names;
  for (const Word<Enum>& entry : words) {
    if (value.is_string() && value.get_ref<const std::string&>() == entry.text) {
      result = entry.value;
      return;
    }
    names.push_back(entry.text);
  }
  throw std::invalid_argument(fmt::format("claims: {}: found {}; allowed: {}", field,
                                          value.dump(-1, ' ', true, json::error_handler_t::replace),
                                          fmt::join(names, ", ")));
}

}  // namespace

nlohmann::ordered_json claims_to_json(const Claims& claims) {
  return {{"name", claims.name},
          {"version", claims.version},
          {"arithmetic", oracle::arithmetic_name(claims.arithmetic)},
          {"determinism", word(kDeterminisms, claims.determinism)},
          {"tie_break", word(kTieRules, claims.tie_rule)},
          {"output_order", word(kOutputOrders, claims.output_order)},
          {"returns_logits", claims.returns_logits},
          {"returns_bookkeeping", claims.returns_bookkeeping},
          {"max_tokens", claims.max_tokens},
          {"memory", claims.device_memory ? "device" : "host"}};
}

Claims claims_from_json(const json& value) {
  if (!value.is_object()) throw std::invalid_argument("claims: allowed is an object");
  Claims claims;
  for (const auto& [field, item] : value.items()) {
    const auto require = [&](bool valid, const char* allowed) {
      if (!valid) throw std::invalid_argument(fmt::format("claims: {}: allowed: {}", field, allowed));
    };
    if (field == "name" || field == "version") {
      require(item.is_string(), "text");
      (field == "name" ? claims.name : claims.version) = item.get<std::string>();
    } else if (field == "arithmetic") {
      const auto arithmetic = oracle::parse_arithmetic(item.is_string() ? item.get<std::string>() : "");
      if (!arithmetic) {
        throw std::invalid_argument(fmt::format("claims: arithmetic: found {}; allowed: {}",
                                                item.dump(-1, ' ', true, json::error_handler_t::replace),
                                                kArithmetics));
      }
      claims.arithmetic = *arithmetic;
    } else if (field == "determinism") {
      parse_word(kDeterminisms, field, item, claims.determinism);
    } else if (field == "tie_break") {
      parse_word(kTieRules, field, item, claims.tie_rule);
    } else if (field == "output_order") {
      parse_word(kOutputOrders, field, item, claims.output_order);
    } else if (field == "returns_logits" || field == "returns_bookkeeping") {
      require(item.is_boolean(), "true, false");
      (field == "returns_logits" ? claims.returns_logits : claims.returns_bookkeeping) = item.get<bool>();
    } else if (field == "max_tokens") {
      require(item.is_number_unsigned() && item.get<std::uint64_t>() <= INT32_MAX, "an integer from 0 to 2147483647");
      claims.max_tokens = item.get<std::int64_t>();
    } else if (field == "memory") {
      require(item == "host" || item == "device", "host, device");
      claims.device_memory = item == "device";
    } else {
      throw std::invalid_argument(fmt::format("claims: unknown field \"{}\"", field));
    }
  }
  return claims;
}

std::string claims_line(const Claims& claims) {
  return fmt::format("{}, determinism {}, ties {}, order {}{}{}", oracle::arithmetic_name(claims.arithmetic),
                     word(kDeterminisms, claims.determinism), word(kTieRules, claims.tie_rule),
                     word(kOutputOrders, claims.output_order), claims.returns_logits ? ", logits" : "",
                     claims.returns_bookkeeping ? ", bookkeeping" : "");
}

}  // namespace samebits::harness
