// A rule between fields, and the specs that its examples start from.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "oracle/spec/validate.h"
#include "oracle/test/spec_testing.h"

namespace samebits::oracle {

inline RouterSpec minimal() {
  return parse_spec(kMinimal, "f.yaml").base;
}

inline void grouped(RouterSpec& s) {
  s.selection.n_group = 4;
  s.selection.topk_group = 2;
  s.selection.group_score = GroupScore::kTop2Sum;
  s.selection.group_mask = GroupMask::kNegInf;
}

inline void per_group(RouterSpec& s) {
  s.selection.n_group = 2;
  s.selection.topk_group = 2;
  s.selection.topk_scope = TopkScope::kPerGroup;
}

inline void sparsemixer(RouterSpec& s) {
  s.selection.method = SelectionMethod::kSparsemixer;
  s.selection.rank_by = RankBy::kLogit;
  s.sparsemixer_jitter_eps = 0.01;
}

inline void hash_table(RouterSpec& s) {
  s.selection.method = SelectionMethod::kHashTable;
  s.hash.vocab_size = 100;
  s.hash.table_dtype = TableType::kInt32;
}

inline void zero_experts(RouterSpec& s) {
  s.special.zero_experts = 4;
  s.special.zero_type = ZeroType::kIdentity;
}

inline void shared_in_the_gate(RouterSpec& s) {
  s.score.func = ScoreFunc::kSigmoid;
  s.special.shared_experts = 2;
  s.special.shared_mode = SharedMode::kInGate;
}

inline void log_space(RouterSpec& s) {
  s.score.func = ScoreFunc::kSigmoid;
  s.weights.renormalize = Renormalize::kLogSpaceL1;
}

inline void biased(RouterSpec& s) {
  s.selection.bias = BiasType::kFp32;
  s.weights.source = WeightSource::kBiasedScore;
}

struct Rule {
  const char* name;
  std::vector<std::string> paths;  // of the problems, in order; empty: valid
  void (*change)(RouterSpec&);     // of minimal(): E = 8, k = 2
};

inline void PrintTo(const Rule& rule, std::ostream* stream) {
  *stream << rule.name;
}

// Exactly these fields are named, and each message says what was found, what is allowed and what to do.
inline void expect_problems(const Rule& rule) {
  RouterSpec spec = minimal();
  rule.change(spec);
  std::vector<std::string> paths;
  for (const Problem& problem : find_problems(spec)) {
    paths.push_back(problem.path);
    EXPECT_THAT(problem.message, testing::MatchesRegex("found .*; allowed: .*; .+")) << problem.path;
  }
  EXPECT_EQ(paths, rule.paths);
}

}  // namespace samebits::oracle
