// What a kernel sees of its block and warp, on the host: device.h includes this in place of what NVRTC knows by itself.
//
// Every thread of a block is a fiber. It runs until it waits for others (a barrier, or an exchange within its warp), or now
// and then at an access that other threads may see, and then another fiber goes on: which one, a seed decides. Nothing
// keeps the lanes of a warp together, so code that relies on lockstep fails here.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#define KERNEL extern "C" void
#define DEVICE static inline
#define DEVICE_MEMBER inline
// A block stays on one thread of the host from its beginning to its end.
#define __shared__ static thread_local
#define DYNAMIC_SHARED(Type, name) Type* name = (Type*)host::dynamic_shared()

struct Dimensions {
  uint32_t x, y, z;
};
extern thread_local Dimensions threadIdx, blockIdx, blockDim, gridDim;

namespace host {

enum Exchange : uint32_t { SHUFFLE, SHUFFLE_XOR, SHUFFLE_UP, SHUFFLE_DOWN, BALLOT, SYNC };

void* dynamic_shared();
void barrier(const char* file, int line);
// Waits for all lanes of the mask and returns what the exchange gives to this one.
uint64_t exchange(Exchange kind, uint32_t mask, uint64_t value, uint32_t argument);
// Another fiber may go on here.
void maybe_yield();

template <typename T>
T shuffle(Exchange kind, uint32_t mask, T value, uint32_t argument) {
  static_assert(sizeof(T) <= 8, "at most 64 bits are exchanged");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  bits = exchange(kind, mask, bits, argument);
  memcpy(&value, &bits, sizeof(T));
  return value;
}

// The type of a kernel's value operands is that of the place.
template <typename T>
struct Same {
  typedef T Type;
};

}  // namespace host

#define __syncthreads() host::barrier(__FILE__, __LINE__)
#define __syncwarp(mask) host::exchange(host::SYNC, mask, 0, 0)
#define __shfl_sync(mask, value, lane) host::shuffle(host::SHUFFLE, mask, value, lane)
#define __shfl_xor_sync(mask, value, bits) host::shuffle(host::SHUFFLE_XOR, mask, value, bits)
#define __shfl_up_sync(mask, value, distance) host::shuffle(host::SHUFFLE_UP, mask, value, distance)
#define __shfl_down_sync(mask, value, distance) host::shuffle(host::SHUFFLE_DOWN, mask, value, distance)
#define __ballot_sync(mask, condition) ((uint32_t)host::exchange(host::BALLOT, mask, (condition) ? 1 : 0, 0))
// Atomics are sequentially consistent here, so a missing fence is one thing that the host does not notice.
#define __threadfence() __atomic_signal_fence(__ATOMIC_SEQ_CST)

template <typename T>
T relaxed_load(const T* place) {
  host::maybe_yield();
  return __atomic_load_n(place, __ATOMIC_RELAXED);
}

template <typename T>
void relaxed_store(T* place, typename host::Same<T>::Type value) {
  host::maybe_yield();
  __atomic_store_n(place, value, __ATOMIC_RELAXED);
}

template <typename T>
T atomicAdd(T* place, typename host::Same<T>::Type value) {
  host::maybe_yield();
  return __atomic_fetch_add(place, value, __ATOMIC_SEQ_CST);
}

template <typename T>
T atomicCAS(T* place, typename host::Same<T>::Type expected, typename host::Same<T>::Type value) {
  host::maybe_yield();
  __atomic_compare_exchange_n(place, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}

template <typename T>
T atomicMin(T* place, typename host::Same<T>::Type value) {
  host::maybe_yield();
  T seen = __atomic_load_n(place, __ATOMIC_SEQ_CST);
  while (value < seen && !__atomic_compare_exchange_n(place, &seen, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return seen;
}

template <typename T>
T atomicMax(T* place, typename host::Same<T>::Type value) {
  host::maybe_yield();
  T seen = __atomic_load_n(place, __ATOMIC_SEQ_CST);
  while (seen < value && !__atomic_compare_exchange_n(place, &seen, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return seen;
}

static inline int __ffs(uint32_t bits) { return __builtin_ffs((int)bits); }
static inline int __clz(uint32_t bits) { return bits == 0 ? 32 : __builtin_clz(bits); }
static inline int __popc(uint32_t bits) { return __builtin_popcount(bits); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline int __float_as_int(float value) {
  int bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
