// LabelToContour: 1 where 27 times the label exceeds the sum of the 27 labels around and at it; outside the volume lies 0.
#include "arguments.h"

// The bits of a mask that have their neighbours on both sides of their row.
DEVICE u32 without_ends(const u32* row, u64 word, u64 words) {
  u32 here = row[word];
  u32 before = word > 0 ? row[word - 1] >> 31 : 0, after = word + 1 < words ? row[word + 1] << 31 : 0;
  return here & (here << 1 | before) & (here >> 1 | after);
}

// Four bits as four bytes.
DEVICE u32 spread(u32 bits) { return ((bits & 15) * 0x00204081u) & 0x01010101u; }

// What has all of its 26 neighbours is inside, the rest of a mask is its contour.
KERNEL contour_mask(const ContourArguments arguments) {
  const u64 rows = arguments.dims[0], columns = arguments.dims[1], depth = arguments.dims[2];
  const bool aligned = depth % 16 == 0 && (u64)arguments.out % 16 == 0;
  const u64 grid[3] = {rows, columns, arguments.words}, count = rows * columns * arguments.words;
  for (u64 number = thread_number(); number < count; number += thread_count()) {
    Place at = place_of(number, grid);
    const u32* row = arguments.bits + (number - at.k);
    u32 own = row[at.k], inside = own;
    if (at.i == 0 || at.j == 0 || at.i + 1 == rows || at.j + 1 == columns) inside = 0;
    for (i64 i = -1; i <= 1 && inside != 0; i++) {
      for (i64 j = -1; j <= 1; j++) {
        inside &= without_ends(row + (i * (i64)columns + j) * (i64)arguments.words, at.k, arguments.words);
      }
    }
    const u32 contour = own & ~inside;
    u8* out = arguments.out + (at.i * columns + at.j) * depth + at.k * 32;
    const u32 length = (u32)smaller(depth - at.k * 32, (u64)32);
    if (aligned) {
      for (u32 n = 0; n < length; n += 16) {
        Four<u32> bytes;
        for (u32 m = 0; m < 4; m++) bytes.at[m] = spread(contour >> (n + 4 * m));
        *(Four<u32>*)(out + n) = bytes;
      }
    } else {
      for (u32 n = 0; n < length; n++) out[n] = contour >> n & 1;
    }
  }
}

// The sum of the labels around and at a voxel, in its plane.
DEVICE u32 sum_of_square(const ContourArguments& arguments, u64 i, u64 j, u64 k) {
  if (i >= arguments.dims[0]) return 0;
  u32 sum = 0;
  for (u64 row = j > 0 ? j - 1 : 0; row < smaller(j + 2, arguments.dims[1]); row++) {
    const u8* labels = arguments.labels + (i * arguments.dims[1] + row) * arguments.dims[2];
    for (u64 n = k > 0 ? k - 1 : 0; n < smaller(k + 2, arguments.dims[2]); n++) sum += labels[n];
  }
  return sum;
}

// Each thread goes through some planes, with the sums of three of them at hand.
KERNEL contour_labels(const ContourArguments arguments) {
  const u64 PLANES = 16;
  const u64* dims = arguments.dims;
  const u64 plane = dims[1] * dims[2], groups = (dims[0] + PLANES - 1) / PLANES;
  const u64 grid[3] = {groups, dims[1], dims[2]};
  for (u64 number = thread_number(); number < groups * plane; number += thread_count()) {
    const Place at = place_of(number, grid);
    const u64 first = at.i * PLANES, end = smaller(first + PLANES, dims[0]);
    u32 before = first > 0 ? sum_of_square(arguments, first - 1, at.j, at.k) : 0;
    u32 here = sum_of_square(arguments, first, at.j, at.k);
    for (u64 i = first; i < end; i++) {
      const u32 after = sum_of_square(arguments, i + 1, at.j, at.k);
      const u64 index = i * plane + at.j * dims[2] + at.k;
      const u32 label = arguments.labels[index];
      // 0 minus its neighbours is never above 0.
      arguments.out[index] = label > 0 && 27 * label > before + here + after;
      before = here;
      here = after;
    }
  }
}
