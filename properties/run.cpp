#include "properties/run.h"

namespace samebits::properties {

const char* name_of(Misuse misuse) {
  switch (misuse) {
    case Misuse::kNone:
      break;
    case Misuse::kInputColumns:
      return "input_columns";
    case Misuse::kInputDtype:
      return "input_dtype";
    case Misuse::kAbsentInput:
      return "absent_input";
    case Misuse::kIdsDtype:
      return "ids_dtype";
    case Misuse::kIdsColumns:
      return "ids_columns";
    case Misuse::kIdsRows:
      return "ids_rows";
    case Misuse::kAbsentIds:
      return "absent_ids";
    case Misuse::kWeightsDtype:
      return "weights_dtype";
    case Misuse::kWeightsColumns:
      return "weights_columns";
    case Misuse::kAbsentWeights:
      return "absent_weights";
    case Misuse::kNegativeTokens:
      return "negative_tokens";
    case Misuse::kTooManyTokens:
      return "too_many_tokens";
    case Misuse::kAbsentTokenIds:
      return "absent_token_ids";
    case Misuse::kTokenIdsDtype:
      return "token_ids_dtype";
    case Misuse::kTokenIdsColumns:
      return "token_ids_columns";
    case Misuse::kRowClassDtype:
      return "row_class_dtype";
    case Misuse::kRowClassColumns:
      return "row_class_columns";
    case Misuse::kUnknownScore:
      return "unknown_score";
    case Misuse::kTopKTooLarge:
      return "top_k_too_large";
    case Misuse::kGateColumns:
      return "gate_columns";
    case Misuse::kAbsentBias:
      return "absent_bias";
    case Misuse::kTableId:
      return "table_id";
    case Misuse::kTableRepeat:
      return "table_repeat";
  }
  return "none";
}

bool is_ordinary(const RunRequest& request) {
  return request.layout == Layout{} && request.constants_gap == 0 && request.earlier.empty() &&
         request.other_router == OtherRouter::kNone && request.launch == Launch::kDirect &&
         request.misuse == Misuse::kNone && request.variation == Variation::kNone;
}

}  // namespace samebits::properties
