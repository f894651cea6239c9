/* A router that does nothing right but its manners: ids 0 .. K-1, equal weights, padding as demanded. One macro
 * FAULT_... makes it misbehave in one way. */
#define _GNU_SOURCE
#include <samebits/samebits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct samebits_router {
  samebits_router_spec spec;
  const float* bias; /* the caller's memory: only FAULT_KEEP_CONSTANT reads it in a call */
};

#ifdef FAULT_THREAD_OF_CREATE
static __thread int created_here; /* how many routers this thread has created */
#endif

static void* volatile nowhere = NULL;
static inline void crash(void) {
  *(int*)nowhere = 1;
}
static inline void hang(void) {
  volatile int forever = 1;
  while (forever) {
  }
}
void throw_exception(void); /* throw.cpp */

#ifdef FAULT_CRASH_IN_CONSTRUCTOR
__attribute__((constructor)) static void constructor(void) {
  crash();
}
#endif
#ifdef FAULT_HANG_IN_CONSTRUCTOR
__attribute__((constructor)) static void constructor(void) {
  hang();
}
#endif

uint32_t samebits_abi_version(void) {
#ifdef FAULT_CRASH_IN_VERSION
  crash();
#endif
#ifdef FAULT_WRONG_VERSION
  return 7;
#else
  return SAMEBITS_ABI_VERSION;
#endif
}

samebits_status samebits_describe(samebits_info* info) {
  const uint32_t size = info->struct_size;
  memset(info, 0, size);
  info->struct_size = size;
  info->abi_version = SAMEBITS_ABI_VERSION;
  strcpy(info->name, "faulty");
  strcpy(info->version, "1.2");
  strcpy(info->arithmetic, "fp32-any-order");
  info->memory_kinds = SAMEBITS_MEMORY_HOST;
  info->determinism = SAMEBITS_RUN_TO_RUN;
  info->output_order = SAMEBITS_ORDER_ANY;
  info->max_experts = 64;
#if defined(FAULT_CLAIMS_TC256)
  strcpy(info->arithmetic, "tc256");
  info->determinism = SAMEBITS_BATCH_INVARIANT;
  info->tie_break = SAMEBITS_TIES_LOWEST_INDEX;
  info->output_order = SAMEBITS_ORDER_KEY_DESC_THEN_INDEX;
  info->returns_logits = 1;
  info->returns_bookkeeping = 1;
  info->max_tokens = 77;
#elif defined(FAULT_DEVICE_ONLY)
  info->memory_kinds = SAMEBITS_MEMORY_DEVICE;
#elif defined(FAULT_PRINTS)
  printf("describe says hello\n");
  fflush(stdout);
#elif defined(FAULT_CRASH_IN_DESCRIBE)
  crash();
#elif defined(FAULT_HANG_IN_DESCRIBE)
  hang();
#elif defined(FAULT_EXIT_IN_DESCRIBE)
  exit(0);
#elif defined(FAULT_UNKNOWN_ARITHMETIC)
  strcpy(info->arithmetic, "fp16");
#elif defined(FAULT_UNTERMINATED_NAME)
  memset(info->name, 'x', sizeof(info->name));
#elif defined(FAULT_NO_MEMORY_KIND)
  info->memory_kinds = 0;
#elif defined(FAULT_WRONG_STRUCT_SIZE)
  info->struct_size = 12;
#elif defined(FAULT_HUGE_STRUCT_SIZE)
  info->struct_size = 0xffffffffu;
#elif defined(FAULT_LONG_INFO)
  memset((char*)info + size, 0, 30000);
#elif defined(FAULT_INFO_OVERRUN)
  ((char*)info)[size] = 0;
#elif defined(FAULT_DESCRIBE_FAILS)
  return SAMEBITS_INTERNAL_ERROR;
#endif
  return SAMEBITS_OK;
}

samebits_status samebits_supports(const samebits_router_spec* spec, char* reason, size_t reason_size) {
  (void)spec;
  (void)reason;
  (void)reason_size;
#if defined(FAULT_REFUSES)
  snprintf(reason, reason_size, "top_k is %d; this router does 1000", spec->top_k);
  return SAMEBITS_UNSUPPORTED;
#elif defined(FAULT_CRASH_IN_SUPPORTS)
  crash();
#elif defined(FAULT_UNKNOWN_SUPPORT)
  return 77;
#endif
  return SAMEBITS_OK;
}

int32_t samebits_topk_columns(const samebits_router_spec* spec) {
#ifdef FAULT_CRASH_IN_COLUMNS
  crash();
#endif
#ifdef FAULT_WRONG_COLUMNS
  return spec->top_k + 1;
#else
  return spec->top_k;
#endif
}

samebits_status samebits_create(const samebits_router_spec* spec, const samebits_constants* constants,
                                samebits_router** router) {
  *router = NULL;
#if defined(FAULT_CRASH_IN_CREATE)
  crash();
#elif defined(FAULT_ERROR_IN_CREATE)
  return SAMEBITS_OUT_OF_MEMORY;
#elif defined(FAULT_NO_ROUTER)
  return SAMEBITS_OK;
#elif defined(FAULT_CHANGE_CONSTANT)
  ((float*)constants->selection_bias.data)[1] = 99.0f;
#endif
#ifdef FAULT_THREAD_OF_CREATE
  ++created_here;
#endif
  *router = malloc(sizeof(**router));
  (*router)->spec = *spec;
  (*router)->bias = constants->selection_bias.data;
  return SAMEBITS_OK;
}

