#include "oracle/emulate/arithmetic_model.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>

namespace samebits::oracle {
namespace {

using Leaf = ArithmeticModel::Leaf;
using Cut = ArithmeticModel::Cut;
using Combine = ArithmeticModel::Combine;

constexpr std::int64_t kBlock = 64;        // products; the unit of a split
constexpr std::int64_t kInstruction = 16;  // products of one instruction; a chain is cut between two of them

struct Sum {
  std::string_view name;
  std::string_view numbers;  // as shown in messages; empty: none
  bool list;                 // more than one number
  bool architecture;         // "@ARCHITECTURE" may follow
  Leaf leaf;
  Cut cut;
  Combine combine;
};
constexpr Sum kSums[] = {
    {"tc256", "", false, false, Leaf::kTensorCore, Cut::kChunks, Combine::kLeftFold},
    {"tc-chain", "", false, true, Leaf::kTensorCore, Cut::kWhole, Combine::kLeftFold},
    {"tc-chunks", "C", false, true, Leaf::kTensorCore, Cut::kChunks, Combine::kLeftFold},
    {"tc-chunks-tree", "C", false, true, Leaf::kTensorCore, Cut::kChunks, Combine::kTree},
    {"split-k", "B,B,...", true, true, Leaf::kTensorCore, Cut::kBlocks, Combine::kLeftFold},
    {"cublas-split-k", "S", false, false, Leaf::kTensorCore, Cut::kEqualBlocks, Combine::kLeftFold},
    {"fp32-fma-sequential", "", false, false, Leaf::kFusedMultiplyAdd, Cut::kWhole, Combine::kTree},
    {"fp32-fma-chains", "N", false, false, Leaf::kFusedMultiplyAdd, Cut::kInterleaved, Combine::kTree},
    {"fp32-fma-slices", "N", false, false, Leaf::kFusedMultiplyAdd, Cut::kSlices, Combine::kTree},
    {"fp32-mul-add-sequential", "", false, false, Leaf::kMultiplyThenAdd, Cut::kWhole, Combine::kTree},
    {"fp32-mul-add-chains", "N", false, false, Leaf::kMultiplyThenAdd, Cut::kInterleaved, Combine::kTree},
    {"exact", "", false, false, Leaf::kExact, Cut::kWhole, Combine::kLeftFold},
};

struct Rounding {
  std::string_view name;
  bool ArithmeticModel::*flag;
};
constexpr Rounding kRoundings[] = {
    {"bf16-logits", &ArithmeticModel::bf16_logits},
    {"bf16-bias", &ArithmeticModel::bf16_bias},
    {"bf16-scores", &ArithmeticModel::bf16_scores},
};

std::string form(const Sum& sum) {
  std::string text(sum.name);
  if (!sum.numbers.empty()) text.append(":").append(sum.numbers);
  if (sum.architecture) text += "[@ARCHITECTURE]";
  return text;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

[[noreturn]] void refuse(std::string_view text, const std::string& reason) {
  throw std::invalid_argument("arithmetic \"" + std::string(text) + "\": " + reason);
}

// What stands before the first `mark`; `rest` becomes what follows it, or is empty, and then `found` is false.
std::string_view cut_at(char mark, std::string_view& rest, bool& found) {
  const std::size_t at = rest.find(mark);
  found = at != std::string_view::npos;
  const std::string_view head = rest.substr(0, at);
  rest = found ? rest.substr(at + 1) : std::string_view();
  return head;
}

std::vector<std::int64_t> read_numbers(std::string_view text, const Sum& sum, std::string_view rest) {
  std::vector<std::int64_t> numbers;
  for (bool more = true; more;) {
    const std::string_view word = cut_at(',', rest, more);
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc() || end != word.data() + word.size() || number < 1 || number > 1'000'000) {
      refuse(text, "found the number \"" + std::string(word) + "\"; allowed: 1 to 1000000, as in " + form(sum));
    }
    numbers.push_back(number);
  }
  if (numbers.size() > 1 && !sum.list) {
    refuse(text, "found " + std::to_string(numbers.size()) + " numbers; allowed: one, as in " + form(sum));
  }
  if (sum.leaf == Leaf::kTensorCore && sum.cut == Cut::kChunks && numbers[0] % kInstruction != 0) {
    refuse(text, "found chunks of " + std::to_string(numbers[0]) +
                     "; allowed: multiples of 16, because an instruction takes 16 products");
  }
  return numbers;
}

const StepParameters& read_architecture(std::string_view text, std::string_view word) {
  std::vector<std::string> allowed;
  for (const StepParameters& p : step_parameter_table()) {
    if (p.architecture == word) return p;
    allowed.emplace_back(p.architecture);
  }
  refuse(text, "found the architecture \"" + std::string(word) + "\"; allowed: " + joined(allowed));
}

// Returns false where `part` names no sum.
bool read_sum(std::string_view text, std::string_view part, ArithmeticModel& model) {
  bool has_architecture = false, has_numbers = false;
  std::string_view architecture = part;
  std::string_view numbers = cut_at('@', architecture, has_architecture);
  const std::string_view name = cut_at(':', numbers, has_numbers);
  const auto sum = std::find_if(std::begin(kSums), std::end(kSums), [&](const Sum& s) { return s.name == name; });
  if (sum == std::end(kSums)) return false;
  if (has_numbers != !sum->numbers.empty() || (has_architecture && !sum->architecture)) {
    refuse(text, "found \"" + std::string(part) + "\"; allowed: " + form(*sum));
  }
  model.leaf = sum->leaf;
  model.cut = sum->cut;
  model.combine = sum->combine;
  if (name != "tc256") model.sizes = has_numbers ? read_numbers(text, *sum, numbers) : std::vector<std::int64_t>{};
  if (has_architecture) model.architecture = &read_architecture(text, architecture);
  return true;
}

void append_ranges(std::vector<ProductRange>& result, std::int64_t hidden_size, std::int64_t length) {
  for (std::int64_t k = 0; k < hidden_size; k += length) {
    result.push_back({k, std::min(k + length, hidden_size), 1});
  }
}

}  // namespace

std::vector<std::string> arithmetic_model_forms() {
  std::vector<std::string> forms;
  for (const Sum& sum : kSums) forms.push_back(form(sum));
  for (const Rounding& rounding : kRoundings) forms.emplace_back(rounding.name);
  return forms;
}

ArithmeticModel arithmetic_model(std::string_view text) {
  ArithmeticModel model;
  model.name = text;
  bool has_sum = false;
  std::string_view rest = text;
  for (bool more = true; more;) {
    const std::string_view part = cut_at('+', rest, more);
    const auto rounding =
        std::find_if(std::begin(kRoundings), std::end(kRoundings), [&](const Rounding& r) { return r.name == part; });
    if (rounding != std::end(kRoundings)) {
      model.*rounding->flag = true;
    } else if (!read_sum(text, part, model)) {
      refuse(text,
             "found \"" + std::string(part) + "\"; allowed: " + joined(arithmetic_model_forms()) + ", joined by +");
    } else if (has_sum) {
      refuse(text, "found a second sum \"" + std::string(part) + "\"; allowed: one sum, and roundings");
    } else {
      has_sum = true;
    }
  }
  return model;
}

std::vector<ProductRange> product_ranges(const ArithmeticModel& model, std::int64_t hidden_size) {
  std::vector<ProductRange> result;
  switch (model.cut) {
    case Cut::kWhole:
      append_ranges(result, hidden_size, hidden_size);
      break;
    case Cut::kChunks:
      append_ranges(result, hidden_size, model.sizes[0]);
      break;
    case Cut::kEqualBlocks: {
      const std::int64_t blocks = (hidden_size + kBlock - 1) / kBlock;
      append_ranges(result, hidden_size, (blocks + model.sizes[0] - 1) / model.sizes[0] * kBlock);
      break;
    }
    case Cut::kSlices:
      append_ranges(result, hidden_size, (hidden_size + model.sizes[0] - 1) / model.sizes[0]);
      break;
    case Cut::kInterleaved:
      for (std::int64_t j = 0; j < std::min(model.sizes[0], hidden_size); ++j) {
        result.push_back({j, hidden_size, model.sizes[0]});
      }
      break;
    case Cut::kBlocks: {
      std::int64_t blocks = 0;
      for (const std::int64_t size : model.sizes) {
        result.push_back({blocks * kBlock, std::min((blocks + size) * kBlock, hidden_size), 1});
        blocks += size;
      }
      const std::int64_t needed = (hidden_size + kBlock - 1) / kBlock;
      if (blocks != needed) {
        refuse(model.name, "found " + std::to_string(blocks) + " blocks of 64; allowed: parts that sum to " +
                               std::to_string(needed) + ", for hidden size " + std::to_string(hidden_size));
      }
      break;
    }
  }
  return result;
}

RouterSpec with_roundings(const ArithmeticModel& model, RouterSpec spec) {
  if (model.bf16_logits) spec.gate.logits_dtype = FloatType::kBf16;
  if (model.bf16_bias && spec.selection.bias != BiasType::kNone) spec.selection.bias = BiasType::kBf16;
  if (model.bf16_scores) spec.score.dtype = FloatType::kBf16;
  return spec;
}

}  // namespace samebits::oracle
