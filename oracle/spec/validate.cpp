#include "oracle/spec/validate.h"

#include <set>

#include "oracle/spec/field.h"
#include "oracle/spec/text.h"

namespace samebits::oracle {
namespace {

class Checker {
 public:
  explicit Checker(const RouterSpec& spec) : spec_(spec) {}

  std::vector<Problem> check() {
    check_fields();
    if (!problems_.empty()) return problems_;  // the rules below assume values that are in range
    check_shape();
    check_score();
    check_groups();
    check_bias();
    check_weights();
    check_special();
    check_methods();
    return problems_;
  }

 private:
  // The value found is read from the table, so that the message shows it as the file writes it.
  void add(const std::string& path, const std::string& allowed, const std::string& advice) {
    problems_.push_back(
        {path, "found " + yaml::shown(yaml::find_field(path)->write(spec_)) + "; allowed: " + allowed + "; " + advice});
  }
  void require(bool holds, const std::string& path, const std::string& allowed, const std::string& advice) {
    if (!holds) add(path, allowed, advice);
  }

  void check_fields() {
    for (const yaml::Field& field : yaml::fields()) {
      const std::string value = field.write(spec_);
      if (field.required && (value == "null" || value == "\"\"")) {
        problems_.push_back({field.path, "found nothing; allowed: " + field.allowed + ", and it is required; add it"});
      } else if (!field.valid(spec_)) {
        add(field.path, field.allowed, "write one of the allowed values");
      }
    }
  }

  void check_shape() {
    const auto& shape = spec_.shape;
    const std::int64_t ranked = ranked_experts(spec_);
    require(*shape.top_k <= ranked, "shape.top_k",
            "1 .. " + std::to_string(ranked) + " (shape.num_experts" +
                (spec_.special.zero_experts > 0 ? " + special.zero_experts)" : ")"),
            "choose no more experts than there are");
    if (shape.num_layers && shape.num_moe_layers) {
      require(*shape.num_moe_layers <= *shape.num_layers, "shape.num_moe_layers",
              "1 .. " + std::to_string(*shape.num_layers) + " (shape.num_layers)", "correct one of the two");
    }
  }

  void check_score() {
    // A score that exists only for the chosen cannot be what ranks them.
    const auto& selection = spec_.selection;
    if (spec_.score.stage == ScoreStage::kAfterTopk) {
      require(selection.rank_by == RankBy::kLogit, "selection.rank_by", "logit when score.stage is after_topk",
              "rank by logit, or score before_topk");
      require(selection.bias == BiasType::kNone, "selection.bias", "none when score.stage is after_topk",
              "remove the bias, or score before_topk");
    }
    require(spec_.gate.input_norm == InputNorm::kNone || spec_.gate.input_norm_eps, "gate.input_norm_eps",
            "number > 0 when gate.input_norm is set", "give the eps of the norm");
  }

  void check_groups() {
    const auto& selection = spec_.selection;
    const std::int64_t num_experts = *spec_.shape.num_experts;
    const std::int64_t top_k = *spec_.shape.top_k;
    const bool divides = selection.n_group <= num_experts && num_experts % selection.n_group == 0;
    require(divides, "selection.n_group", "divisors of " + std::to_string(num_experts) + " (shape.num_experts)",
            "make the groups equally large");
    require(selection.topk_group <= selection.n_group, "selection.topk_group",
            "1 .. " + std::to_string(selection.n_group) + " (selection.n_group)", "keep no more groups than there are");
    if (!divides || selection.topk_group > selection.n_group) return;

    const std::int64_t group_size = num_experts / selection.n_group;
    const std::int64_t candidates = selection.topk_group * group_size;
    if (selection.n_group > 1 && top_k <= num_experts) {  // else already reported
      require(top_k <= candidates, "shape.top_k",
              "1 .. " + std::to_string(candidates) + " (selection.topk_group groups of " + std::to_string(group_size) +
                  " experts)",
              "keep more groups or choose fewer experts");
    }
    if (selection.topk_scope == TopkScope::kPerGroup) {
      check_per_group();
      return;
    }
    const bool grouped = selection.n_group > 1;
    require(grouped == (selection.group_score != GroupScore::kNone), "selection.group_score",
            grouped ? "max | top2_sum when selection.n_group > 1" : "none when selection.n_group is 1",
            grouped ? "say how groups are scored" : "remove it, or set selection.n_group");
    require(grouped == (selection.group_mask != GroupMask::kNone), "selection.group_mask",
            grouped ? "neg_inf | zero when selection.n_group > 1" : "none when selection.n_group is 1",
            grouped ? "say what rejected experts get as key" : "remove it, or set selection.n_group");
    require(selection.group_score != GroupScore::kTop2Sum || group_size >= 2, "selection.group_score",
            "max for groups of one expert", "top2_sum needs groups of two experts or more");
  }

  // Every group takes part and gives k / n_group winners: there is no group to reject.
  void check_per_group() {
    const auto& selection = spec_.selection;
    require(*spec_.shape.top_k % selection.n_group == 0, "selection.n_group",
            "divisors of " + std::to_string(*spec_.shape.top_k) + " (shape.top_k) when topk_scope is per_group",
            "let every group give the same number of experts");
    require(selection.topk_group == selection.n_group, "selection.topk_group",
            std::to_string(selection.n_group) + " (selection.n_group) when topk_scope is per_group",
            "keep every group");
    require(selection.group_score == GroupScore::kNone, "selection.group_score", "none when topk_scope is per_group",
            "remove it");
    require(selection.group_mask == GroupMask::kNone, "selection.group_mask", "none when topk_scope is per_group",
            "remove it");
  }

