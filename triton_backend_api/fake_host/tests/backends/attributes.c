/* A backend that asks in the way of those built on the server's C++ utilities: for buffer attributes, and for the words of the
 * server's numbers. It also makes a call that the fake host does not have, and does without. All that it is told is checked. */
#include <string.h>

#include "triton_abi.h"

struct TRITONSERVER_BufferAttributes;
TRITONSERVER_Error* TRITONBACKEND_InputBufferAttributes(
    TRITONBACKEND_Input*, const uint32_t, const void**, struct TRITONSERVER_BufferAttributes**);
TRITONSERVER_Error* TRITONSERVER_BufferAttributesByteSize(struct TRITONSERVER_BufferAttributes*, size_t*);
TRITONSERVER_Error* TRITONSERVER_BufferAttributesMemoryType(struct TRITONSERVER_BufferAttributes*, TRITONSERVER_MemoryType*);
TRITONSERVER_Error* TRITONSERVER_ServerUnloadModel(TRITONSERVER_Server*, const char*);
const char* TRITONSERVER_DataTypeString(TRITONSERVER_DataType);
uint32_t TRITONSERVER_DataTypeByteSize(TRITONSERVER_DataType);
TRITONSERVER_DataType TRITONSERVER_StringToDataType(const char*);
const char* TRITONSERVER_MemoryTypeString(TRITONSERVER_MemoryType);
const char* TRITONSERVER_ErrorCodeString(TRITONSERVER_Error*);

static void forget(TRITONSERVER_Error* error) {
  if (error != NULL) TRITONSERVER_ErrorDelete(error);
}

static TRITONSERVER_Error* wrong(const char* what) { return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, what); }

static TRITONSERVER_Error* look(TRITONBACKEND_Request* request) {
  TRITONBACKEND_Input* input;
  TRITONSERVER_DataType type;
  TRITONSERVER_MemoryType memory;
  TRITONSERVER_Error* error;
  uint64_t size;
  size_t piece, total = 0;
  uint32_t buffers, at;
  const char* word;

  if ((error = TRITONBACKEND_RequestInputByIndex(request, 0, &input)) != NULL) return error;
  if ((error = TRITONBACKEND_InputProperties(input, NULL, &type, NULL, NULL, &size, &buffers)) != NULL) return error;
  for (at = 0; at < buffers; ++at) {
    struct TRITONSERVER_BufferAttributes* attributes;
    const void* buffer;
    if ((error = TRITONBACKEND_InputBufferAttributes(input, at, &buffer, &attributes)) != NULL) return error;
    if ((error = TRITONSERVER_BufferAttributesByteSize(attributes, &piece)) != NULL) return error;
    if ((error = TRITONSERVER_BufferAttributesMemoryType(attributes, &memory)) != NULL) return error;
    if (strcmp(TRITONSERVER_MemoryTypeString(memory), "CPU") != 0) return wrong("not the name of host memory");
    total += piece;
  }
  if (total != size) return wrong("the buffers are not the input");
  word = TRITONSERVER_DataTypeString(type);
  if (strcmp(word, "FP32") != 0 || TRITONSERVER_StringToDataType(word) != type) return wrong("not the name of FP32");
  if (TRITONSERVER_DataTypeByteSize(type) != 4) return wrong("not the size of FP32");
  error = TRITONSERVER_ServerUnloadModel(NULL, "m");
  if (error == NULL) return wrong("a call that is not there succeeded");
  at = (uint32_t)strcmp(TRITONSERVER_ErrorCodeString(error), "Unsupported");
  forget(error);
  return at == 0 ? NULL : wrong("not the code of a call that is not there");
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, const uint32_t count) {
  uint32_t at;
  for (at = 0; at < count; ++at) {
    TRITONBACKEND_Response* response;
    /* Only a lone request may be left with the server: the others would be answered by then. */
    TRITONSERVER_Error* error = TRITONBACKEND_ResponseNew(&response, requests[at]);
    (void)instance;
    if (error != NULL && at == 0) return error;
    if (error != NULL) {
      forget(error);
      forget(TRITONBACKEND_ResponseNew(&response, requests[at])); /* a fault comes once */
    }
    error = look(requests[at]);
    forget(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
    forget(error);
    forget(TRITONBACKEND_RequestRelease(requests[at], TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  return NULL;
}
