/* The least that a backend in plain C can do and still keep all rules: OUTPUT of each request is its first input, byte for
 * byte, with statistics. It is the yardstick of what the Rust example `identity` adds, and a known-good subject of the
 * conformance kit. Valid C and C++. */
#include <string.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "triton_abi.h"

#define EXPORT __attribute__((visibility("default")))
#define TRY(call)                       \
  do {                                  \
    TRITONSERVER_Error* failed = call;  \
    if (failed != NULL) return failed;  \
  } while (0)

static uint64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void forget(TRITONSERVER_Error* error) {
  if (error != NULL) TRITONSERVER_ErrorDelete(error);
}

static TRITONSERVER_Error* copy(TRITONBACKEND_Request* request, TRITONBACKEND_Response* response) {
  TRITONBACKEND_Input* input;
  TRITONBACKEND_Output* output;
  const char* name;
  TRITONSERVER_DataType type;
  const int64_t* shape;
  uint32_t dims, buffers, at;
  uint64_t size, piece;
  void* target;
  const void* source;
  TRITONSERVER_MemoryType kind = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  char* end;

  TRY(TRITONBACKEND_RequestInputByIndex(request, 0, &input));
  TRY(TRITONBACKEND_InputProperties(input, NULL, &type, &shape, &dims, &size, &buffers));
  TRY(TRITONBACKEND_RequestOutputName(request, 0, &name));
  TRY(TRITONBACKEND_ResponseOutput(response, &output, name, type, shape, dims));
  TRY(TRITONBACKEND_OutputBuffer(output, &target, size, &kind, &id));
  if (kind == TRITONSERVER_MEMORY_GPU)
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "the output lies on a GPU");
  end = (char*)target;
  for (at = 0; at < buffers; ++at) {
    kind = TRITONSERVER_MEMORY_CPU;
    TRY(TRITONBACKEND_InputBuffer(input, at, &source, &piece, &kind, &id));
    if (kind == TRITONSERVER_MEMORY_GPU)
      return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "the input lies on a GPU");
    if (piece > 0) memcpy(end, source, piece);
    end += piece;
  }
  return NULL;
}

EXPORT TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, const uint32_t count) {
  TRITONBACKEND_Response* responses[64];
  uint32_t at, made;
  if (count > 64) return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, "more than 64 requests at once");
  for (made = 0; made < count; ++made) {
    TRITONSERVER_Error* failed = TRITONBACKEND_ResponseNew(&responses[made], requests[made]);
    if (failed != NULL) {
      /* An error leaves all requests with the server, so no response may be left. */
      while (made > 0) forget(TRITONBACKEND_ResponseDelete(responses[--made]));
      return failed;
    }
  }
  for (at = 0; at < count; ++at) {
    uint64_t start = now_ns(), end;
    TRITONSERVER_Error* failed = copy(requests[at], responses[at]);
    end = now_ns();
    forget(TRITONBACKEND_ModelInstanceReportStatistics(
        instance, requests[at], failed == NULL, start, start, end, end));
    if (failed == NULL) forget(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, 1, start, start, end, end));
    forget(TRITONBACKEND_ResponseSend(responses[at], TRITONSERVER_RESPONSE_COMPLETE_FINAL, failed));
    forget(failed);
    forget(TRITONBACKEND_RequestRelease(requests[at], TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  return NULL;
}

#ifdef __cplusplus
}
#endif
