// Which voxel along an axis a resampled voxel takes: `from` voxels become `to`, and this is the one at `at`.
#pragma once

#include "device.h"

// Positions along an axis are float32, and multiplied and added with one rounding, as in the reference: at an exact tie one
// rounding more or less is another voxel.
DEVICE float centre(u64 from, u64 at, u64 to) {
  const float ratio = (float)from / (float)to;
  return fmaxf(__fmaf_rn((float)at + 0.5f, ratio, -0.5f), 0.0f);
}

DEVICE u64 rounded_down(float position, u64 from) { return smaller((u64)floorf(position), from - 1); }

// `nearest-exact`.
DEVICE u64 under_centre(u64 from, u64 at, u64 to) { return rounded_down(centre(from, at, to) + 0.5f, from); }
