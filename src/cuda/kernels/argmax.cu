// The class of the largest score at each voxel: NaN counts as largest, the lowest class wins ties.
#include "arguments.h"

static const int NAN_RANK = 0x7FFFFFFF;

// Scores in their order as integers: -0 equals 0, and every NaN stands above infinity.
DEVICE int rank_of(float score) {
  int bits = __float_as_int(score), magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return NAN_RANK;
  return bits < 0 ? -magnitude : magnitude;
}

// FP16, by its bits.
DEVICE int rank_of(u16 bits) {
  int magnitude = bits & 0x7FFF;
  if (magnitude > 0x7C00) return NAN_RANK;
  return bits & 0x8000 ? -magnitude : magnitude;
}

template <typename Score>
DEVICE void argmax(const ArgmaxArguments& arguments) {
  const Score* scores = (const Score*)arguments.scores;
  const u64 voxels = arguments.voxels;
  const bool aligned = voxels % 4 == 0 && is_aligned(scores, 4) && is_aligned(arguments.labels, 4);
  u64 nan_count = 0;
  for (u64 first = thread_number() * 4; first < voxels; first += thread_count() * 4) {
    const u32 count = (u32)smaller(voxels - first, (u64)4);
    int best[4];
    Four<u8> labels = {{0, 0, 0, 0}};
    for (u32 label = 0; label < arguments.classes; label++) {
      const Score* at = scores + label * voxels + first;
      Four<Score> loaded;
      if (aligned) {
        loaded = *(const Four<Score>*)at;
      } else {
        for (u32 n = 0; n < 4; n++) loaded.at[n] = at[n < count ? n : 0];
      }
      for (u32 n = 0; n < 4; n++) {
        int rank = rank_of(loaded.at[n]);
        nan_count += rank == NAN_RANK && n < count;
        if (label == 0 || rank > best[n]) {
          best[n] = rank;
          labels.at[n] = (u8)label;
        }
      }
    }
    if (aligned) {
      *(Four<u8>*)(arguments.labels + first) = labels;
    } else {
      for (u32 n = 0; n < count; n++) arguments.labels[first + n] = labels.at[n];
    }
  }
  nan_count = warp_sum(nan_count);
  if (lane() == 0 && nan_count > 0) atomicAdd(arguments.nan_count, nan_count);
}

KERNEL argmax_fp32(const ArgmaxArguments arguments) { argmax<float>(arguments); }
KERNEL argmax_fp16(const ArgmaxArguments arguments) { argmax<u16>(arguments); }
