// The fibers of a block, their barriers and exchanges, and blocks on threads of the host.
#include "launch.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif
#if defined(HOST_KERNELS_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

// Pushes the registers that a call preserves, keeps the stack in *from, and goes on with the stack `to`. swapcontext does the same with
// two system calls for the signal mask, and took most of the time of these tests.
extern "C" void host_switch_stack(void** from, void* to);
asm(R"(
  .text
  .globl host_switch_stack
  .hidden host_switch_stack
  .type host_switch_stack, @function
host_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size host_switch_stack, . - host_switch_stack
)");

thread_local Dimensions threadIdx, blockIdx, blockDim, gridDim;

namespace host {
namespace {

constexpr uint32_t WARP = 32;
constexpr size_t STACK = 256 << 10;

enum State { READY, AT_BARRIER, IN_EXCHANGE, DONE };

struct Fiber {
  void* stack = nullptr;  // its memory
  void* top = nullptr;    // where it goes on
  State state = READY;
  // What it waits for.
  const char* file = nullptr;
  int line = 0;
  Exchange kind = SYNC;
  uint32_t mask = 0, argument = 0;
  uint64_t value = 0;
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
#endif
#if defined(HOST_KERNELS_TSAN)
  void* sanitizer = nullptr;
#endif
};

// A stack for each fiber, kept for the next block of this thread.
struct Stacks {
  std::vector<void*> memory;
  void* at(size_t number) {
    while (memory.size() <= number) {
      void* stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (stack == MAP_FAILED) abort();
      memory.push_back(stack);
    }
    return memory[number];
  }
  ~Stacks() {
    for (void* stack : memory) munmap(stack, STACK);
  }
};
thread_local Stacks stacks;

#if defined(HOST_KERNELS_TSAN)
// Likewise what ThreadSanitizer knows of each fiber, which is slow to make.
struct SanitizerFibers {
  std::vector<void*> fibers;
  void* at(size_t number) {
    while (fibers.size() <= number) fibers.push_back(__tsan_create_fiber(0));
    return fibers[number];
  }
  ~SanitizerFibers() {
    for (void* fiber : fibers) __tsan_destroy_fiber(fiber);
  }
};
thread_local SanitizerFibers sanitizer_fibers;
#endif

struct Random {
  uint64_t state;
  uint64_t next() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state ^ state >> 29) >> 16;
  }
};

struct Block {
  const Launch& launch;
  Random random;
  std::vector<Fiber> fibers;
  std::vector<uint32_t> ready;
  uint32_t running = 0;
  std::string error;
  void* scheduler = nullptr;  // where the scheduler goes on
  std::unique_ptr<char[]> shared;
  // Only addresses: where a sanitizer is told of the order that the block's beginning and end, barriers, and exchanges make.
  char beginning = 0, end = 0;
  std::vector<char> meeting;
#if defined(__SANITIZE_ADDRESS__)
  const void* scheduler_stack = nullptr;
  size_t scheduler_stack_size = 0;
#endif
#if defined(HOST_KERNELS_TSAN)
  void* scheduler_sanitizer = nullptr;
#endif

  Block(const Launch& launch, uint64_t seed);
  void run();
  void prepare(uint32_t thread);
  void resume(uint32_t thread);
  void pause();
  void release_barrier();
  void finish_exchange(uint32_t thread);
  void fail(const std::string& what);
  std::string deadlock() const;
};
thread_local Block* block = nullptr;

// The order of the fibers: 0 is the threads' own, 1 the reverse, all others are by chance.
uint32_t pick(Block& block) {
  size_t at = block.launch.seed == 0 ? 0 : block.launch.seed == 1 ? block.ready.size() - 1 : block.random.next() % block.ready.size();
  uint32_t thread = block.ready[at];
  if (block.launch.seed < 2) {
    block.ready.erase(block.ready.begin() + (ptrdiff_t)at);
  } else {
    block.ready[at] = block.ready.back();
    block.ready.pop_back();
  }
  return thread;
}

// All that came before an arrival at a place comes before all that goes on after leaving it.
void arrive([[maybe_unused]] char& place) {
#if defined(HOST_KERNELS_TSAN)
  __tsan_release(&place);
#endif
}

void leave([[maybe_unused]] char& place) {
#if defined(HOST_KERNELS_TSAN)
  __tsan_acquire(&place);
#endif
}

