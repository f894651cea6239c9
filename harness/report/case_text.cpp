#include "harness/report/case_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/io/tensor_text.h"

namespace samebits::harness {

std::string case_sizes(const properties::Case& c) {
  const properties::CaseDescription& d = c.description;
  std::string text = fmt::format("T={} E={} k={}", d.num_tokens, d.num_experts, d.top_k);
  if (d.n_group > 1) text += fmt::format(" groups={}/{}", d.topk_group, d.n_group);
  if (d.zero_experts > 0) text += fmt::format(" zero_experts={}", d.zero_experts);
  if (d.shared_in_gate > 0) text += fmt::format(" shared_in_gate={}", d.shared_in_gate);
  if (d.vocab_size > 0) text += fmt::format(" vocab={}", d.vocab_size);
  if (d.num_valid_rows) text += fmt::format(" valid_rows={}", *d.num_valid_rows);
  return d.stage == properties::Stage::kFull ? fmt::format("{} H={}", text, d.hidden_size) : text + ", from logits";
}

CaseNumbers case_numbers(const properties::Case& c, std::int64_t most) {
  CaseNumbers numbers;
  for (const auto& [name, tensor] : to_tensors(c.spec, properties::materialize(c))) {
    const bool vector = tensor.shape.size() == 1;
    const std::int64_t columns = tensor.shape.back();
    std::string line = fmt::format("{} [{}]:", name, fmt::join(tensor.shape, ", "));
    for (std::int64_t index = 0; index < num_elements(tensor); ++index) {
      if (element_is_zero(tensor, index)) continue;
      if (++numbers.count > most) continue;
      const std::string place =
          vector ? fmt::format("({})", index) : fmt::format("({},{})", index / columns, index % columns);
      line += fmt::format(" {}={}", place, element_text(tensor, index));
    }
    if (line.back() == ':') line += " all 0";
    numbers.lines.push_back(std::move(line));
  }
  if (numbers.count > most) numbers.lines.clear();
  return numbers;
}

std::string grouped(std::int64_t number) {
  std::string text = fmt::format("{}", number);
  for (std::size_t place = text.size(); place > 3 + (number < 0 ? 1u : 0u);) text.insert(place -= 3, ",");
  return text;
}

}  // namespace samebits::harness
