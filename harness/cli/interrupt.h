// Ctrl-C: the first stops after the current case, the second ends the program at once.
#pragma once

namespace samebits::harness {

void install_interrupt_handler();
bool interrupted();

}  // namespace samebits::harness
