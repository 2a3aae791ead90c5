// ScaleIntensityRange in float32. Compiled without contraction: each operation is rounded.
#pragma once

#include "arguments.h"

DEVICE float intensity(float voxel) { return voxel; }
DEVICE float intensity(i16 voxel) { return (float)voxel; }

// NaN stays NaN, also through the limits.
DEVICE float scaled(const Scaling& scaling, float value) {
  value = (value - scaling.a_min) / scaling.a_span;
  if (scaling.present & 1) value = value * scaling.b_span + scaling.b_min;
  if ((scaling.present & 2) && value < scaling.lowest) value = scaling.lowest;
  if ((scaling.present & 4) && value > scaling.highest) value = scaling.highest;
  return value;
}
