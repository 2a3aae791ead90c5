// The box around all voxels above 0 after scaling, and how many voxels are NaN or infinite, in one pass.
#include "intensity.h"

// What one thread has found.
struct Finding {
  u64 first[3], end[3], nan_count, inf_count;
};

DEVICE bool is_above_0(const Scaling& scaling, float value) { return scaled(scaling, value) > 0.0f; }

DEVICE bool is_foreground(const Scaling& scaling, float value) {
  // NaN is neither.
  return scaling.has_threshold ? value >= scaling.threshold : is_above_0(scaling, value);
}

DEVICE void include(Finding& finding, u64 i, u64 j, u64 first, u64 end) {
  finding.first[0] = smaller(finding.first[0], i);
  finding.first[1] = smaller(finding.first[1], j);
  finding.first[2] = smaller(finding.first[2], first);
  finding.end[0] = larger(finding.end[0], i + 1);
  finding.end[1] = larger(finding.end[1], j + 1);
  finding.end[2] = larger(finding.end[2], end);
}

DEVICE void count_odd(Finding& finding, float value) {
  if (value != value) {
    finding.nan_count += 1;
  } else if (value - value != 0.0f) {
    finding.inf_count += 1;
  }
}

// Moves a place on by a step that is shorter than the volume.
DEVICE void advance(Place& place, const Place& step, const u64* dims) {
  place.k += step.k;
  u64 carry = place.k >= dims[2];
  place.k -= carry ? dims[2] : 0;
  place.j += step.j + carry;
  carry = place.j >= dims[1];
  place.j -= carry ? dims[1] : 0;
  place.i += step.i + carry;
}

template <typename Voxel>
DEVICE void look_at(Finding& finding, const ForegroundArguments& arguments, u64 index) {
  float value = intensity(((const Voxel*)arguments.voxels)[index]);
  count_odd(finding, value);
  if (is_foreground(arguments.scaling, value)) {
    Place at = place_of(index, arguments.dims);
    include(finding, at.i, at.j, at.k, at.k + 1);
  }
}

// SIZE voxels make 16 bytes.
template <typename Voxel, u32 SIZE>
DEVICE void foreground(const ForegroundArguments& arguments) {
  struct alignas(16) Group {
    Voxel voxels[SIZE];
  };
  const Voxel* voxels = (const Voxel*)arguments.voxels;
  const u64 first = arguments.first, end = arguments.end;
  Finding finding = {{~0ull, ~0ull, ~0ull}, {0, 0, 0}, 0, 0};

  // Up to the first multiple of 16 bytes, and what is left after the last, voxel by voxel.
  u64 head = (16 - (u64)(voxels + first) % 16) % 16 / sizeof(Voxel);
  u64 body = smaller(first + head, end), groups = (end - body) / SIZE, tail = body + groups * SIZE;
  u64 number = thread_number();
  if (number < body - first) look_at<Voxel>(finding, arguments, first + number);
  if (number < end - tail) look_at<Voxel>(finding, arguments, tail + number);

  Place at = place_of(body + number * SIZE, arguments.dims);
  const Place step = place_of(thread_count() * SIZE, arguments.dims);
  for (u64 group = number; group < groups; group += thread_count(), advance(at, step, arguments.dims)) {
    Group loaded = *(const Group*)(voxels + body + group * SIZE);
    u32 found = 0;
    for (u32 n = 0; n < SIZE; n++) {
      float value = intensity(loaded.voxels[n]);
      if (sizeof(Voxel) == 4) count_odd(finding, value);
      found |= (u32)is_foreground(arguments.scaling, value) << n;
    }
    if (found == 0) continue;
    if (at.k + SIZE <= arguments.dims[2]) {
      include(finding, at.i, at.j, at.k + (__ffs(found) - 1), at.k + (32 - __clz(found)));
      continue;
    }
    Place each = at;
    const Place one = {0, 0, 1};
    for (u32 n = 0; n < SIZE; n++, advance(each, one, arguments.dims)) {
      if (found >> n & 1) include(finding, each.i, each.j, each.k, each.k + 1);
    }
  }

  // Over the warp, over the block, and then over all blocks.
  __shared__ Finding findings[32];
  for (u32 turn = 0; turn < 2; turn++) {
    for (u32 distance = WARP / 2; distance > 0; distance /= 2) {
      for (u32 axis = 0; axis < 3; axis++) {
        u64 other = __shfl_xor_sync(ALL_LANES, finding.first[axis], distance);
        finding.first[axis] = smaller(finding.first[axis], other);
        other = __shfl_xor_sync(ALL_LANES, finding.end[axis], distance);
        finding.end[axis] = larger(finding.end[axis], other);
      }
      finding.nan_count += __shfl_xor_sync(ALL_LANES, finding.nan_count, distance);
      finding.inf_count += __shfl_xor_sync(ALL_LANES, finding.inf_count, distance);
    }
    if (turn == 1) break;
    if (lane() == 0) findings[warp()] = finding;
    __syncthreads();
    if (warp() > 0) return;
    const Finding nothing = {{~0ull, ~0ull, ~0ull}, {0, 0, 0}, 0, 0};
    finding = lane() < warps() ? findings[lane()] : nothing;
  }
  if (lane() > 0) return;
  if (finding.end[0] > 0) {
    for (u32 axis = 0; axis < 3; axis++) {
      atomicMin(&arguments.found->first[axis], finding.first[axis]);
      atomicMax(&arguments.found->end[axis], finding.end[axis]);
    }
  }
  if (finding.nan_count > 0) atomicAdd(&arguments.found->nan_count, finding.nan_count);
  if (finding.inf_count > 0) atomicAdd(&arguments.found->inf_count, finding.inf_count);
}

KERNEL foreground_fp32(const ForegroundArguments arguments) { foreground<float, 4>(arguments); }
KERNEL foreground_int16(const ForegroundArguments arguments) { foreground<i16, 8>(arguments); }
