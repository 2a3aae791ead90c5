//! One thread: its registers, and what each instruction does.

use crate::arithmetic::Compute;
use crate::memory::Memory;
use crate::program::{Access, Instruction, Kernel, Kind, Operand, Operation, Register, Space};

/// Far more than a thread of a test needs.
const MOST_INSTRUCTIONS: u32 = 1 << 24;

/// An exchange within a warp, as one of its lanes takes part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Exchange {
    pub mask: u32,
    /// For a shuffle: value, lane or distance, bounds.
    pub from: [u64; 3],
}

/// Why a thread does not go on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum State {
    Ready,
    AtBarrier,
    InExchange(Exchange),
    Ended,
}

/// What a thread sees besides its own.
pub(crate) struct Surroundings<'s> {
    pub kernel: &'s Kernel,
    pub global: &'s mut Memory,
    pub shared: &'s mut Memory,
    pub parameters: &'s mut Memory,
    /// Of thread, block size, block, grid size: what the special registers say.
    pub place: [u64; 4],
    /// Whether another thread takes its turn before the next access that it may see.
    pub interrupts: &'s mut dyn FnMut() -> bool,
}

#[derive(Clone)]
pub(crate) struct Thread {
    /// The next instruction, or the one that it waits in.
    pub next: usize,
    /// None is a value that nobody knows: the register has not been written, or with what was made of such a one.
    registers: Vec<Option<u64>>,
    /// How many it has run.
    instructions: u32,
    pub state: State,
}

impl Thread {
    pub fn new(kernel: &Kernel) -> Self {
        Self { next: 0, registers: vec![None; kernel.registers], instructions: 0, state: State::Ready }
    }

