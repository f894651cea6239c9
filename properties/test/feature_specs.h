// Small specs with one feature each: E = 16, k = 4, H = 64.
#pragma once

#include <string>
#include <vector>

#include "laws_fake_router.h"
#include "oracle/spec/router_spec.h"

namespace samebits::properties {

oracle::RouterSpec softcap_spec();       // softmax, softcap 30
oracle::RouterSpec classes_spec();       // sigmoid with a bias for text and image, temperature 2
oracle::RouterSpec table_spec();         // sqrt_softplus over a hash table of 300 tokens
oracle::RouterSpec zero_spec();          // softmax with bias, 8 zero experts
oracle::RouterSpec renamed_zero_spec();  // the same, renamed to id 0 with weight 0
oracle::RouterSpec shared_spec();        // log space with 2 shared experts in the gate and a global scale
oracle::RouterSpec prepared_spec();      // softmax; norm, scale vector, H^-1/2; a scale for each expert
oracle::RouterSpec per_group_spec();     // softmax, one of each of 4 groups
oracle::RouterSpec sparsemixer_spec();   // k = 2, jitter eps 0.01
oracle::RouterSpec biased_spec();        // weights from the biased sigmoid
oracle::RouterSpec identity_spec();      // identity scores, sorted by id

std::vector<oracle::RouterSpec> feature_specs();  // all of them

// The directed cases of a spec, with at most 130 rows.
std::vector<Case> directed(const oracle::RouterSpec& spec);

// A router that makes this known mistake (explain_mistakes.h) in every row.
Fault mistaken(const oracle::RouterSpec& spec, const std::string& mistake);

}  // namespace samebits::properties
