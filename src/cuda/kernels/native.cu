// Labels on the grid of the input: each voxel of the box takes the nearest label, all others are 0.
#include "arguments.h"
#include "sampling.h"

// The label that a voxel of the input takes along an axis; none outside the box.
DEVICE bool label_at(const NativeArguments& arguments, u32 axis, u64 at, u64& label) {
  const u64 from = arguments.grid[axis], to = arguments.crop_size[axis];
  const u64 in_box = at - (u64)arguments.crop_start[axis];
  // What lies before the box is a very large number.
  if (in_box >= to) return false;
  if (arguments.align_corners) {
    const u64 steps = larger(to, (u64)2) - 1;
    label = (2 * in_box * (from - 1) + steps) / (2 * steps);
  } else {
    label = under_centre(from, in_box, to);
  }
  return true;
}

// Writes the labels of the input's voxels, where there is an output, and counts those above 0. Each thread takes some rows
// at one depth.
KERNEL native_restore(const NativeArguments arguments) {
  const u64 ROWS = 16;
  const u64* image = arguments.image;
  const u64 groups = (image[1] + ROWS - 1) / ROWS, dims[3] = {image[0], groups, image[2]};
  u64 count = 0;
  for (u64 number = thread_number(); number < image[0] * groups * image[2]; number += thread_count()) {
    const Place at = place_of(number, dims);
    u64 i = 0, j = 0, k = 0;
    const bool inside = label_at(arguments, 0, at.i, i) && label_at(arguments, 2, at.k, k);
    for (u64 row = at.j * ROWS; row < smaller((at.j + 1) * ROWS, image[1]); row++) {
      u8 label = 0;
      if (inside && label_at(arguments, 1, row, j)) {
        label = arguments.labels[(i * arguments.grid[1] + j) * arguments.grid[2] + k];
      }
      count += label > 0;
      if (arguments.out != nullptr) arguments.out[(at.i * image[1] + row) * image[2] + at.k] = label;
    }
  }
  count = warp_sum(count);
  if (lane() == 0 && count > 0) atomicAdd(arguments.native_count, count);
}

// Counts the labels above 0 on their own grid.
KERNEL native_count_grid(const NativeArguments arguments) {
  const u64 labels = arguments.grid[0] * arguments.grid[1] * arguments.grid[2];
  const bool aligned = is_aligned(arguments.labels, 4);
  u64 count = 0;
  for (u64 first = thread_number() * 4; first < labels; first += thread_count() * 4) {
    if (aligned && first + 4 <= labels) {
      const Four<u8> group = *(const Four<u8>*)(arguments.labels + first);
      for (u32 n = 0; n < 4; n++) count += group.at[n] > 0;
    } else {
      for (u64 n = first; n < smaller(first + 4, labels); n++) count += arguments.labels[n] > 0;
    }
  }
  count = warp_sum(count);
  if (lane() == 0 && count > 0) atomicAdd(arguments.grid_count, count);
}