    /// The instruction that it has come to, or waits in.
    pub fn instruction<'k>(&self, kernel: &'k Kernel) -> &'k Instruction {
        &kernel.code[self.next]
    }

    /// Writes the results of the instruction that it waited in, and passes on to the next one.
    pub fn resume(&mut self, results: &[(Register, u64)]) {
        results.iter().for_each(|(register, value)| self.registers[*register] = Some(*value));
        self.next += 1;
        self.state = State::Ready;
    }

    /// Runs until it has to wait, ends, or is interrupted.
    pub fn run(&mut self, around: &mut Surroundings<'_>) -> Result<(), String> {
        while self.state == State::Ready {
            let instruction = self.instruction(around.kernel);
            self.instructions += 1;
            if self.instructions > MOST_INSTRUCTIONS {
                return Err(format!("does not end within {MOST_INSTRUCTIONS} instructions"));
            }
            if let Some((guard, wanted)) = instruction.guard
                && (self.value(Operand::Register(guard), &around.place)? != 0) != wanted
            {
                self.next += 1;
                continue;
            }
            if is_seen(&instruction.operation) && (around.interrupts)() {
                break;
            }
            self.execute(&instruction.operation, around)?;
        }
        Ok(())
    }

    fn execute(&mut self, operation: &Operation, around: &mut Surroundings<'_>) -> Result<(), String> {
        let place = around.place;
        match operation {
            Operation::Compute { to, compute, from, kind } => {
                self.registers[*to] = self.compute(*compute, from, *kind, &place)?;
            }
            Operation::Load { to, access } => {
                let mut values = [0; 4];
                let values = &mut values[..to.len()];
                let (memory, address) = self.place_of(access, around)?;
                memory.load(address, access.size, values).map_err(|error| format!("reads {error}"))?;
                to.iter().zip(values).for_each(|(to, value)| self.registers[*to] = Some(*value));
            }
            Operation::Store { access, from } => {
                let mut values = [None; 4];
                for (value, from) in values.iter_mut().zip(from) {
                    *value = self.maybe(*from, &place);
                }
                let (memory, address) = self.place_of(access, around)?;
                let stored = memory.store(address, access.size, &values[..from.len()]);
                stored.map_err(|error| format!("writes {error}"))?;
            }
            Operation::Atomic { to, access, compute, from } => {
                let mut values = [0; 4];
                for (value, from) in values[1..].iter_mut().zip(from) {
                    *value = self.value(*from, &place)?;
                }
                let (memory, address) = self.place_of(access, around)?;
                let loaded = memory.load(address, access.size, &mut values[..1]);
                loaded.map_err(|error| format!("changes {error}"))?;
                memory.store(address, access.size, &[Some(compute(values))])?;
                self.registers[*to] = Some(values[0]);
            }
            Operation::Branch(target) => {
                self.next = *target;
                return Ok(());
            }
            // These three wait in their instruction.
            Operation::Barrier => {
                self.state = State::AtBarrier;
                return Ok(());
            }
            Operation::Shuffle { from, mask, .. } => {
                let [value, lane, bounds, mask] =
                    [from[0], from[1], from[2], *mask].map(|operand| self.value(operand, &place));
                let (mask, from) = (mask? as u32, [value?, lane?, bounds?]);
                self.state = State::InExchange(Exchange { mask, from });
                return Ok(());
            }
            Operation::Ballot { from, mask, .. } => {
                let (value, mask) = (self.value(*from, &place)?, self.value(*mask, &place)? as u32);
                self.state = State::InExchange(Exchange { mask, from: [value, 0, 0] });
                return Ok(());
            }
            Operation::Return => {
                self.state = State::Ended;
                return Ok(());
            }
            // All accesses are in order here.
            Operation::Fence => {}
        }
        self.next += 1;
        Ok(())
    }

    /// None is a value that nobody knows.
    fn maybe(&self, operand: Operand, place: &[u64; 4]) -> Option<u64> {
        match operand {
            Operand::Register(register) => self.registers[register],
            Operand::Constant(value) => Some(value),
            Operand::Thread => Some(place[0]),
            Operand::Threads => Some(place[1]),
            Operand::Block => Some(place[2]),
            Operand::Blocks => Some(place[3]),
        }
    }

    fn value(&self, operand: Operand, place: &[u64; 4]) -> Result<u64, String> {
        let value = self.maybe(operand, place);
        value.ok_or_else(|| "depends on a register that has never been written".to_owned())
    }

    /// The result, None if nobody knows it.
    fn compute(
        &self,
        compute: Compute,
        from: &[Operand],
        kind: Kind,
        place: &[u64; 4],
    ) -> Result<Option<u64>, String> {
        let mut values = [Some(0); 4];
        for (value, operand) in values.iter_mut().zip(from) {
            *value = self.maybe(*operand, place);
        }
        let is_known = match kind {
            Kind::Divides if values[1] == Some(0) => return Err("divides by 0".to_owned()),
            _ if values.iter().all(Option::is_some) => true,
            // What is not known does not matter.
            Kind::And => values[..2].contains(&Some(0)),
            Kind::Or => values[..2].contains(&Some(1)),
            Kind::Selects => values[2].is_some_and(|first| values[usize::from(first == 0)].is_some()),
            Kind::Plain | Kind::Divides => false,
        };
        Ok(is_known.then(|| compute(values.map(Option::unwrap_or_default))))
    }

    /// Where an access goes, and its address there.
    fn place_of<'m>(
        &self,
        access: &Access,
        around: &'m mut Surroundings<'_>,
    ) -> Result<(&'m mut Memory, u64), String> {
        let address = self.value(access.base, &around.place)?.wrapping_add(access.offset);
        let memory = match access.space {
            Space::Global => &mut *around.global,
            Space::Shared => &mut *around.shared,
            Space::Parameters => &mut *around.parameters,
        };
        Ok((memory, address))
    }
}

/// Whether other threads may see what it does, or it what they do.
fn is_seen(operation: &Operation) -> bool {
    match operation {
        Operation::Load { access, .. }
        | Operation::Store { access, .. }
        | Operation::Atomic { access, .. } => access.space != Space::Parameters,
        _ => false,
    }
}
