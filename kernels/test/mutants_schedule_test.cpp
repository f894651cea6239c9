// Turns of coroutines: the order is the one that is written down, and a wait that never ends is told.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/mutants/schedule.h"

namespace samebits::mutants {
namespace {

Task write_twice(char letter, std::string& text) {
  text += letter;
  co_await kNextTurn;
  text += letter;
}

Task wait_for(const bool& opened) {
  while (!opened) co_await kNextTurn;
}

TEST(Schedule, TasksTakeTurnsInTheirOrder) {
  std::string text;
  std::vector<Task> tasks;
  for (const char letter : {'a', 'b', 'c'}) tasks.push_back(write_twice(letter, text));
  EXPECT_EQ(text, "") << "a task starts with its first turn";
  EXPECT_EQ(run_in_turns(tasks, 2), 0);
  EXPECT_EQ(text, "abcabc");
}

TEST(Schedule, CountsThoseThatStillWait) {
  std::string text;
  bool is_open = false;
  std::vector<Task> tasks;
  tasks.push_back(wait_for(is_open));
  tasks.push_back(write_twice('a', text));
  tasks.push_back(wait_for(is_open));
  EXPECT_EQ(run_in_turns(tasks, 100), 2);
  EXPECT_EQ(text, "aa");
  is_open = true;
  EXPECT_EQ(run_in_turns(tasks, 1), 0);
}

TEST(Schedule, NoTurnsAndNoTasks) {
  EXPECT_EQ(run_in_turns({}, 1), 0);
  std::string text;
  std::vector<Task> tasks;
  tasks.push_back(write_twice('a', text));
  EXPECT_EQ(run_in_turns(tasks, 0), 1);
  EXPECT_EQ(text, "");
}

Task fail_in_second_turn() {
  co_await kNextTurn;
  throw std::string("failed");
}

TEST(Schedule, ExceptionsLeaveTheTurn) {
  std::vector<Task> tasks;
  tasks.push_back(fail_in_second_turn());
  EXPECT_THROW(run_in_turns(tasks, 5), std::string);
}

}  // namespace
}  // namespace samebits::mutants
