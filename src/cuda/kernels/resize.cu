// Crop, scale and resize. The crop is never made: every mode reads the input where it lies, scales what it reads, and takes
// 0 outside the image.
#include "intensity.h"
#include "sampling.h"

// The scaled intensity at a place of the crop.
template <typename Voxel>
DEVICE float value_at(const ResizeArguments& arguments, u64 i, u64 j, u64 k) {
  // A negative index is a very large one.
  i += (u64)arguments.crop_start[0];
  j += (u64)arguments.crop_start[1];
  k += (u64)arguments.crop_start[2];
  const u64* image = arguments.image;
  if (i >= image[0] || j >= image[1] || k >= image[2]) return 0.0f;
  return scaled(arguments.scaling, intensity(((const Voxel*)arguments.voxels)[(i * image[1] + j) * image[2] + k]));
}

// The voxels that one voxel of the result covers along an axis, and those of them that the image has, in its own indices.
struct Window {
  u64 covered, begin, end;
};

DEVICE u64 in_image(const ResizeArguments& arguments, u32 axis, u64 index) {
  i64 at = arguments.crop_start[axis] + (i64)index;
  return at < 0 ? 0 : smaller((u64)at, arguments.image[axis]);
}

DEVICE Window window_at(const ResizeArguments& arguments, u32 axis, u64 at) {
  const u64 from = arguments.crop_size[axis], to = arguments.out_size[axis];
  const u64 begin = at * from / to, end = ((at + 1) * from + to - 1) / to;
  Window window = {end - begin, in_image(arguments, axis, begin), in_image(arguments, axis, end)};
  return window;
}

// Small windows: a block sums a tile's windows along the first axis, then along the second, then along the last.
template <typename Voxel>
DEVICE void resize_area(const ResizeArguments& arguments) {
  DYNAMIC_SHARED(u32, memory);
  const u32 columns = arguments.tile[0], depths = arguments.tile[1], width = arguments.covered[1];
  // Windows, counted from the tile's first voxel, and one over the voxels that they cover.
  u32* column_begin = memory;
  u32* column_end = column_begin + columns;
  float* column_factor = (float*)(column_end + columns);
  u32* depth_begin = (u32*)(column_factor + columns);
  u32* depth_end = depth_begin + depths;
  float* depth_factor = (float*)(depth_end + depths);
  float* planes = depth_factor + depths;
  float* lines = planes + arguments.covered[0] * width;

  const Voxel* voxels = (const Voxel*)arguments.voxels;
  const u64* image = arguments.image;
  const u64* size = arguments.out_size;
  const u64 plane = image[1] * image[2];
  const u64 grid[3] = {size[0], (size[1] + columns - 1) / columns, (size[2] + depths - 1) / depths};
  for (u64 tile = blockIdx.x; tile < grid[0] * grid[1] * grid[2]; tile += gridDim.x) {
    const Place at = place_of(tile, grid);
    const u64 first_column = at.j * columns, first_depth = at.k * depths;
    const u32 column_count = (u32)smaller((u64)columns, size[1] - first_column);
    const u32 depth_count = (u32)smaller((u64)depths, size[2] - first_depth);
    const Window row = window_at(arguments, 0, at.i);
    const u64 column_from = window_at(arguments, 1, first_column).begin;
    const u64 column_to = window_at(arguments, 1, first_column + column_count - 1).end;
    const u64 depth_from = window_at(arguments, 2, first_depth).begin;
    const u64 depth_to = window_at(arguments, 2, first_depth + depth_count - 1).end;

    __syncthreads();
    for (u32 n = threadIdx.x; n < column_count; n += blockDim.x) {
      const Window window = window_at(arguments, 1, first_column + n);
      column_begin[n] = (u32)(window.begin - column_from);
      column_end[n] = (u32)(window.end - column_from);
      column_factor[n] = 1.0f / ((float)row.covered * (float)window.covered);
    }
    for (u32 n = threadIdx.x; n < depth_count; n += blockDim.x) {
      const Window window = window_at(arguments, 2, first_depth + n);
      depth_begin[n] = (u32)(window.begin - depth_from);
      depth_end[n] = (u32)(window.end - depth_from);
      depth_factor[n] = 1.0f / (float)window.covered;
    }
    // Padding adds 0: only voxels of the image are summed.
    const Voxel* corner = voxels + (row.begin * image[1] + column_from) * image[2] + depth_from;
    const u32 rows = (u32)(row.end - row.begin), lines_read = (u32)(column_to - column_from);
    const u32 read = (u32)(depth_to - depth_from);
    for (u32 j = warp(); j < lines_read; j += warps()) {
      for (u32 k = lane(); k < read; k += WARP) {
        const Voxel* from = corner + j * image[2] + k;
        float sum = 0.0f;
        for (u32 i = 0; i < rows; i++, from += plane) sum += scaled(arguments.scaling, intensity(*from));
        planes[j * width + k] = sum;
      }
    }
    __syncthreads();
    for (u32 column = warp(); column < column_count; column += warps()) {
      for (u32 k = lane(); k < read; k += WARP) {
        float sum = 0.0f;
        for (u32 j = column_begin[column]; j < column_end[column]; j++) sum += planes[j * width + k];
        lines[column * width + k] = sum;
      }
    }
    __syncthreads();
    for (u32 column = warp(); column < column_count; column += warps()) {
      float* out = arguments.out + (at.i * size[1] + first_column + column) * size[2] + first_depth;
      for (u32 depth = lane(); depth < depth_count; depth += WARP) {
        float sum = 0.0f;
        for (u32 k = depth_begin[depth]; k < depth_end[depth]; k++) sum += lines[column * width + k];
        out[depth] = sum * (column_factor[column] * depth_factor[depth]);
      }
    }
  }
}

