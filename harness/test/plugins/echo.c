/* A router that answers every call with an error whose text lists the tensors that it was given. */
#include <samebits/samebits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_SIZE = 1024 };

struct samebits_router {
  samebits_router_spec spec;
  char constants[TEXT_SIZE];
};

static char last_error[TEXT_SIZE];

static void append(char* text, const char* word) {
  strncat(text, word, TEXT_SIZE - 1 - strlen(text));
}

/* " name[rows,cols]dtype:value,value"; nothing for a tensor that is absent. */
static void append_tensor(char* text, const char* name, const samebits_tensor* tensor) {
  char word[64];
  if (tensor->data == NULL) return;
  snprintf(word, sizeof(word), " %s[%d,%d]%d:", name, (int)tensor->rows, (int)tensor->cols, tensor->dtype);
  append(text, word);
  for (int64_t row = 0; row < tensor->rows; ++row) {
    for (int64_t column = 0; column < tensor->cols; ++column) {
      const int64_t place = row * tensor->row_stride + column;
      if (tensor->dtype == SAMEBITS_FP32) snprintf(word, sizeof(word), "%g,", ((const float*)tensor->data)[place]);
      if (tensor->dtype == SAMEBITS_BF16) snprintf(word, sizeof(word), "%x,", ((const uint16_t*)tensor->data)[place]);
      if (tensor->dtype == SAMEBITS_INT32) snprintf(word, sizeof(word), "%d,", ((const int32_t*)tensor->data)[place]);
      if (tensor->dtype == SAMEBITS_INT64) {
        snprintf(word, sizeof(word), "%lld,", (long long)((const int64_t*)tensor->data)[place]);
      }
      append(text, word);
    }
  }
}

uint32_t samebits_abi_version(void) {
  return SAMEBITS_ABI_VERSION;
}

samebits_status samebits_describe(samebits_info* info) {
  const uint32_t size = info->struct_size;
  memset(info, 0, size);
  info->struct_size = size;
  info->abi_version = SAMEBITS_ABI_VERSION;
  strcpy(info->name, "echo");
  strcpy(info->version, "1");
  strcpy(info->arithmetic, "fp32-depth:24");
  info->memory_kinds = SAMEBITS_MEMORY_HOST;
  return SAMEBITS_OK;
}

samebits_status samebits_supports(const samebits_router_spec* spec, char* reason, size_t reason_size) {
  (void)spec;
  (void)reason;
  (void)reason_size;
  return SAMEBITS_OK;
}

int32_t samebits_topk_columns(const samebits_router_spec* spec) {
  return spec->top_k + (spec->shared_mode == SAMEBITS_SHARED_IN_GATE ? spec->shared_experts : 0);
}

samebits_status samebits_create(const samebits_router_spec* spec, const samebits_constants* constants,
                                samebits_router** router) {
  *router = calloc(1, sizeof(**router));
  (*router)->spec = *spec;
  char* text = (*router)->constants;
  append_tensor(text, "gate_weight", &constants->gate_weight);
  append_tensor(text, "linear_bias", &constants->linear_bias);
  append_tensor(text, "selection_bias", &constants->selection_bias);
  append_tensor(text, "input_scale_vector", &constants->input_scale_vector);
  append_tensor(text, "per_expert_scale", &constants->per_expert_scale);
  append_tensor(text, "global_scale", &constants->global_scale);
  append_tensor(text, "hash_table", &constants->hash_table);
  return SAMEBITS_OK;
}

size_t samebits_workspace_bytes(const samebits_router* router, int64_t max_tokens) {
  (void)router;
  (void)max_tokens;
  return 16;
}

samebits_status samebits_workspace_init(const samebits_router* router, void* workspace, size_t bytes, void* stream) {
  (void)router;
  (void)stream;
  memset(workspace, 0, bytes);
  return SAMEBITS_OK;
}

/* Nothing but the outputs' sizes is looked at. */
samebits_status samebits_route(const samebits_router* router, const samebits_inputs* inputs, samebits_outputs* outputs,
                               void* workspace, void* stream) {
  char word[64];
  (void)workspace;
  (void)stream;
  strcpy(last_error, router->constants);
  append_tensor(last_error, "hidden_states", &inputs->hidden_states);
  append_tensor(last_error, "router_logits", &inputs->router_logits);
  append_tensor(last_error, "token_ids", &inputs->token_ids);
  append_tensor(last_error, "row_class", &inputs->row_class);
  snprintf(word, sizeof(word), " ids[%d,%d] weights[%d,%d] logits[%d,%d]", (int)outputs->topk_ids.rows,
           (int)outputs->topk_ids.cols, (int)outputs->topk_weights.rows, (int)outputs->topk_weights.cols,
           (int)outputs->router_logits.rows, (int)outputs->router_logits.cols);
  append(last_error, word);
  return SAMEBITS_INTERNAL_ERROR;
}

samebits_status samebits_route_from_logits(const samebits_router* router, const samebits_inputs* inputs,
                                           samebits_outputs* outputs, void* workspace, void* stream) {
  return samebits_route(router, inputs, outputs, workspace, stream);
}

const char* samebits_last_error(const samebits_router* router) {
  (void)router;
  return last_error;
}

void samebits_destroy(samebits_router* router) {
  free(router);
}
