// Connected components: union-find over runs of voxels (Komura's equivalence and the pointer jumping of ECL-CC, on runs).
//
// A mask is one bit a voxel, in words of 32 voxels of a row. A run is a row of set bits in a word; what continues in the next
// word is another run that is joined to it. A run's index is its row's first index plus half of its column: runs have a gap
// between them, so no two share one, and indices rise in C order. Parents are never larger than their children, so the root
// of a component is its first run, whatever the order of the threads.
#include "arguments.h"

template <typename Index>
struct Words {
  const ComponentsArguments& arguments;
  Index word, row;
  u64 i, j;

  // The word with this number, of all words in C order.
  DEVICE_MEMBER Words(const ComponentsArguments& arguments, Index number) : arguments(arguments) {
    row = number / (Index)arguments.words;
    word = number - row * (Index)arguments.words;
    i = row / (Index)arguments.dims[1];
    j = row - (Index)i * (Index)arguments.dims[1];
  }

  DEVICE_MEMBER u32 bits(Index row, Index word) const { return arguments.bits[(u64)row * arguments.words + word]; }

  // The index of the run that the bit belongs to; `bits` is its word.
  DEVICE_MEMBER Index run(u32 bits, Index row, Index word, u32 bit) const {
    u32 gaps = ~bits & ((1u << bit) - 1);
    u32 start = gaps ? 32 - __clz(gaps) : 0;
    return row * (Index)((arguments.dims[2] + 1) / 2) + word * 16 + start / 2;
  }
};

// A row's bits around a word: its own, the last one before it, the first one after it.
struct Bits {
  u32 here, before, after;
};

template <typename Index>
DEVICE Bits bits_of(const Words<Index>& words, Index row) {
  const Index word = words.word, last = (Index)words.arguments.words - 1;
  Bits bits = {words.bits(row, word), 0, 0};
  if (word > 0) bits.before = words.bits(row, word - 1);
  if (word < last) bits.after = words.bits(row, word + 1);
  return bits;
}

DEVICE Bits without(const Bits& bits, const Bits& others) {
  Bits left = {bits.here & ~others.here, bits.before & ~others.before, bits.after & ~others.after};
  return left;
}

// Calls `touch(own run, earlier run)` for runs of a word and runs before them, often enough to connect all that touch. With
// 18 or 26 neighbours, rows that lie beside each other touch wherever both have a bit, so what touches through a nearer
// row is left out there.
template <typename Index, typename Touch>
DEVICE void touch_earlier(const Words<Index>& words, const Bits& own, Touch touch) {
  const ComponentsArguments& arguments = words.arguments;
  const Bits none = {0, 0, 0};
  const Index columns = (Index)arguments.dims[1];
  const bool edges = arguments.connectivity >= 2, corners = arguments.connectivity >= 3;
  Bits beside = none, above = none;

  // Its own row, the one before it, the one above, and the two beside that. One body for all of them, since every kind of
  // neighbour that is written out makes the machine code longer, and compiling much longer.
#pragma unroll 1
  for (u32 neighbour = 0; neighbour < 5; neighbour++) {
    Index row = words.row;
    Bits other = own, wanted = own;
    if (neighbour == 1 || neighbour == 3) {
      if (words.j == 0) continue;
      row -= 1;
    }
    if (neighbour >= 2) {
      if (words.i == 0 || (neighbour > 2 && !edges)) return;
      row -= columns;
    }
    if (neighbour == 4) {
      if (words.j + 1 == arguments.dims[1]) return;
      row += 1;
    }
    if (neighbour > 0) wanted = other = bits_of(words, row);
    if (neighbour == 1) beside = other;
    if (neighbour == 2) above = other;
    if (edges && (neighbour == 2 || neighbour == 3)) wanted = without(wanted, beside);
    if (neighbour > 2) wanted = without(wanted, above);

    // Where bits lie beside each other, where the other run ends just before the own one begins, and where it begins just
    // after the own one ends.
#pragma unroll 1
    for (int offset = 0; offset < 3; offset++) {
      u32 at;
      if (neighbour == 0) {
        // What continues from the word before.
        if (offset != 1) continue;
        at = own.here & own.before >> 31 & 1;
      } else if (offset == 0) {
        at = own.here & wanted.here;
      } else if (neighbour > 2 ? !corners : !edges) {
        break;
      } else if (offset == 1) {
        at = own.here & ~(own.here << 1 | own.before >> 31);
        at &= (wanted.here << 1 | wanted.before >> 31) & ~other.here;
      } else {
        at = own.here & ~(own.here >> 1 | own.after << 31);
        at &= (wanted.here >> 1 | wanted.after << 31) & ~other.here;
      }
#pragma unroll 1
      while (at != 0) {
        const u32 bit = __ffs(at) - 1;
        // Columns are counted from the word before.
        const u32 column = WARP + bit - (offset == 1) + (offset == 2);
        const u32 bits = column < WARP ? other.before : column < 2 * WARP ? other.here : other.after;
        const Index there = words.run(bits, row, words.word + column / WARP - 1, column % WARP);
        touch(words.run(own.here, words.row, words.word, bit), there);
        at &= at + (1u << bit);
      }
    }
  }
}

