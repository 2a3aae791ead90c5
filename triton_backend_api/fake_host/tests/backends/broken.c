/* A backend that answers every request with nothing, and breaks one rule: BREAK says which. */
#include <stdlib.h>
#include <string.h>

#include "triton_abi.h"

enum { LEAKS_THE_REQUEST = 1, SENDS_TWICE, FORGETS_THE_RESPONSE, FAILS_AFTER_SENDING, LEAKS_AN_ERROR, WRITES_TOO_FAR, CRASHES };

static void forget(TRITONSERVER_Error* error) {
  if (error != NULL && BREAK != LEAKS_AN_ERROR) TRITONSERVER_ErrorDelete(error);
}

static void write_too_far(TRITONBACKEND_Response* response) {
  TRITONBACKEND_Output* output;
  TRITONSERVER_MemoryType kind = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0, shape[] = {1, 4};
  void* place;
  forget(TRITONBACKEND_ResponseOutput(response, &output, "OUT", TRITONSERVER_TYPE_UINT8, shape, 2));
  forget(TRITONBACKEND_OutputBuffer(output, &place, 4, &kind, &id));
  memset(place, 0, 5);
}

static void answer(TRITONBACKEND_Request* request) {
  TRITONBACKEND_Response* response;
  TRITONSERVER_Error* error = TRITONBACKEND_ResponseNew(&response, request);
  if (error != NULL) {
    forget(error);
    return;
  }
  if (BREAK == WRITES_TOO_FAR) write_too_far(response);
  forget(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, NULL));
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, const uint32_t count) {
  uint32_t at;
  (void)instance;
  for (at = 0; at < count; ++at) {
    uint64_t nothing;
    if (BREAK == CRASHES) abort();
    /* The server answers with an error where the id is a number or a string that was not asked for. */
    forget(TRITONBACKEND_RequestCorrelationIdString(requests[at], (const char**)&nothing));
    if (BREAK != FORGETS_THE_RESPONSE) answer(requests[at]);
    if (BREAK == SENDS_TWICE) answer(requests[at]);
    if (BREAK == FAILS_AFTER_SENDING) return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "too late");
    if (BREAK != LEAKS_THE_REQUEST) forget(TRITONBACKEND_RequestRelease(requests[at], TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  return NULL;
}
