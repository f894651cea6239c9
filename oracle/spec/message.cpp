#include "oracle/spec/message.h"

namespace samebits::oracle::yaml {

std::string message(const Position& at, std::string_view field, std::string_view text) {
  std::string line = at.file;
  if (at.line > 0) line += ":" + std::to_string(at.line) + ":" + std::to_string(at.column);
  line += ": ";
  line += field;
  line += ": ";
  line += text;
  return line;
}

}  // namespace samebits::oracle::yaml
