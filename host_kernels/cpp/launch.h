// One launch, as the host runs it.
#pragma once

#include <string>

#include "host.h"

namespace host {

struct Launch {
  const char* name;
  void (*call)(const void* arguments);
  const void* arguments;
  uint32_t grid, block, shared_bytes;
  uint64_t seed;
  uint32_t workers;
};

// The error of a kernel that waits for what never comes or exchanges with whom it must not; else empty.
std::string run(const Launch& launch);

}  // namespace host
