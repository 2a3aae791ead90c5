// Labels to the element type of an output.
#include "arguments.h"

struct ToFp32 {
  typedef float Element;
  DEVICE float of(u8 label) { return (float)label; }
};

struct ToFp16 {
  typedef u16 Element;
  // 1.xxx times a power of two: every label is exact.
  DEVICE u16 of(u8 label) {
    if (label == 0) return 0;
    u32 exponent = 31 - __clz(label);
    return (u16)((exponent + 15) << 10 | (((u32)label << (10 - exponent)) & 0x3FF));
  }
};

struct ToInt32 {
  typedef int Element;
  DEVICE int of(u8 label) { return label; }
};

struct ToInt64 {
  typedef i64 Element;
  DEVICE i64 of(u8 label) { return label; }
};

template <typename To>
DEVICE void convert(const ConvertArguments& arguments) {
  typedef typename To::Element Element;
  Element* out = (Element*)arguments.out;
  // 16 bytes are the most that is written at once.
  const u32 together = sizeof(Element) == 8 ? 2 : 4;
  const bool aligned = is_aligned(out, together) && is_aligned(arguments.labels, 4);
  for (u64 first = thread_number() * 4; first < arguments.count; first += thread_count() * 4) {
    if (aligned && first + 4 <= arguments.count) {
      Four<u8> labels = *(const Four<u8>*)(arguments.labels + first);
      struct alignas(together * sizeof(Element)) Group {
        Element at[together];
      } group;
      for (u32 n = 0; n < 4; n += together) {
        for (u32 m = 0; m < together; m++) group.at[m] = To::of(labels.at[n + m]);
        *(Group*)(out + first + n) = group;
      }
    } else {
      for (u64 n = first; n < smaller(first + 4, arguments.count); n++) out[n] = To::of(arguments.labels[n]);
    }
  }
}

KERNEL convert_fp32(const ConvertArguments arguments) { convert<ToFp32>(arguments); }
KERNEL convert_fp16(const ConvertArguments arguments) { convert<ToFp16>(arguments); }
KERNEL convert_int32(const ConvertArguments arguments) { convert<ToInt32>(arguments); }
KERNEL convert_int64(const ConvertArguments arguments) { convert<ToInt64>(arguments); }
