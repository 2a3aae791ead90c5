// What all kernels use. The same source is compiled for GPUs by two versions of NVRTC and, for the tests, as host C++.
#pragma once

typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef short i16;
typedef unsigned char u8;

#ifdef __CUDACC_RTC__

#define KERNEL extern "C" __global__ void
#define DEVICE static __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__

// The block's shared memory whose size the launch says.
#define DYNAMIC_SHARED(Type, name) extern __shared__ Type name[]

// Reads and writes of what other threads change at the same time.
template <typename T>
DEVICE T relaxed_load(const T* place) {
  return *(const volatile T*)place;
}

template <typename T>
DEVICE void relaxed_store(T* place, T value) {
  *(volatile T*)place = value;
}

#else
#include "host.h"
#endif

constexpr u32 ALL_LANES = 0xFFFFFFFFu;
constexpr u32 WARP = 32;

DEVICE u64 thread_number() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
DEVICE u64 thread_count() { return (u64)gridDim.x * blockDim.x; }
DEVICE u32 lane() { return threadIdx.x % WARP; }
DEVICE u32 warp() { return threadIdx.x / WARP; }
DEVICE u32 warps() { return blockDim.x / WARP; }

template <typename T>
DEVICE T smaller(T a, T b) {
  return b < a ? b : a;
}

template <typename T>
DEVICE T larger(T a, T b) {
  return a < b ? b : a;
}

// The place of a voxel in C order.
struct Place {
  u64 i, j, k;
};

DEVICE Place place_of(u64 index, const u64* dims) {
  Place place;
  if (index <= 0xFFFFFFFFu && dims[1] <= 0xFFFFFFFFu && dims[2] <= 0xFFFFFFFFu) {
    // Division by 64-bit numbers is slow.
    u32 narrow = (u32)index, row = narrow / (u32)dims[2], plane = row / (u32)dims[1];
    place.k = narrow - row * (u32)dims[2];
    place.j = row - plane * (u32)dims[1];
    place.i = plane;
  } else {
    u64 row = index / dims[2];
    place.k = index - row * dims[2];
    place.i = row / dims[1];
    place.j = row - place.i * dims[1];
  }
  return place;
}

// Four elements that are read or written at once.
template <typename T>
struct alignas(4 * sizeof(T)) Four {
  T at[4];
};

template <typename T>
DEVICE bool is_aligned(const T* place, u32 elements) {
  return (u64)place % (elements * sizeof(T)) == 0;
}

template <typename T>
DEVICE T warp_sum(T value) {
  for (u32 step = WARP / 2; step > 0; step /= 2) value += __shfl_xor_sync(ALL_LANES, value, step);
  return value;
}