// The root of a run. What lies on the way is linked to its grandparent, which other threads may do as well.
template <typename Index>
DEVICE Index find(Index* parents, Index at) {
  Index parent = relaxed_load(&parents[at]);
  while (parent != at) {
    Index next = relaxed_load(&parents[parent]);
    if (next != parent) relaxed_store(&parents[at], next);
    at = parent;
    parent = next;
  }
  return at;
}

template <typename Index>
DEVICE void unite(Index* parents, Index a, Index b) {
  a = find(parents, a);
  b = find(parents, b);
  while (a != b) {
    Index high = larger(a, b), low = smaller(a, b);
    Index seen = atomicCAS(&parents[high], high, low);
    if (seen == high) return;
    a = find(parents, seen);
    b = low;
  }
}

template <typename Index>
DEVICE Index word_count(const ComponentsArguments& arguments) {
  return (Index)(arguments.dims[0] * arguments.dims[1] * arguments.words);
}

// The first bits of a word's runs.
DEVICE u32 starts_of(u32 bits) { return bits & ~(bits << 1); }

DEVICE u32 is_selected(const u32* selected, u32 label) { return selected[label >> 5] >> (label & 31) & 1; }

KERNEL components_pack(const ComponentsArguments arguments) {
  const u64 depth = arguments.dims[2], count = arguments.dims[0] * arguments.dims[1] * arguments.words;
  const bool aligned = depth % 16 == 0 && (u64)arguments.labels % 16 == 0;
  // Parameters that are looked up by a number would be copied for each thread.
  __shared__ u32 selected[8];
  if (threadIdx.x == 0) {
    for (u32 n = 0; n < 8; n++) selected[n] = arguments.selected[n];
  }
  __syncthreads();
  for (u64 number = thread_number(); number < count; number += thread_count()) {
    const u64 row = number / arguments.words, first = (number - row * arguments.words) * 32;
    const u8* labels = arguments.labels + row * depth + first;
    const u32 length = (u32)smaller(depth - first, (u64)32);
    u32 bits = 0;
    if (aligned) {
      for (u32 n = 0; n < length; n += 16) {
        const Four<u32> group = *(const Four<u32>*)(labels + n);
        for (u32 m = 0; m < 16; m++) {
          bits |= is_selected(selected, group.at[m / 4] >> m % 4 * 8 & 0xFF) << (n + m);
        }
      }
    } else {
      for (u32 n = 0; n < length; n++) bits |= is_selected(selected, labels[n]) << n;
    }
    arguments.bits[number] = bits;
  }
}

// Links each run to the first earlier one that it touches, or to itself.
template <typename Index>
DEVICE void components_link(const ComponentsArguments& arguments) {
  Index* parents = (Index*)arguments.parents;
  Index* sizes = (Index*)arguments.sizes;
  for (u64 number = thread_number(); number < word_count<Index>(arguments); number += thread_count()) {
    const Words<Index> words(arguments, (Index)number);
    const Bits own = bits_of(words, words.row);
    if (own.here == 0) continue;
    const Index first = words.run(own.here, words.row, words.word, 0);
    u32 linked = 0;
    touch_earlier(words, own, [&](Index run, Index earlier) {
      u32 bit = 1u << (run - first);
      if (!(linked & bit)) parents[run] = earlier;
      linked |= bit;
    });
    for (u32 left = starts_of(own.here); left != 0; left &= left - 1) {
      const Index run = words.run(own.here, words.row, words.word, __ffs(left) - 1);
      sizes[run] = 0;
      if (!(linked >> (run - first) & 1)) parents[run] = run;
    }
  }
}

KERNEL components_link_u32(const ComponentsArguments arguments) { components_link<u32>(arguments); }
KERNEL components_link_u64(const ComponentsArguments arguments) { components_link<u64>(arguments); }