KERNEL resize_area_fp32(const ResizeArguments arguments) { resize_area<float>(arguments); }
KERNEL resize_area_int16(const ResizeArguments arguments) { resize_area<i16>(arguments); }

// Large windows: float32 sums in C order, for another order would differ by more than rounding of the result.
template <typename Voxel>
DEVICE void resize_large(const ResizeArguments& arguments) {
  const Voxel* voxels = (const Voxel*)arguments.voxels;
  const u64* image = arguments.image;
  const u64 count = arguments.out_size[0] * arguments.out_size[1] * arguments.out_size[2];
  for (u64 index = thread_number(); index < count; index += thread_count()) {
    const Place at = place_of(index, arguments.out_size);
    const Window row = window_at(arguments, 0, at.i), column = window_at(arguments, 1, at.j);
    const Window depth = window_at(arguments, 2, at.k);
    float sum = 0.0f;
    for (u64 i = row.begin; i < row.end; i++) {
      for (u64 j = column.begin; j < column.end; j++) {
        const Voxel* line = voxels + (i * image[1] + j) * image[2];
        for (u64 k = depth.begin; k < depth.end; k++) sum += scaled(arguments.scaling, intensity(line[k]));
      }
    }
    arguments.out[index] = sum / (float)row.covered / (float)column.covered / (float)depth.covered;
  }
}

KERNEL resize_large_fp32(const ResizeArguments arguments) { resize_large<float>(arguments); }
KERNEL resize_large_int16(const ResizeArguments arguments) { resize_large<i16>(arguments); }

// The mean of the whole crop, in float64: the sum of each block's rows ..
template <typename Voxel>
DEVICE void resize_mean(const ResizeArguments& arguments) {
  const Voxel* voxels = (const Voxel*)arguments.voxels;
  const Window row = window_at(arguments, 0, 0), column = window_at(arguments, 1, 0);
  const Window depth = window_at(arguments, 2, 0);
  const u64 columns = column.end - column.begin, lines = (row.end - row.begin) * columns;
  double sum = 0.0;
  for (u64 line = (u64)blockIdx.x * warps() + warp(); line < lines; line += (u64)gridDim.x * warps()) {
    const u64 i = row.begin + line / columns, j = column.begin + line % columns;
    const Voxel* from = voxels + (i * arguments.image[1] + j) * arguments.image[2];
    for (u64 k = depth.begin + lane(); k < depth.end; k += WARP) {
      sum += (double)scaled(arguments.scaling, intensity(from[k]));
    }
  }
  __shared__ double sums[32];
  sum = warp_sum(sum);
  if (lane() == 0) sums[warp()] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return;
  sum = 0.0;
  for (u32 n = 0; n < warps(); n++) sum += sums[n];
  arguments.partial[blockIdx.x] = sum;
}

