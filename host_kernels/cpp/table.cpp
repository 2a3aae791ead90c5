// The kernels by their names, and how Rust starts them.
#include "all.cu"
#include "launch.h"
#include "broken.cu"

#include <cstdlib>
#include <string>

namespace {

template <typename Arguments>
constexpr size_t size_of_argument(void (*)(Arguments)) {
  return sizeof(Arguments);
}

template <typename Arguments>
void call(void (*kernel)(Arguments), const void* arguments) {
  Arguments copy;
  memcpy(&copy, arguments, sizeof copy);
  kernel(copy);
}

struct Entry {
  const char* name;
  size_t argument_bytes;
  void (*call)(const void*);
};

#define ENTRY(kernel) {#kernel, size_of_argument(kernel), [](const void* arguments) { call(kernel, arguments); }}

const Entry ENTRIES[] = {
    ENTRY(foreground_fp32),       ENTRY(foreground_int16),      ENTRY(resize_area_fp32),
    ENTRY(resize_area_int16),     ENTRY(resize_large_fp32),     ENTRY(resize_large_int16),
    ENTRY(resize_mean_fp32),      ENTRY(resize_mean_int16),     ENTRY(resize_mean_of_parts),
    ENTRY(resize_nearest_fp32),   ENTRY(resize_nearest_int16),  ENTRY(resize_trilinear_fp32),
    ENTRY(resize_trilinear_int16), ENTRY(argmax_fp32),          ENTRY(argmax_fp16),
    ENTRY(components_pack),       ENTRY(components_link_u32),   ENTRY(components_link_u64),
    ENTRY(components_merge_u32),  ENTRY(components_merge_u64),  ENTRY(components_count_u32),
    ENTRY(components_count_u64),  ENTRY(components_select_u32), ENTRY(components_select_u64),
    ENTRY(components_clear_u32),  ENTRY(components_clear_u64),  ENTRY(contour_mask),
    ENTRY(contour_labels),        ENTRY(convert_fp32),          ENTRY(convert_fp16),
    ENTRY(convert_int32),         ENTRY(convert_int64),         ENTRY(native_restore),
    ENTRY(native_count_grid),      ENTRY(broken_missing_barrier),
    ENTRY(broken_shuffle_mask),   ENTRY(broken_no_error),       ENTRY(broken_past_the_end),
};
constexpr size_t COUNT = sizeof ENTRIES / sizeof *ENTRIES;

}  // namespace

extern "C" {

// The number of a kernel, or -1.
int host_kernels_find(const char* name) {
  for (size_t n = 0; n < COUNT; n++) {
    if (strcmp(ENTRIES[n].name, name) == 0) return (int)n;
  }
  return -1;
}

size_t host_kernels_argument_bytes(int kernel) { return ENTRIES[kernel].argument_bytes; }

// Runs a kernel. On failure 1 is returned, and the error, cut where it does not fit, with a 0 at its end.
int host_kernels_run(int kernel, uint32_t grid, uint32_t block, uint32_t shared_bytes, const void* arguments,
                     uint64_t seed, uint32_t workers, char* error, size_t error_size) {
  const Entry& entry = ENTRIES[kernel];
  const host::Launch launch = {entry.name, entry.call, arguments, grid, block, shared_bytes, seed, workers};
  const std::string found = host::run(launch);
  if (found.empty()) return 0;
  snprintf(error, error_size, "%s", found.c_str());
  return 1;
}
}
