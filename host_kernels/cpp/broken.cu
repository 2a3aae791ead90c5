// Kernels with mistakes that the host must notice, and one of the same kind without.
#include "device.h"

struct BrokenArguments {
  const u32* values;
  u32* out;
};

// Turns a block's values round by way of shared memory.
DEVICE void turn_round(const BrokenArguments& arguments, bool with_barrier) {
  __shared__ u32 turned[1024];
  turned[blockDim.x - 1 - threadIdx.x] = arguments.values[thread_number()];
  if (with_barrier) __syncthreads();
  arguments.out[thread_number()] = turned[threadIdx.x];
}

KERNEL broken_no_error(const BrokenArguments arguments) { turn_round(arguments, true); }

// Reads what other threads have perhaps not written.
KERNEL broken_missing_barrier(const BrokenArguments arguments) { turn_round(arguments, false); }

// Names lanes that do not take part.
KERNEL broken_shuffle_mask(const BrokenArguments arguments) {
  u32 value = arguments.values[thread_number()];
  if (lane() < 16) value += __shfl_xor_sync(ALL_LANES, value, 1);
  arguments.out[thread_number()] = value;
}

// Writes one element too many.
KERNEL broken_past_the_end(const BrokenArguments arguments) {
  arguments.out[thread_number() + 1] = arguments.values[thread_number()];
}
