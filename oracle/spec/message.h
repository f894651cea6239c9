// The one form of every message about a spec: FILE:LINE:COLUMN: FIELD: found ...; allowed: ...; what to do.
#pragma once

#include <string>
#include <string_view>

namespace samebits::oracle::yaml {

struct Position {
  std::string file;  // or "--set PATH=TEXT"
  int line = 0;      // 0: no position inside the file
  int column = 0;
};

std::string message(const Position& at, std::string_view field, std::string_view text);

}  // namespace samebits::oracle::yaml
