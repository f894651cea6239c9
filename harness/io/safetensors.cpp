#include "harness/io/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "harness/io/dtype.h"
#include "harness/io/files.h"

namespace samebits::harness {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian, and so is this reader");

using nlohmann::json;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 36;
constexpr int kMaxDepth = 3;  // header { tensor { shape [ ] } }
constexpr std::size_t kMaxRank = 8;

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  throw FileError(fmt::format("{}: {}", path.string(), what));
}

// Keys twice and deep nesting are refused while parsing: a map would hide the first, the second costs memory.
json parse_header(const std::filesystem::path& path, std::string_view text) {
  std::vector<std::set<std::string>> keys;
  const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
        keys.emplace_back();
        [[fallthrough]];
      case json::parse_event_t::array_start:
        if (depth >= kMaxDepth) fail(path, fmt::format("JSON header nested deeper than {} levels", kMaxDepth));
        break;
      case json::parse_event_t::object_end:
        keys.pop_back();
        break;
      case json::parse_event_t::key:
        if (!keys.back().insert(parsed.get<std::string>()).second) {
          fail(path, fmt::format("key \"{}\" twice in the JSON header; allowed is once", parsed.get<std::string>()));
        }
        break;
      default:
        break;
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), check);
  } catch (const json::exception& error) {
    fail(path, fmt::format("the header is not valid JSON: {}", error.what()));
  }
}

struct Entry {
  std::string name;
  SafeTensor tensor;
  std::uint64_t begin = 0, end = 0;
};

std::uint64_t unsigned_number(const std::filesystem::path& path, const std::string& where, const json& value) {
  if (!value.is_number_unsigned()) {
    fail(path, fmt::format("{}: {}; allowed are integers >= 0", where,
                           value.dump(-1, ' ', true, json::error_handler_t::replace)));
  }
  return value.get<std::uint64_t>();
}

Entry parse_entry(const std::filesystem::path& path, const std::string& name, const json& value) {
  if (!value.is_object())
    fail(path, fmt::format("tensor {}: needs an object with dtype, shape and data_offsets", name));
  for (const auto& [key, unused] : value.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      fail(path, fmt::format("tensor {}: unknown key \"{}\"; allowed are dtype, shape, data_offsets", name, key));
    }
  }
  if (value.size() != 3) fail(path, fmt::format("tensor {}: dtype, shape and data_offsets are all needed", name));
  Entry entry;
  entry.name = name;

  const json& dtype = value["dtype"];
  const DtypeInfo* info = dtype.is_string() ? find_dtype(dtype.get_ref<const std::string&>()) : nullptr;
  if (info == nullptr) {
    std::vector<std::string_view> names;
    for (const DtypeInfo& known : kDtypes) names.push_back(known.name);
    fail(path, fmt::format("tensor {}: dtype {}; allowed are {}", name,
                           dtype.dump(-1, ' ', true, json::error_handler_t::replace), fmt::join(names, ", ")));
  }
  entry.tensor.dtype = info->name;

  const json& shape = value["shape"];
  if (!shape.is_array() || shape.size() > kMaxRank) {
    fail(path, fmt::format("tensor {}: shape must be a list of at most {} sizes", name, kMaxRank));
  }
  std::uint64_t bytes = static_cast<std::uint64_t>(info->bytes);
  for (const json& size : shape) {
    const std::uint64_t extent = unsigned_number(path, fmt::format("tensor {}: shape", name), size);
    if (extent > std::uint64_t{1} << 48 || __builtin_mul_overflow(bytes, extent, &bytes)) {
      fail(path, fmt::format("tensor {}: shape {} is too large for any file", name,
                             shape.dump(-1, ' ', true, json::error_handler_t::replace)));
    }
    entry.tensor.shape.push_back(static_cast<std::int64_t>(extent));
  }

  const json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2) {
    fail(path, fmt::format("tensor {}: data_offsets must be a list of two offsets", name));
  }
  entry.begin = unsigned_number(path, fmt::format("tensor {}: data_offsets", name), offsets[0]);
  entry.end = unsigned_number(path, fmt::format("tensor {}: data_offsets", name), offsets[1]);
  if (entry.begin > entry.end) {
    fail(path, fmt::format("tensor {}: data_offsets [{}, {}] end before they begin", name, entry.begin, entry.end));
  }
  if (entry.end - entry.begin != bytes) {
    fail(path, fmt::format("tensor {}: data_offsets [{}, {}] hold {} bytes; dtype {} and shape [{}] need {}", name,
                           entry.begin, entry.end, entry.end - entry.begin, info->name,
                           fmt::join(entry.tensor.shape, ", "), bytes));
  }
  return entry;
}

}  // namespace

