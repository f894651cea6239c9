#include <stdexcept>

extern "C" void throw_exception() {
  throw std::runtime_error("an exception of the plug-in");
}
