// Result files. Metadata: samebits_result "1", case (16 hex digits), claims (JSON object), runs (JSON list: id and what
// became of it) or unsupported (a reason). What a run was asked to do is not in the file: it follows from the case and
// the claims, so a file cannot misstate it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "harness/io/case_file.h"
#include "harness/io/claims_json.h"

namespace samebits::harness {
namespace {

using nlohmann::json;
using properties::Run;
using properties::RunRequest;
using properties::RunResult;

struct StatusWord {
  RunResult::Status value;
  const char* text;
};
constexpr StatusWord kStatuses[] = {{RunResult::Status::kOk, "ok"},
                                    {RunResult::Status::kError, "error"},
                                    {RunResult::Status::kCrashed, "crashed"},
                                    {RunResult::Status::kTimedOut, "timed_out"}};

template <class Element>
SafeTensor pack(const char* dtype, std::vector<std::int64_t> shape, const Element* values, std::size_t count) {
  SafeTensor tensor{dtype, std::move(shape), std::vector<std::byte>(count * sizeof(Element))};
  if (count > 0) std::memcpy(tensor.bytes.data(), values, tensor.bytes.size());
  return tensor;
}

template <class Element>
std::vector<Element> unpack(const SafeTensor& tensor) {
  std::vector<Element> values(tensor.bytes.size() / sizeof(Element));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

struct BookkeepingTensor {
  const char* name;
  std::vector<std::int32_t> oracle::Bookkeeping::*values;
};
constexpr BookkeepingTensor kBookkeeping[] = {
    {"tokens_per_expert", &oracle::Bookkeeping::tokens_per_expert},
    {"expert_offsets", &oracle::Bookkeeping::expert_offsets},
    {"slot_of_position", &oracle::Bookkeeping::slot_of_position},
    {"position_of_slot", &oracle::Bookkeeping::position_of_slot},
    {"sorted_token_ids", &oracle::Bookkeeping::sorted_token_ids},
    {"expert_ids", &oracle::Bookkeeping::expert_ids},
};
constexpr const char* kPostPadded = "num_tokens_post_padded";

// A wrong call has none, even where the router served it.
bool has_outputs(const Run& run) {
  return run.result.status == RunResult::Status::kOk && run.request.misuse == properties::Misuse::kNone;
}

void add_run(SafeTensors& content, json& runs, const Run& run) {
  const RunResult& result = run.result;
  json entry = {{"id", run.request.id}};
  for (const StatusWord& status : kStatuses) {
    if (status.value == result.status) entry["status"] = status.text;
  }
  entry["message"] = result.message;
  entry["kernel_name"] = result.kernel_name;
  entry["guards_intact"] = result.guards_intact;
  entry["inputs_intact"] = result.inputs_intact;
  entry["gaps_intact"] = result.gaps_intact;
  entry["outputs_untouched"] = result.outputs_untouched;
  entry["damage"] = result.damage;
  entry["refused"] = result.refused;
  entry["device_problem"] = result.device_problem;
  runs.push_back(entry);
  if (!has_outputs(run)) return;

  const oracle::RouterOutputs& outputs = result.outputs;
  const auto add = [&](const char* name, SafeTensor tensor) {
    content.tensors.emplace(run.request.id + "/" + name, std::move(tensor));
  };
  add("topk_ids", pack("I64", {outputs.num_tokens, outputs.top_k}, outputs.topk_ids.data(), outputs.topk_ids.size()));
  add("topk_weights",
      pack("F32", {outputs.num_tokens, outputs.top_k}, outputs.topk_weights.data(), outputs.topk_weights.size()));
  if (!outputs.router_logits.empty()) {
    const auto experts = static_cast<std::int64_t>(outputs.router_logits.size()) / outputs.num_tokens;
    add("router_logits",
        pack("F32", {outputs.num_tokens, experts}, outputs.router_logits.data(), outputs.router_logits.size()));
  }
  for (const BookkeepingTensor& tensor : kBookkeeping) {
    const std::vector<std::int32_t>& values = outputs.bookkeeping.*tensor.values;
    if (values.empty()) continue;
    add(tensor.name, pack("I32", {static_cast<std::int64_t>(values.size())}, values.data(), values.size()));
  }
  if (run.request.want_bookkeeping) add(kPostPadded, pack("I32", {1}, &outputs.bookkeeping.num_tokens_post_padded, 1));
}

class ResultReader {
 public:
  ResultReader(const std::filesystem::path& path, const properties::Case& c, bool without_weights)
      : path_(path), case_(c), without_weights_(without_weights), content_(read_safetensors(path)) {}

  ResultFile read() {
    const auto& metadata = content_.metadata;
    if (const auto version = metadata.find("samebits_result"); version != metadata.end() && version->second != "1") {
      fail(fmt::format("samebits_result {}; this program reads 1", version->second));
    }
    if (const auto hash = metadata.find("case"); hash != metadata.end()) {
      const std::string wanted = fmt::format("{:016x}", case_hash(case_));
      if (hash->second != wanted) {
        fail(fmt::format("written for case {}, but the case file is {}; run it again", hash->second, wanted));
      }
    }
    ResultFile file;
    try {
      file.claims.name = "default claims, as the file states none";
      if (metadata.contains("claims")) file.claims = claims_from_json(parse("claims"));
    } catch (const std::invalid_argument& error) {
      fail(error.what());
    }
    if (const auto reason = metadata.find("unsupported"); reason != metadata.end()) {
      file.unsupported = reason->second.empty() ? "no reason given" : reason->second;
      return file;
    }
    plan_ = properties::plan_runs(case_, file.claims);
    if (metadata.contains("runs")) {
      read_listed(file);
    } else {
      read_unlisted(file);
    }
    check_all_used();
    return file;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw FileError(fmt::format("{}: {}", path_.string(), what));
  }

  json parse(const char* key) const {
    try {
      return json::parse(content_.metadata.at(key), [&](int depth, json::parse_event_t, json&) {
        if (depth > 4) fail(fmt::format("metadata {}: nested too deeply", key));
        return true;
      });
    } catch (const json::exception& error) {
      fail(fmt::format("metadata {}: {}", key, error.what()));
    }
  }

  const RunRequest& planned(const std::string& id) const {
    for (const RunRequest& request : plan_) {
      if (request.id == id) return request;
    }
    const bool claimed = content_.metadata.contains("claims");
    fail(fmt::format("run \"{}\" is not one that this case and {} ask for", id,
                     claimed
                         ? "these claims"
                         : "the default claims (the metadata claims are missing; write them, or leave the run out)"));
  }

  // All runs that a plain program wrote: it knows no statuses, so every run with ids is a good one.
  void read_unlisted(ResultFile& file) {
    for (const auto& [name, tensor] : content_.tensors) {
      const std::size_t slash = name.rfind('/');
      if (slash == std::string::npos)
        fail(fmt::format("tensor \"{}\"; allowed are names RUN/topk_ids and so on", name));
      planned(name.substr(0, slash));
    }
    for (const RunRequest& request : plan_) {
      if (!content_.tensors.contains(request.id + "/topk_ids")) continue;
      Run run{request, {}};
      read_outputs(run);
      file.runs.push_back(std::move(run));
    }
    if (file.runs.empty()) fail("no tensor main/topk_ids; at least main/topk_ids and main/topk_weights are needed");
  }

  void read_listed(ResultFile& file) {
    const json runs = parse("runs");
    if (!runs.is_array()) fail("metadata runs: allowed is a list");
    for (const json& entry : runs) {
      if (!entry.is_object()) fail("metadata runs: allowed are objects");
      const std::string id = text(entry, "id");
      Run run{planned(id), {}};
      for (const Run& other : file.runs) {
        if (other.request.id == id) fail(fmt::format("run \"{}\" twice", id));
      }
      const std::string status = text(entry, "status");
      bool known = false;
      for (const StatusWord& word : kStatuses) {
        if (status != word.text) continue;
        run.result.status = word.value;
        known = true;
      }
      if (!known) fail(fmt::format("run \"{}\": status \"{}\"; allowed: ok, error, crashed, timed_out", id, status));
      run.result.message = text(entry, "message");
      run.result.kernel_name = text(entry, "kernel_name");
      run.result.guards_intact = boolean(entry, "guards_intact", true);
      run.result.inputs_intact = boolean(entry, "inputs_intact", true);
      run.result.gaps_intact = boolean(entry, "gaps_intact", true);
      run.result.outputs_untouched = boolean(entry, "outputs_untouched", true);
      run.result.damage = text(entry, "damage");
      run.result.refused = boolean(entry, "refused", false);
      run.result.device_problem = text(entry, "device_problem");
      if (has_outputs(run)) read_outputs(run);
      file.runs.push_back(std::move(run));
    }
  }

  std::string text(const json& entry, const char* key) const {
    if (!entry.contains(key)) return "";
    if (!entry[key].is_string()) fail(fmt::format("metadata runs: {}: allowed is text", key));
    return entry[key].get<std::string>();
  }
  bool boolean(const json& entry, const char* key, bool otherwise) const {
    if (!entry.contains(key)) return otherwise;
    if (!entry[key].is_boolean()) fail(fmt::format("metadata runs: {}: allowed: true, false", key));
    return entry[key].get<bool>();
  }

  // nullptr: absent. The tensor must have this shape.
  const SafeTensor* find(const RunRequest& request, const char* name, std::vector<std::int64_t> shape) {
    const std::string full = request.id + "/" + name;
    const auto found = content_.tensors.find(full);
    if (found == content_.tensors.end()) return nullptr;
    used_.push_back(full);
    if (!shape.empty() && found->second.shape != shape) {
      fail(fmt::format("tensor {}: shape [{}]; this run has [{}]", full, fmt::join(found->second.shape, ", "),
                       fmt::join(shape, ", ")));
    }
    return &found->second;
  }
  [[noreturn]] void wrong_dtype(const RunRequest& request, const char* name, const SafeTensor& tensor,
                                const char* allowed) const {
    fail(fmt::format("tensor {}/{}: dtype {}; allowed: {}", request.id, name, tensor.dtype, allowed));
  }

  void read_outputs(Run& run) {
    const RunRequest& request = run.request;
    oracle::RouterOutputs& outputs = run.result.outputs;
    outputs.num_tokens = static_cast<std::int64_t>(request.rows.size());
    outputs.top_k = oracle::topk_columns(case_.spec);
    const std::vector<std::int64_t> shape = {outputs.num_tokens, outputs.top_k};
    const SafeTensor* ids = find(request, "topk_ids", shape);
    const SafeTensor* weights = find(request, "topk_weights", shape);
    if (ids == nullptr || (weights == nullptr && !without_weights_)) {
      fail(fmt::format(
          "run {}: topk_ids and topk_weights are needed; weights may be left out where `check --laws` names "
          "none of the laws that judge them",
          request.id));
    }
    if (ids->dtype == "I64") {
      outputs.topk_ids = unpack<std::int64_t>(*ids);
    } else if (ids->dtype == "I32") {
      const std::vector<std::int32_t> narrow = unpack<std::int32_t>(*ids);
      outputs.topk_ids.assign(narrow.begin(), narrow.end());
    } else {
      wrong_dtype(request, "topk_ids", *ids, "I32, I64");
    }
    if (weights == nullptr) {
      outputs.topk_weights.assign(static_cast<std::size_t>(outputs.num_tokens * outputs.top_k), 0.0f);
    } else {
      if (weights->dtype != "F32") wrong_dtype(request, "topk_weights", *weights, "F32");
      outputs.topk_weights = unpack<float>(*weights);
    }
    if (const SafeTensor* logits =
            find(request, "router_logits", {outputs.num_tokens, oracle::gate_rows(case_.spec)})) {
      if (logits->dtype != "F32") wrong_dtype(request, "router_logits", *logits, "F32");
      outputs.router_logits = unpack<float>(*logits);
    }
    const std::int64_t slots = outputs.num_tokens * outputs.top_k, num_ids = oracle::gate_rows(case_.spec);
    for (const BookkeepingTensor& tensor : kBookkeeping) {
      const SafeTensor* values = find(request, tensor.name, {});
      if (values == nullptr) continue;
      if (values->dtype != "I32" || values->shape.size() != 1)
        wrong_dtype(request, tensor.name, *values, "I32, one size");
      outputs.bookkeeping.*tensor.values = unpack<std::int32_t>(*values);
    }
    const auto check_size = [&](const char* name, const std::vector<std::int32_t>& values, std::int64_t wanted) {
      if (!values.empty() && static_cast<std::int64_t>(values.size()) != wanted) {
        fail(fmt::format("tensor {}/{}: {} entries; this run has {}", request.id, name, values.size(), wanted));
      }
    };
    check_size("tokens_per_expert", outputs.bookkeeping.tokens_per_expert, num_ids);
    check_size("expert_offsets", outputs.bookkeeping.expert_offsets, num_ids + 1);
    check_size("slot_of_position", outputs.bookkeeping.slot_of_position, slots);
    check_size("position_of_slot", outputs.bookkeeping.position_of_slot, slots);
    if (const SafeTensor* active = find(request, kPostPadded, {1})) {
      if (active->dtype != "I32") wrong_dtype(request, kPostPadded, *active, "I32");
      outputs.bookkeeping.num_tokens_post_padded = unpack<std::int32_t>(*active).front();
    }
  }

  void check_all_used() const {
    if (used_.size() == content_.tensors.size()) return;
    for (const auto& [name, tensor] : content_.tensors) {
      if (std::find(used_.begin(), used_.end(), name) == used_.end()) {
        fail(
            fmt::format("tensor \"{}\" belongs to no run; allowed are RUN/topk_ids, topk_weights, router_logits and "
                        "the bookkeeping",
                        name));
      }
    }
  }

  std::filesystem::path path_;
  const properties::Case& case_;
  bool without_weights_;
  SafeTensors content_;
  std::vector<RunRequest> plan_;
  std::vector<std::string> used_;
};

}  // namespace

void write_result_file(const std::filesystem::path& path, const ResultFile& file, const properties::Case& c) {
  SafeTensors content;
  content.metadata["samebits_result"] = "1";
  content.metadata["case"] = fmt::format("{:016x}", case_hash(c));
  content.metadata["claims"] = claims_to_json(file.claims).dump(-1, ' ', false, json::error_handler_t::replace);
  if (!file.unsupported.empty()) {
    content.metadata["unsupported"] = file.unsupported;
  } else {
    json runs = json::array();
    for (const Run& run : file.runs) add_run(content, runs, run);
    content.metadata["runs"] = runs.dump(-1, ' ', false, json::error_handler_t::replace);
  }
  write_safetensors(path, content);
}

ResultFile read_result_file(const std::filesystem::path& path, const properties::Case& c, bool without_weights) {
  return ResultReader(path, c, without_weights).read();
}

}  // namespace samebits::harness