void enter() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &block->scheduler_stack, &block->scheduler_stack_size);
#endif
  leave(block->beginning);
  block->launch.call(block->launch.arguments);
  arrive(block->end);
  block->fibers[block->running].state = DONE;
  block->pause();
}

Block::Block(const Launch& launch, uint64_t seed)
    : launch(launch), random{seed}, fibers(launch.block), meeting(1 + (launch.block + WARP - 1) / WARP) {
  // Exactly as long as the launch says, so that a sanitizer sees what lies behind; and not zero.
  if (launch.shared_bytes > 0) {
    shared.reset(new char[launch.shared_bytes]);
    memset(shared.get(), 0xA5, launch.shared_bytes);
  }
  ready.resize(launch.block);
  std::iota(ready.begin(), ready.end(), 0);
}

void Block::prepare(uint32_t thread) {
  Fiber& fiber = fibers[thread];
  fiber.stack = stacks.at(thread);
#if defined(__SANITIZE_ADDRESS__)
  // The fiber that had it before never returned.
  __asan_unpoison_memory_region(fiber.stack, STACK);
#endif
  // As host_switch_stack leaves it: six registers and where to return to; then `enter` stands as if it had been called.
  void** top = (void**)((char*)fiber.stack + STACK) - 8;
  std::fill(top, top + 8, nullptr);
  top[6] = (void*)enter;
  fiber.top = top;
#if defined(HOST_KERNELS_TSAN)
  fiber.sanitizer = sanitizer_fibers.at(thread);
#endif
}

void Block::run() {
  block = this;
#if defined(HOST_KERNELS_TSAN)
  scheduler_sanitizer = __tsan_get_current_fiber();
#endif
  for (uint32_t thread = 0; thread < fibers.size(); thread++) prepare(thread);
  arrive(beginning);
  while (error.empty()) {
    if (!ready.empty()) {
      resume(pick(*this));
      continue;
    }
    bool all_done = true, all_at_barrier = true;
    for (const Fiber& fiber : fibers) {
      all_done &= fiber.state == DONE;
      all_at_barrier &= fiber.state == DONE || fiber.state == AT_BARRIER;
    }
    if (all_done) break;
    if (!all_at_barrier) {
      fail(deadlock());
    } else {
      release_barrier();
    }
  }
  leave(end);
  block = nullptr;
}

void Block::resume(uint32_t thread) {
  Fiber& fiber = fibers[thread];
  running = thread;
  threadIdx = {thread, 0, 0};
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, fiber.stack, STACK);
#endif
#if defined(HOST_KERNELS_TSAN)
  // Fibers are not in order with each other, except where they meet.
  __tsan_switch_to_fiber(fiber.sanitizer, 1);
#endif
  host_switch_stack(&scheduler, fiber.top);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

void Block::pause() {
  Fiber& fiber = fibers[running];
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(fiber.state == DONE ? nullptr : &fiber.fake_stack, scheduler_stack, scheduler_stack_size);
#endif
#if defined(HOST_KERNELS_TSAN)
  __tsan_switch_to_fiber(scheduler_sanitizer, 1);
#endif
  host_switch_stack(&fiber.top, scheduler);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fiber.fake_stack, &scheduler_stack, &scheduler_stack_size);
#endif
}

void Block::fail(const std::string& what) {
  if (error.empty()) {
    error = std::string(launch.name) + ", block " + std::to_string(blockIdx.x) + ", thread " + std::to_string(running) + ": " + what;
  }
}

std::string Block::deadlock() const {
  std::string text = "threads wait for others that never come:";
  for (size_t thread = 0, told = 0; thread < fibers.size() && told < 4; thread++) {
    const Fiber& fiber = fibers[thread];
    if (fiber.state == IN_EXCHANGE) {
      char mask[16];
      snprintf(mask, sizeof mask, "%08x", fiber.mask);
      text += " thread " + std::to_string(thread) + " exchanges with the lanes " + mask + ";";
      told++;
    } else if (fiber.state == AT_BARRIER) {
      text += " thread " + std::to_string(thread) + " is at the barrier of line " + std::to_string(fiber.line) + ";";
      told++;
    }
  }
  return text;
}

void Block::release_barrier() {
  const Fiber* first = nullptr;
  for (uint32_t thread = 0; thread < fibers.size(); thread++) {
    Fiber& fiber = fibers[thread];
    if (fiber.state != AT_BARRIER) continue;
    if (first == nullptr) first = &fiber;
    if (fiber.line != first->line || fiber.file != first->file) {
      fail("threads of a block are at different barriers, in lines " + std::to_string(first->line) + " and " +
           std::to_string(fiber.line));
      return;
    }
    fiber.state = READY;
    ready.push_back(thread);
  }
}

