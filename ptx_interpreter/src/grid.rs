//! The blocks of a launch and their threads, in an order from a seed.

use crate::memory::Memory;
use crate::program::{Kernel, Operation, Program, Shuffle};
use crate::thread::{Exchange, State, Surroundings, Thread};

const WARP: usize = 32;

/// Static and dynamic shared memory of a block together, which every GPU has.
const SHARED_BYTES: usize = 48 << 10;

/// One start of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    pub kernel: &'a str,
    /// Blocks, along x.
    pub grid: u32,
    /// Threads of a block, along x.
    pub block: u32,
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// The bytes of the kernel's only parameter.
    pub argument: &'a [u8],
    /// 0 runs threads and blocks in their own order, 1 in the reverse. With others, chance decides: some blocks at a time, and
    /// now and then threads take turns before an access that others may see.
    pub seed: u64,
}

/// A block that has begun.
struct Block {
    number: u32,
    threads: Vec<Thread>,
    shared: Memory,
    ended: usize,
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 ^ self.0 >> 29) >> 16) as usize
    }
}

impl Program {
    /// The names of all kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.kernels.iter().map(|kernel| kernel.name.as_str())
    }

    /// Runs a kernel to its end. The error names line, block and thread.
    pub fn run(&self, memory: &mut Memory, launch: &Launch<'_>) -> Result<(), String> {
        let Launch { kernel: name, grid, block, shared_bytes, argument, seed } = *launch;
        let kernel = self.kernels.iter().find(|kernel| kernel.name == name);
        let kernel = kernel.ok_or_else(|| format!("there is no kernel {name}"))?;
        let mut parameters = Memory::default();
        for parameter in &kernel.parameters {
            if parameter.byte_size != argument.len() {
                let (size, found) = (parameter.byte_size, argument.len());
                return Err(format!("{name} takes {size} bytes of arguments, not {found}"));
            }
            parameters.holding(argument, parameter.alignment);
        }
        let shared: usize = kernel.shared.iter().map(|variable| variable.byte_size).sum();
        let shared = shared + shared_bytes as usize;
        if grid == 0 || !(1..=1024).contains(&block) || shared > SHARED_BYTES {
            return Err(format!(
                "{name} with {grid} blocks of {block} threads and {shared} bytes of shared memory; accepted are at least \
                 1 block, 1 to 1024 threads and {SHARED_BYTES} bytes"
            ));
        }
        let thread = Thread::new(kernel);
        let mut random = Random(seed);
        let mut waiting: Vec<u32> = (0..grid).collect();
        let at_a_time = if seed < 2 { 1 } else { 3 };
        let mut blocks: Vec<Block> = Vec::new();
        let mut running = 0;
        let mut ready: Vec<(usize, usize)> = Vec::new();
        loop {
            while running < at_a_time && !waiting.is_empty() {
                let number = waiting.remove(choose(seed, waiting.len(), &mut random));
                ready.extend((0..block as usize).map(|thread| (blocks.len(), thread)));
                let mut shared = Memory::default();
                for (at, variable) in kernel.shared.iter().enumerate() {
                    // The first is the one whose size the launch says.
                    let byte_size = if at == 0 { shared_bytes as usize } else { variable.byte_size };
                    shared.room(byte_size, variable.alignment);
                }
                blocks.push(Block {
                    number,
                    threads: vec![thread.clone(); block as usize],
                    shared,
                    ended: 0,
                });
                running += 1;
            }
            if ready.is_empty() {
                break;
            }
            let (at, thread) = ready.remove(choose(seed, ready.len(), &mut random));
            let of = &mut blocks[at];
            let mut around = Surroundings {
                kernel,
                global: memory,
                shared: &mut of.shared,
                parameters: &mut parameters,
                place: [thread as u64, block.into(), of.number.into(), grid.into()],
                interrupts: &mut || seed > 1 && random.next().is_multiple_of(16),
            };
            let stopped = of.threads[thread].run(&mut around).and_then(|()| of.after(kernel, thread));
            let go_on = stopped.map_err(|error| of.in_thread(kernel, thread, &error))?;
            ready.extend(go_on.into_iter().map(|thread| (at, thread)));
            if of.ended == of.threads.len() {
                *of = Block { threads: Vec::new(), shared: Memory::default(), ..*of };
                running -= 1;
            }
        }
        blocks.iter().try_for_each(|block| block.check(kernel))
    }
}

/// Who of so many is next.
fn choose(seed: u64, count: usize, random: &mut Random) -> usize {
    match seed {
        0 => 0,
        1 => count - 1,
        _ => random.next() % count,
    }
}