// Joins each run with the other earlier ones that it touches.
template <typename Index>
DEVICE void components_merge(const ComponentsArguments& arguments) {
  Index* parents = (Index*)arguments.parents;
  for (u64 number = thread_number(); number < word_count<Index>(arguments); number += thread_count()) {
    const Words<Index> words(arguments, (Index)number);
    const Bits own = bits_of(words, words.row);
    if (own.here == 0) continue;
    const Index first = words.run(own.here, words.row, words.word, 0);
    u32 linked = 0;
    touch_earlier(words, own, [&](Index run, Index earlier) {
      u32 bit = 1u << (run - first);
      if (linked & bit) unite(parents, run, earlier);
      linked |= bit;
    });
  }
}

KERNEL components_merge_u32(const ComponentsArguments arguments) { components_merge<u32>(arguments); }
KERNEL components_merge_u64(const ComponentsArguments arguments) { components_merge<u64>(arguments); }

// Adds each lane's amount to the size of its root. Most lanes have the same few roots: theirs are added up first.
template <typename Index>
DEVICE void add_sizes(Index* sizes, Index root, Index amount) {
  u32 left = __ballot_sync(ALL_LANES, amount > 0);
  for (u32 turn = 0; turn < 2 && left != 0; turn++) {
    const u32 leader = __ffs(left) - 1;
    const Index chosen = __shfl_sync(ALL_LANES, root, leader);
    const bool is_chosen = amount > 0 && root == chosen;
    const Index sum = warp_sum(is_chosen ? amount : (Index)0);
    if (lane() == leader) atomicAdd(&sizes[chosen], sum);
    if (is_chosen) amount = 0;
    left = __ballot_sync(ALL_LANES, amount > 0);
  }
  if (amount > 0) atomicAdd(&sizes[root], amount);
}

// Finds each run's root, adds the run to its size, and lists the roots.
template <typename Index>
DEVICE void components_count(const ComponentsArguments& arguments) {
  Index* parents = (Index*)arguments.parents;
  Index* sizes = (Index*)arguments.sizes;
  Index* roots = (Index*)arguments.roots;
  const u64 count = word_count<Index>(arguments);
  // All lanes of a warp take the same number of turns.
  for (u64 turn = thread_number() - lane(); turn < count; turn += thread_count()) {
    const u64 number = turn + lane();
    const Words<Index> words(arguments, (Index)(number < count ? number : 0));
    const u32 own = number < count ? words.bits(words.row, words.word) : 0;
    Index common = 0, amount = 0;
    u32 own_roots = 0;
    for (u32 left = starts_of(own); left != 0; left &= left - 1) {
      const u32 bit = __ffs(left) - 1;
      const u32 gaps = ~own & ~((1u << bit) - 1);
      const Index length = (gaps ? __ffs(gaps) - 1 : 32) - bit;
      const Index run = words.run(own, words.row, words.word, bit), root = find(parents, run);
      relaxed_store(&parents[run], root);
      if (root == run) own_roots |= 1u << bit;
      if (amount == 0) common = root;
      if (root == common) {
        amount += length;
      } else {
        atomicAdd(&sizes[root], length);
      }
    }
    add_sizes(sizes, common, amount);

    // One piece of the list for the whole warp.
    const u32 own_count = __popc(own_roots);
    u32 until = own_count;
    for (u32 distance = 1; distance < WARP; distance *= 2) {
      const u32 other = __shfl_up_sync(ALL_LANES, until, distance);
      if (lane() >= distance) until += other;
    }
    const u32 total = __shfl_sync(ALL_LANES, until, WARP - 1);
    if (total == 0) continue;
    u64 base = 0;
    if (lane() == 0) base = atomicAdd(&arguments.selection->roots, (u64)total);
    base = __shfl_sync(ALL_LANES, base, 0) + (until - own_count);
    for (u32 left = own_roots; left != 0; left &= left - 1) {
      roots[base++] = words.run(own, words.row, words.word, __ffs(left) - 1);
    }
  }
}

KERNEL components_count_u32(const ComponentsArguments arguments) { components_count<u32>(arguments); }
KERNEL components_count_u64(const ComponentsArguments arguments) { components_count<u64>(arguments); }

// The digits above the given one.
DEVICE u64 digits_above(u64 value, u32 digit) {
  const u32 shift = (digit + 1) * DIGIT_BITS;
  return shift < 64 ? value >> shift : 0;
}