// Gives every lane of the running thread's exchange its result, once all are there.
void Block::finish_exchange(uint32_t thread) {
  const uint32_t base = thread / WARP * WARP, mask = fibers[thread].mask;
  const Exchange kind = fibers[thread].kind;
  uint64_t values[WARP] = {}, ballot = 0;
  for (uint32_t lane = 0; lane < WARP; lane++) {
    if (!(mask >> lane & 1)) continue;
    if (base + lane >= fibers.size() || fibers[base + lane].state == DONE) {
      fail("an exchange names lane " + std::to_string(lane) + ", which has ended");
      return;
    }
    const Fiber& other = fibers[base + lane];
    if (other.state != IN_EXCHANGE || other.mask != mask || other.kind != kind) return;
    values[lane] = other.value;
    ballot |= (other.value & 1) << lane;
  }
  for (uint32_t lane = 0; lane < WARP; lane++) {
    if (!(mask >> lane & 1)) continue;
    Fiber& fiber = fibers[base + lane];
    uint32_t from = lane;
    if (kind == SHUFFLE) from = fiber.argument % WARP;
    if (kind == SHUFFLE_XOR) from = lane ^ fiber.argument;
    if (kind == SHUFFLE_UP && lane >= fiber.argument) from = lane - fiber.argument;
    if (kind == SHUFFLE_DOWN && lane + fiber.argument < WARP) from = lane + fiber.argument;
    if (!(mask >> from & 1)) {
      fail("lane " + std::to_string(lane) + " reads from lane " + std::to_string(from) + ", which is not in the mask");
      return;
    }
    fiber.value = kind == BALLOT ? ballot : values[from];
    fiber.state = READY;
    ready.push_back(base + lane);
  }
}

}  // namespace

void* dynamic_shared() { return block->shared.get(); }

void barrier(const char* file, int line) {
  Block& block = *host::block;
  Fiber& fiber = block.fibers[block.running];
  fiber.file = file;
  fiber.line = line;
  fiber.state = AT_BARRIER;
  arrive(block.meeting[0]);
  block.pause();
  leave(block.meeting[0]);
}

uint64_t exchange(Exchange kind, uint32_t mask, uint64_t value, uint32_t argument) {
  Block& block = *host::block;
  const uint32_t thread = block.running;
  Fiber& fiber = block.fibers[thread];
  fiber.kind = kind;
  fiber.mask = mask;
  fiber.value = value;
  fiber.argument = argument;
  fiber.state = IN_EXCHANGE;
  if (!(mask >> thread % WARP & 1)) {
    block.fail("an exchange with a mask that does not name its own lane");
  } else {
    block.finish_exchange(thread);
  }
  const size_t place = 1 + thread / WARP;
  arrive(block.meeting[place]);
  block.pause();
  leave(block.meeting[place]);
  return fiber.value;
}

void maybe_yield() {
  Block& block = *host::block;
  if (block.launch.seed > 1 && block.random.next() % 16 == 0) {
    block.ready.push_back(block.running);
    block.pause();
  }
}

// Runs all blocks, in an order that the seed decides, `workers` at a time.
std::string run(const Launch& launch) {
  std::vector<uint32_t> order(launch.grid);
  std::iota(order.begin(), order.end(), 0);
  if (launch.seed == 1) std::vector<uint32_t>(order.rbegin(), order.rend()).swap(order);
  Random random{launch.seed};
  for (size_t n = order.size(); launch.seed > 1 && n > 1; n--) std::swap(order[n - 1], order[random.next() % n]);

  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::string error;
  auto work = [&] {
    for (size_t n; !failed && (n = next++) < order.size();) {
      gridDim = {launch.grid, 1, 1};
      blockDim = {launch.block, 1, 1};
      blockIdx = {order[n], 0, 0};
      Block block(launch, launch.seed + order[n]);
      block.run();
      if (!block.error.empty()) {
        failed = true;
        std::lock_guard<std::mutex> lock(mutex);
        if (error.empty()) error = block.error;
      }
    }
  };
  if (launch.workers <= 1) {
    work();
  } else {
    std::vector<std::thread> threads;
    for (uint32_t n = 0; n < launch.workers; n++) threads.emplace_back(work);
    for (std::thread& thread : threads) thread.join();
  }
  return error;
}

}  // namespace host