SafeTensors read_safetensors(const std::filesystem::path& path) {
  const std::string file = read_file(path, kMaxFileBytes);
  if (file.size() < 8) fail(path, fmt::format("{} bytes; a safetensors file has at least 8", file.size()));
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), 8);
  if (header_bytes > kMaxHeaderBytes || header_bytes > file.size() - 8) {
    fail(path, fmt::format("header of {} bytes in a file of {}; allowed are at most {} and what the file holds",
                           header_bytes, file.size(), kMaxHeaderBytes));
  }
  const std::string_view text = std::string_view(file).substr(8, header_bytes);
  if (text.empty() || text.front() != '{') fail(path, "the header must be a JSON object that starts with '{'");
  // The JSON parser takes a NUL byte for the end of its input, which would hide what follows.
  if (text.find('\0') != std::string_view::npos) fail(path, "the header holds a NUL byte; padding must be spaces");
  const json header = parse_header(path, text);

  SafeTensors content;
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name != "__metadata__") {
      entries.push_back(parse_entry(path, name, value));
      continue;
    }
    if (!value.is_object()) fail(path, "__metadata__ must be an object of strings");
    for (const auto& [key, item] : value.items()) {
      if (!item.is_string()) fail(path, fmt::format("__metadata__ \"{}\": allowed are strings", key));
      content.metadata[key] = item.get<std::string>();
    }
  }
  // In order of their place; empty tensors may share a place with the next one.
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
  const std::string_view data = std::string_view(file).substr(8 + header_bytes);
  std::uint64_t position = 0;
  for (Entry& entry : entries) {
    if (entry.begin != position) {
      fail(path, fmt::format("tensor {}: begins at byte {}, but the tensors before it end at {}; neither overlap nor "
                             "holes are allowed",
                             entry.name, entry.begin, position));
    }
    if (entry.end > data.size()) {
      fail(path, fmt::format("tensor {}: ends at byte {}; the file has only {} bytes of data", entry.name, entry.end,
                             data.size()));
    }
    position = entry.end;
    const std::string_view bytes = data.substr(entry.begin, entry.end - entry.begin);
    entry.tensor.bytes.resize(bytes.size());
    if (!bytes.empty()) std::memcpy(entry.tensor.bytes.data(), bytes.data(), bytes.size());
    content.tensors.emplace(entry.name, std::move(entry.tensor));
  }
  if (position != data.size()) {
    fail(path, fmt::format("{} bytes after the last tensor; allowed are none", data.size() - position));
  }
  return content;
}

void write_safetensors(const std::filesystem::path& path, const SafeTensors& content) {
  // Wide elements first keeps every tensor aligned to its element, as the format's own writer does.
  std::vector<const std::pair<const std::string, SafeTensor>*> order;
  for (const auto& item : content.tensors) {
    if (find_dtype(item.second.dtype) == nullptr)
      fail(path, fmt::format("tensor {}: dtype {}", item.first, item.second.dtype));
    order.push_back(&item);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return find_dtype(a->second.dtype)->bytes > find_dtype(b->second.dtype)->bytes;
  });
  json header = json::object();
  if (!content.metadata.empty()) header["__metadata__"] = content.metadata;
  std::uint64_t position = 0;
  for (const auto* item : order) {
    const SafeTensor& tensor = item->second;
    header[item->first] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {position, position + tensor.bytes.size()}}};
    position += tensor.bytes.size();
  }
  std::string text = header.dump(-1, ' ', false, json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string file(8, '\0');
  const std::uint64_t header_bytes = text.size();
  std::memcpy(file.data(), &header_bytes, 8);
  file.reserve(8 + text.size() + position);
  file += text;
  for (const auto* item : order) {
    const SafeTensor& tensor = item->second;
    file.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  write_file(path, file);
}

}  // namespace samebits::harness
