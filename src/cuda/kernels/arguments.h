// The kernels' parameters, one structure for all kernels of a step; arguments.rs says what they mean.
#pragma once

#include "device.h"

struct Scaling {
  float a_min, a_span, b_span, b_min, lowest, highest;
  u32 present;
  float threshold;
  u32 has_threshold;
};

struct Found {
  u64 first[3], end[3];
  u64 nan_count, inf_count;
};

struct ForegroundArguments {
  const void* voxels;
  Found* found;
  u64 first, end;
  u64 dims[3];
  Scaling scaling;
};

struct ResizeArguments {
  const void* voxels;
  float* out;
  double* partial;
  u64 image[3];
  i64 crop_start[3];
  u64 crop_size[3];
  u64 out_size[3];
  Scaling scaling;
  u32 variant;
  u32 tile[2];
  u32 covered[2];
  u32 partials;
};

struct ArgmaxArguments {
  const void* scores;
  u8* labels;
  u64* nan_count;
  u64 voxels;
  u32 classes;
};

constexpr u32 DIGIT_BITS = 12;
constexpr u32 DIGITS = 1u << DIGIT_BITS;

// What is known of the smallest component that stays, and the counters that the next digit of its rank comes from.
struct Selection {
  u64 roots;       // all components
  u64 remaining;   // those that stay and begin with the digits found so far
  u64 size, root;  // the digits found so far
  u32 blocks_done;
  u32 digits_done;
  u32 unused[2];
  u64 histogram[DIGITS];
};

struct ComponentsArguments {
  u8* labels;
  u32* bits;
  void* parents;
  void* sizes;
  void* roots;
  Selection* selection;
  u64 dims[3];
  u64 words;
  u64 keep;
  u32 selected[8];
  u32 connectivity;
  u32 digit;
};

struct ContourArguments {
  const u8* labels;
  u8* out;
  const u32* bits;
  u64 dims[3];
  u64 words;
};

struct ConvertArguments {
  const u8* labels;
  void* out;
  u64 count;
};

struct NativeArguments {
  const u8* labels;
  u8* out;
  u64* grid_count;
  u64* native_count;
  u64 grid[3];
  i64 crop_start[3];
  u64 crop_size[3];
  u64 image[3];
  u32 align_corners;
};