  void check_bias() {
    const auto& selection = spec_.selection;
    const std::set<std::string> names(selection.bias_variants.begin(), selection.bias_variants.end());
    const std::size_t count = selection.bias_variants.size();
    require(count > 0 && names.size() == count, "selection.bias_variants", "one name or more, all different",
            "name each row class once");
  }

  void check_weights() {
    const auto& weights = spec_.weights;
    const bool uses_eps = weights.eps_mode != EpsMode::kNone;
    require(uses_eps == (weights.eps != 0.0), "weights.eps",
            uses_eps ? "number > 0 when weights.eps_mode is set" : "0 when weights.eps_mode is none",
            "eps is 0 exactly when eps_mode is none: change one of the two");
    require(weights.source == WeightSource::kUnbiasedScore || spec_.selection.bias != BiasType::kNone, "weights.source",
            "unbiased_score when selection.bias is none", "set selection.bias, or weight by unbiased_score");
    require(weights.renormalize != Renormalize::kLogSpaceL1 || spec_.score.func == ScoreFunc::kSigmoid,
            "weights.renormalize", "none | l1 unless score.func is sigmoid",
            "log_space_l1 is defined on log-sigmoids: score by sigmoid, or use l1");
    if (weights.renormalize == Renormalize::kLogSpaceL1) {
      require(weights.source == WeightSource::kUnbiasedScore, "weights.source",
              "unbiased_score when weights.renormalize is log_space_l1", "the weights come from the logits: remove it");
      require(!uses_eps, "weights.eps_mode", "none when weights.renormalize is log_space_l1",
              "the sum is never below 1: remove it");
    }
  }

  void check_special() {
    const auto& special = spec_.special;
    require(special.shared_experts > 0 || special.shared_mode == SharedMode::kOutsideRouter, "special.shared_mode",
            "outside_router when special.shared_experts is 0", "set special.shared_experts, or remove it");
    const bool has_zero_experts = special.zero_experts > 0;
    require(has_zero_experts == (special.zero_type != ZeroType::kNone), "special.zero_type",
            has_zero_experts ? "identity | identity_remapped_to_id0_weight0 when special.zero_experts > 0"
                             : "none when special.zero_experts is 0",
            "change one of the two");
    require(spec_.selection.n_group == 1 || !has_zero_experts, "special.zero_experts", "0 when selection.n_group > 1",
            "no published router groups its zero experts: remove one of the two");
    if (shared_in_gate(spec_) > 0) {
      require(spec_.score.func != ScoreFunc::kSoftmax, "score.func",
              "sigmoid | sqrt_softplus | identity when special.shared_mode is in_gate",
              "a softmax over the ranked experts gives the shared ones no score: choose another function");
      require(spec_.weights.source == WeightSource::kUnbiasedScore, "weights.source",
              "unbiased_score when special.shared_mode is in_gate", "shared experts have no bias: remove it");
    }
    const std::int64_t pad_id = spec_.outputs.pad_id;
    require(pad_id < 0 || pad_id >= gate_rows(spec_), "outputs.pad_id", "a number that is no expert's id", "use -1");
  }

  void check_methods() {
    const auto& selection = spec_.selection;
    const std::set<std::int64_t> layers(spec_.hash.layers.begin(), spec_.hash.layers.end());
    require(layers.size() == spec_.hash.layers.size(), "hash.layers", "each layer once", "remove the repeated one");
    if (spec_.shape.num_layers && !layers.empty()) {
      require(*layers.rbegin() < *spec_.shape.num_layers, "hash.layers",
              "0 .. " + std::to_string(*spec_.shape.num_layers - 1) + " (below shape.num_layers)",
              "name layers of the model");
    }
    if (selection.method == SelectionMethod::kTopk) return;

    const std::string method = yaml::find_field("selection.method")->write(spec_);
    const std::string when = " when selection.method is " + method;
    require(selection.bias == BiasType::kNone, "selection.bias", "none" + when, "no key is ranked: remove the bias");
    require(selection.n_group == 1, "selection.n_group", "1" + when, "no group is ranked: remove the groups");
    require(spec_.score.stage == ScoreStage::kBeforeTopk, "score.stage", "before_topk" + when, "remove it");
    if (selection.method == SelectionMethod::kHashTable) {
      require(spec_.hash.vocab_size.has_value(), "hash.vocab_size", "integer >= 1" + when,
              "give the number of rows of the table");
      require(spec_.hash.table_dtype != TableType::kNone, "hash.table_dtype", "int32 | int64" + when,
              "give the type of the ids in the table");
    } else {
      require(spec_.sparsemixer_jitter_eps.has_value(), "sparsemixer.jitter_eps", "number > 0" + when,
              "give the relative threshold");
      require(selection.rank_by == RankBy::kLogit, "selection.rank_by", "logit" + when, "set it to logit");
      require(spec_.score.func == ScoreFunc::kSoftmax, "score.func", "softmax" + when,
              "each pass is a softmax: set it to softmax");
      require(spec_.special.zero_experts == 0, "special.zero_experts", "0" + when, "remove them");
    }
  }

  const RouterSpec& spec_;
  std::vector<Problem> problems_;
};

}  // namespace

std::vector<Problem> find_problems(const RouterSpec& spec) {
  return Checker(spec).check();
}

}  // namespace samebits::oracle
