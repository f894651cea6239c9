// Content of the messages between the program and its worker. Both are the same program on the same machine, so values
// travel as their bytes; a reader still checks every length, because a plug-in may have damaged the writer.
//
// fields(archive, x) lists the fields of x once, for writing and for reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "oracle/tensors/router_inputs.h"
#include "properties/run.h"

namespace samebits::harness {

class WireError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class WireWriter {
 public:
  template <class... Ts>
  void operator()(const Ts&... values) {
    (put(values), ...);
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  void put_bytes(const void* data, std::size_t size) {
    const auto* begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size);
  }
  template <class T>
  void put(const T& value) {
    if constexpr (std::is_trivially_copyable_v<T>) {
      put_bytes(&value, sizeof(value));
    } else {
      fields(*this, const_cast<T&>(value));  // writing does not change it
    }
  }
  template <class T>
  void put(const std::vector<T>& values) {
    put<std::uint64_t>(values.size());
    if constexpr (std::is_trivially_copyable_v<T>) {
      put_bytes(values.data(), values.size() * sizeof(T));
    } else {
      for (const T& value : values) put(value);
    }
  }
  void put(const std::string& text) {
    put<std::uint64_t>(text.size());
    put_bytes(text.data(), text.size());
  }
  template <class T>
  void put(const std::optional<T>& value) {
    put(static_cast<std::uint8_t>(value.has_value()));
    if (value) put(*value);
  }

  std::vector<std::byte> bytes_;
};

class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class... Ts>
  void operator()(Ts&... values) {
    (get(values), ...);
  }
  void finish() const {
    if (!bytes_.empty()) throw WireError("bytes left over in a message");
  }

 private:
  void get_bytes(void* data, std::size_t size) {
    if (size > bytes_.size()) throw WireError("a message ends too early");
    if (size > 0) std::memcpy(data, bytes_.data(), size);
    bytes_ = bytes_.subspan(size);
  }
  template <class T>
  void get(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      std::uint8_t byte = 0;
      get_bytes(&byte, 1);
      value = byte != 0;
    } else if constexpr (std::is_trivially_copyable_v<T>) {
      get_bytes(&value, sizeof(value));
    } else {
      fields(*this, value);
    }
  }
  std::size_t get_count(std::size_t element_size) {
    std::uint64_t count = 0;
    get(count);
    if (count > bytes_.size() / element_size) throw WireError("a message announces more than it holds");
    return static_cast<std::size_t>(count);
  }
  template <class T>
  void get(std::vector<T>& values) {
    if constexpr (std::is_trivially_copyable_v<T>) {
      values.resize(get_count(sizeof(T)));
      get_bytes(values.data(), values.size() * sizeof(T));
    } else {
      values.resize(get_count(1));
      for (T& value : values) get(value);
    }
  }
  void get(std::string& text) {
    text.resize(get_count(1));
    get_bytes(text.data(), text.size());
  }
  template <class T>
  void get(std::optional<T>& value) {
    bool present = false;
    get(present);
    if (!present) {
      value.reset();
      return;
    }
    T content{};
    get(content);
    value = std::move(content);
  }

  std::span<const std::byte> bytes_;
};

template <class Archive>
void fields(Archive& archive, oracle::RouterInputs& x) {
  archive(x.num_tokens, x.hidden_size, x.gate_rows, x.hidden_states, x.gate_weight_bf16, x.gate_weight_fp32,
          x.router_logits, x.input_scale_vector, x.linear_bias, x.selection_bias, x.per_expert_scale, x.global_scale,
          x.hash_table, x.token_ids, x.token_ids_int32, x.row_class, x.num_valid_rows);
}

template <class Archive>
void fields(Archive& archive, properties::EarlierCall& x) {
  archive(x.rows, x.replace, x.num_valid_rows, x.times, x.given_logits);
}

template <class Archive>
void fields(Archive& archive, properties::RunRequest& x) {
  archive(x.id, x.rows, x.replace, x.num_valid_rows, x.poison, x.want_logits, x.want_bookkeeping, x.block_size,
          x.omitted_books, x.layout, x.constants_gap, x.earlier, x.other_router, x.launch, x.late_input, x.misuse,
          x.variation);
}

template <class Archive>
void fields(Archive& archive, oracle::Bookkeeping& x) {
  archive(x.tokens_per_expert, x.expert_offsets, x.slot_of_position, x.position_of_slot, x.sorted_token_ids,
          x.expert_ids, x.num_tokens_post_padded);
}

template <class Archive>
void fields(Archive& archive, oracle::RouterOutputs& x) {
  archive(x.num_tokens, x.top_k, x.topk_ids, x.topk_weights, x.router_logits, x.bookkeeping);
}

template <class Archive>
void fields(Archive& archive, properties::RunResult& x) {
  archive(x.status, x.message, x.kernel_name, x.outputs, x.guards_intact, x.inputs_intact, x.gaps_intact,
          x.outputs_untouched, x.damage, x.refused, x.device_problem);
}

template <class... Ts>
std::vector<std::byte> to_wire(const Ts&... values) {
  WireWriter writer;
  writer(values...);
  return writer.bytes();
}

template <class... Ts>
void from_wire(std::span<const std::byte> bytes, Ts&... values) {
  WireReader reader(bytes);
  reader(values...);
  reader.finish();
}

}  // namespace samebits::harness