impl Block {
    /// The threads that go on after one has stopped.
    fn after(&mut self, kernel: &Kernel, thread: usize) -> Result<Vec<usize>, String> {
        match self.threads[thread].state {
            State::Ready => Ok(vec![thread]),
            State::Ended => {
                self.ended += 1;
                Ok(Vec::new())
            }
            State::AtBarrier => {
                let here = self.threads[thread].next;
                if !self.threads.iter().all(|thread| thread.state == State::AtBarrier && thread.next == here)
                {
                    return Ok(Vec::new());
                }
                self.threads.iter_mut().for_each(|thread| thread.resume(&[]));
                Ok((0..self.threads.len()).collect())
            }
            State::InExchange(exchange) => self.exchange(kernel, thread, exchange),
        }
    }

    /// Finishes an exchange once all lanes of its mask are in the same instruction with the same mask.
    fn exchange(&mut self, kernel: &Kernel, thread: usize, exchange: Exchange) -> Result<Vec<usize>, String> {
        let (first, mask) = (thread / WARP * WARP, exchange.mask);
        if mask >> (thread % WARP) & 1 == 0 {
            return Err(format!("exchanges with lanes {mask:08x}, of which it is none"));
        }
        let lanes: Vec<usize> = (0..WARP).filter(|lane| mask >> lane & 1 != 0).collect();
        let here = self.threads[thread].next;
        let mut values = [[0; 3]; WARP];
        for lane in &lanes {
            let Some(other) = self.threads.get(first + lane) else { return Ok(Vec::new()) };
            match other.state {
                State::InExchange(exchange) if exchange.mask == mask && other.next == here => {
                    values[*lane] = exchange.from;
                }
                _ => return Ok(Vec::new()),
            }
        }
        for lane in &lanes {
            match kernel.code[here].operation {
                Operation::Ballot { to, .. } => {
                    let ballot: u32 = lanes.iter().map(|lane| u32::from(values[*lane][0] != 0) << lane).sum();
                    self.threads[first + lane].resume(&[(to, ballot.into())]);
                }
                Operation::Shuffle { to, in_range, mode, .. } => {
                    let [_, distance, bounds] = values[*lane];
                    let (from, is_in_range) = source(mode, *lane as u32, distance as u32, bounds as u32);
                    if mask >> from & 1 == 0 {
                        return Err(format!(
                            "lane {lane} reads from lane {from}, which is not in {mask:08x}"
                        ));
                    }
                    let value = values[from as usize][0];
                    self.threads[first + lane].resume(&[(to, value), (in_range, is_in_range.into())]);
                }
                _ => {}
            }
        }
        Ok(lanes.into_iter().map(|lane| first + lane).collect())
    }

    /// At the end no thread may wait.
    fn check(&self, kernel: &Kernel) -> Result<(), String> {
        let count =
            |state: fn(&State) -> bool| self.threads.iter().filter(|thread| state(&thread.state)).count();
        let (barrier, ended) = (count(|state| *state == State::AtBarrier), self.ended);
        let Some(thread) = self.threads.iter().position(|thread| thread.state != State::Ended) else {
            return Ok(());
        };
        let what = match self.threads[thread].state {
            State::InExchange(exchange) => format!("an exchange with lanes {:08x}", exchange.mask),
            _ => "a barrier".to_owned(),
        };
        let all = self.threads.len();
        let rest = all - barrier - ended;
        let error = format!(
            "waits at {what} for threads that never come: of {all}, {ended} have ended, {barrier} are at barriers and {rest} in \
             exchanges"
        );
        Err(self.in_thread(kernel, thread, &error))
    }

    fn in_thread(&self, kernel: &Kernel, thread: usize, error: &str) -> String {
        let (name, line) = (&kernel.name, self.threads[thread].instruction(kernel).line);
        format!("{name}, line {line} of the PTX, block {}, thread {thread}: {error}", self.number)
    }
}

/// The lane that a shuffle reads from, and whether it is within the bounds, which hold the last lane and the bits that stay.
fn source(mode: Shuffle, lane: u32, distance: u32, bounds: u32) -> (u32, bool) {
    let (distance, clamp, segment) = (distance & 31, bounds & 31, bounds >> 8 & 31);
    let (lowest, limit) = (lane & segment, lane & segment | clamp & !segment);
    let (from, is_in_range) = match mode {
        Shuffle::Up => (lane.wrapping_sub(distance), lane as i64 - distance as i64 >= limit.into()),
        Shuffle::Butterfly => (lane ^ distance, lane ^ distance <= limit),
        Shuffle::Index => {
            let from = lowest | distance & !segment;
            (from, from <= limit)
        }
    };
    (if is_in_range { from } else { lane }, is_in_range)
}