size_t samebits_workspace_bytes(const samebits_router* router, int64_t max_tokens) {
  (void)router;
  (void)max_tokens;
#ifdef FAULT_HUGE_WORKSPACE
  return (size_t)-1;
#elif defined(FAULT_LARGE_WORKSPACE)
  return ((size_t)1 << 30) + 1;
#else
#ifdef FAULT_CRASH_IN_WORKSPACE_BYTES
  crash();
#endif
  return 16;
#endif
}

samebits_status samebits_workspace_init(const samebits_router* router, void* workspace, size_t bytes, void* stream) {
  (void)router;
  (void)stream;
  memset(workspace, 0, bytes);
#if defined(FAULT_OVERRUN_WORKSPACE)
  ((char*)workspace)[bytes + 3] = 0;
#elif defined(FAULT_ERROR_IN_INIT)
  return SAMEBITS_INVALID_ARGUMENT;
#elif defined(FAULT_HANG_IN_WORKSPACE_INIT)
  hang();
#endif
  return SAMEBITS_OK;
}

samebits_status samebits_route(const samebits_router* router, const samebits_inputs* inputs, samebits_outputs* outputs,
                               void* workspace, void* stream) {
  const int64_t tokens = inputs->num_tokens;
  const int32_t k = router->spec.top_k;
  const int64_t valid = inputs->num_valid_rows == NULL ? tokens : *inputs->num_valid_rows;
  int32_t* ids = outputs->topk_ids.data;
  float* weights = outputs->topk_weights.data;
  float weight = 1.0f / (float)k;
  (void)workspace;
  (void)stream;
#if defined(FAULT_WRITE_NOTHING)
  return SAMEBITS_OK;
#elif defined(FAULT_ERROR)
  return SAMEBITS_UNSUPPORTED;
#elif defined(FAULT_ERROR_WITHOUT_TEXT)
  return 42;
#elif defined(FAULT_CRASH_IN_ROUTE)
  crash();
#elif defined(FAULT_CRASH_AT_THREE_TOKENS)
  if (tokens == 3) crash();
#elif defined(FAULT_ERROR_AT_THREE_TOKENS)
  if (tokens == 3) return SAMEBITS_UNSUPPORTED;
#elif defined(FAULT_COUNT_CALLS)
  weight = (float)++*(int32_t*)workspace;
#elif defined(FAULT_HANG_IN_ROUTE)
  hang();
#elif defined(FAULT_EXIT_IN_ROUTE)
  exit(0);
#elif defined(FAULT_LEAVES_A_CHILD)
  if (fork() == 0) {
    for (;;) pause();
  }
#elif defined(FAULT_CLOSE_DESCRIPTORS)
  for (int fd = 0; fd < 100; ++fd) close(fd);
#elif defined(FAULT_CLOSE_AND_HANG)
  for (int fd = 0; fd < 100; ++fd) close(fd);
  hang();
#elif defined(FAULT_WRITE_TO_CONNECTION)
  for (int fd = 3; fd < 100; ++fd) {
    if (write(fd, "hello", 5) < 0) continue;
  }
#elif defined(FAULT_PRINTS)
  printf("route says hello\n");
  fflush(stdout);
#elif defined(FAULT_THROWS)
  throw_exception();
#elif defined(FAULT_THREAD_OF_CREATE)
  weight = (float)created_here;
#elif defined(FAULT_KEEP_CONSTANT)
  weight = router->bias[0];
#elif defined(FAULT_CHANGE_INPUT)
  ((uint16_t*)inputs->hidden_states.data)[2] ^= 1;
#endif
  for (int64_t row = 0; row < tokens; ++row) {
    for (int32_t column = 0; column < k; ++column) {
      ids[row * outputs->topk_ids.row_stride + column] = row < valid ? column : -1;
      weights[row * outputs->topk_weights.row_stride + column] = row < valid ? weight : 0.0f;
    }
  }
#if defined(FAULT_WRITE_AFTER)
  ids[tokens * k] = 5;
#elif defined(FAULT_WRITE_FAR_AFTER)
  ids[tokens * k + 20] = 5;
#elif defined(FAULT_WRITE_BEFORE)
  weights[-2] = 5.0f;
#elif defined(FAULT_WRITE_ONE_BEFORE)
  weights[-1] = 5.0f;
#elif defined(FAULT_WRITE_GAP)
  if (outputs->topk_ids.row_stride > k) ids[k] = 5;
#elif defined(FAULT_WRITE_THEN_ERROR)
  return SAMEBITS_UNSUPPORTED;
#endif
  strcpy(outputs->kernel_name, "constant");
  return SAMEBITS_OK;
}

#ifndef FAULT_MISSING_SYMBOL
samebits_status samebits_route_from_logits(const samebits_router* router, const samebits_inputs* inputs,
                                           samebits_outputs* outputs, void* workspace, void* stream) {
  return samebits_route(router, inputs, outputs, workspace, stream);
}
#endif

const char* samebits_last_error(const samebits_router* router) {
  (void)router;
#ifdef FAULT_ERROR_WITHOUT_TEXT
  return NULL;
#else
  return "the text of the plug-in";
#endif
}

void samebits_destroy(samebits_router* router) {
  free(router);
#if defined(FAULT_CRASH_IN_DESTROY)
  crash();
#elif defined(FAULT_HANG_IN_DESTROY)
  hang();
#elif defined(FAULT_EXIT_IN_DESTROY)
  exit(0);
#endif
}