KERNEL resize_mean_fp32(const ResizeArguments arguments) { resize_mean<float>(arguments); }
KERNEL resize_mean_int16(const ResizeArguments arguments) { resize_mean<i16>(arguments); }

// .. and those sums, always in the same order.
KERNEL resize_mean_of_parts(const ResizeArguments arguments) {
  if (thread_number() > 0) return;
  double sum = 0.0;
  for (u32 n = 0; n < arguments.partials; n++) sum += arguments.partial[n];
  const u64 count = arguments.crop_size[0] * arguments.crop_size[1] * arguments.crop_size[2];
  arguments.out[0] = (float)(sum / (double)count);
}

DEVICE u64 nearest(u32 variant, u64 from, u64 at, u64 to) {
  if (variant == 0) return at;
  if (variant == 2) return under_centre(from, at, to);
  if (from == to) return at;
  if (to == 2 * from) return at / 2;
  return rounded_down((float)at * ((float)from / (float)to), from);
}

template <typename Voxel>
DEVICE void resize_nearest(const ResizeArguments& arguments) {
  const u64* from = arguments.crop_size;
  const u64* to = arguments.out_size;
  for (u64 index = thread_number(); index < to[0] * to[1] * to[2]; index += thread_count()) {
    const Place at = place_of(index, to);
    const u64 i = nearest(arguments.variant, from[0], at.i, to[0]);
    const u64 j = nearest(arguments.variant, from[1], at.j, to[1]);
    const u64 k = nearest(arguments.variant, from[2], at.k, to[2]);
    arguments.out[index] = value_at<Voxel>(arguments, i, j, k);
  }
}

KERNEL resize_nearest_fp32(const ResizeArguments arguments) { resize_nearest<float>(arguments); }
KERNEL resize_nearest_int16(const ResizeArguments arguments) { resize_nearest<i16>(arguments); }

// Two neighbouring voxels along an axis and their weights. Both are read even with a weight of 0, so NaN spreads.
struct Tap {
  u64 place[2];
  float weight[2];
};

DEVICE Tap tap_at(const ResizeArguments& arguments, u32 axis, u64 at) {
  const u64 from = arguments.crop_size[axis], to = arguments.out_size[axis];
  if (from == to) {
    Tap same = {{at, at}, {1.0f, 0.0f}};
    return same;
  }
  float position = centre(from, at, to);
  if (arguments.variant == 1) position = (float)at * (to > 1 ? (float)(from - 1) / (float)(to - 1) : 0.0f);
  const u64 low = rounded_down(position, from), high = smaller(low + 1, from - 1);
  const float weight = fminf(fmaxf(position - (float)low, 0.0f), 1.0f);
  Tap tap = {{low, high}, {1.0f - weight, weight}};
  return tap;
}

template <typename Voxel>
DEVICE void resize_trilinear(const ResizeArguments& arguments) {
  const u64* to = arguments.out_size;
  for (u64 index = thread_number(); index < to[0] * to[1] * to[2]; index += thread_count()) {
    const Place at = place_of(index, to);
    const Tap row = tap_at(arguments, 0, at.i), column = tap_at(arguments, 1, at.j), depth = tap_at(arguments, 2, at.k);
    float sum = 0.0f;
#pragma unroll
    for (u32 corner = 0; corner < 8; corner++) {
      const u32 a = corner >> 2, b = corner >> 1 & 1, c = corner & 1;
      const float weight = row.weight[a] * column.weight[b] * depth.weight[c];
      sum += weight * value_at<Voxel>(arguments, row.place[a], column.place[b], depth.place[c]);
    }
    arguments.out[index] = sum;
  }
}

KERNEL resize_trilinear_fp32(const ResizeArguments arguments) { resize_trilinear<float>(arguments); }
KERNEL resize_trilinear_int16(const ResizeArguments arguments) { resize_trilinear<i16>(arguments); }