// One digit of the rank, size and then root, of the smallest component that stays. Ranks are all different, so that many
// components stay and no more, in whatever order they are listed.
template <typename Index>
DEVICE void components_select(const ComponentsArguments& arguments) {
  Selection& selection = *arguments.selection;
  const Index* sizes = (const Index*)arguments.sizes;
  const Index* roots = (const Index*)arguments.roots;
  const u64 count = selection.roots;
  if (arguments.keep == 0 || count <= arguments.keep) return;
  const bool of_size = arguments.digit >= 16;
  const u32 digit = arguments.digit % 16, shift = digit * DIGIT_BITS;
  const u64 chosen_size = selection.size, chosen_root = selection.root;

  __shared__ u32 histogram[DIGITS];
  __shared__ u64 sums[1024];
  __shared__ bool is_last;
  for (u32 n = threadIdx.x; n < DIGITS; n += blockDim.x) histogram[n] = 0;
  __syncthreads();
  for (u64 n = thread_number(); n < count; n += thread_count()) {
    const u64 root = roots[n], size = sizes[root];
    const bool fits = of_size ? digits_above(size, digit) == digits_above(chosen_size, digit)
                              : size == chosen_size && digits_above(root, digit) == digits_above(chosen_root, digit);
    if (fits) atomicAdd(&histogram[(of_size ? size : root) >> shift & (DIGITS - 1)], 1u);
  }
  __syncthreads();
  for (u32 n = threadIdx.x; n < DIGITS; n += blockDim.x) {
    if (histogram[n] > 0) atomicAdd(&selection.histogram[n], (u64)histogram[n]);
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(&selection.blocks_done, 1u) == gridDim.x - 1;
  __syncthreads();
  if (!is_last) return;

  // The last block knows all counters. Each thread adds up some of them, from the highest digit down ..
  __threadfence();
  const u32 each = (DIGITS + blockDim.x - 1) / blockDim.x;
  u64 sum = 0;
  for (u32 n = threadIdx.x * each; n < smaller((threadIdx.x + 1) * each, DIGITS); n++) {
    sum += relaxed_load(&selection.histogram[DIGITS - 1 - n]);
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  // .. and one looks for the digit at which enough are counted.
  if (threadIdx.x == 0) {
    u64 remaining = selection.digits_done == 0 ? arguments.keep : selection.remaining;
    u32 thread = 0, n;
    u64 found;
    while (sums[thread] < remaining) remaining -= sums[thread++];
    n = thread * each;
    while ((found = relaxed_load(&selection.histogram[DIGITS - 1 - n])) < remaining) {
      remaining -= found;
      n += 1;
    }
    const u64 chosen = (u64)(DIGITS - 1 - n) << shift;
    if (of_size) {
      selection.size |= chosen;
    } else {
      selection.root |= chosen;
    }
    selection.remaining = remaining;
    selection.digits_done += 1;
    selection.blocks_done = 0;
  }
  __syncthreads();
  for (u32 n = threadIdx.x; n < DIGITS; n += blockDim.x) selection.histogram[n] = 0;
}

KERNEL components_select_u32(const ComponentsArguments arguments) { components_select<u32>(arguments); }
KERNEL components_select_u64(const ComponentsArguments arguments) { components_select<u64>(arguments); }

// Sets the voxels of what does not stay to 0.
template <typename Index>
DEVICE void components_clear(const ComponentsArguments& arguments) {
  const Selection& selection = *arguments.selection;
  if (selection.roots <= arguments.keep) return;
  Index* parents = (Index*)arguments.parents;
  const Index* sizes = (const Index*)arguments.sizes;
  for (u64 number = thread_number(); number < word_count<Index>(arguments); number += thread_count()) {
    const Words<Index> words(arguments, (Index)number);
    const u32 own = words.bits(words.row, words.word);
    u8* labels = arguments.labels + (u64)words.row * arguments.dims[2] + (u64)words.word * 32;
    for (u32 left = starts_of(own); left != 0; left &= left - 1) {
      u32 bit = __ffs(left) - 1;
      const Index root = find(parents, words.run(own, words.row, words.word, bit)), size = sizes[root];
      const bool stays = size > selection.size || (size == selection.size && root >= selection.root);
      if (stays && arguments.keep > 0) continue;
      for (; bit < 32 && own >> bit & 1; bit++) labels[bit] = 0;
    }
  }
}

KERNEL components_clear_u32(const ComponentsArguments arguments) { components_clear<u32>(arguments); }
KERNEL components_clear_u64(const ComponentsArguments arguments) { components_clear<u64>(arguments); }
