// The one way to standard output and to messages on standard error: control characters of foreign text are replaced,
// and a lost write is kept in mind for the end of the program instead of ending it half way.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "harness/report/report.h"

namespace samebits::harness {

void write_text(std::FILE* stream, std::string_view text);

template <class... Args>
void print_out(fmt::format_string<Args...> format, Args&&... args) {
  write_text(stdout, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void print_error(fmt::format_string<Args...> format, Args&&... args) {
  write_text(stderr, fmt::format(format, std::forward<Args>(args)...));
}

// A standard stream that the caller closed stays one that cannot be written: no file that is opened takes its number.
void hold_standard_streams();

// Hands on what was printed: an error that follows on the other stream comes after it. A failure is kept in mind.
void flush_output();

// The report on standard output, fitted to what that is, then as JSON in a file where one is named: a file that cannot
// be written (FileError) does not take the verdict along.
void publish(const Report& report, const std::string& json_path);

// The exit code of a program that ends with `code` once its standard output is written. Output that is lost makes 0 and
// 4 a 2, with a message; 1, 3 and 130 say more and stay. A reader that went away (EPIPE) loses nothing it wanted.
int finish_output(int code);

}  // namespace samebits::harness
