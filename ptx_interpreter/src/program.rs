//! PTX in the form that runs.

use crate::arithmetic::Compute;

/// A register's place in its kernel.
pub(crate) type Register = usize;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operand {
    Register(Register),
    Constant(u64),
    Thread,
    Threads,
    Block,
    Blocks,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Space {
    Global,
    Shared,
    Parameters,
}

/// `size` bytes, or several of that size, at an address.
pub(crate) struct Access {
    pub space: Space,
    pub size: usize,
    pub base: Operand,
    pub offset: u64,
}

/// What holds for a calculation besides its result.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Plain,
    /// The second operand is not 0.
    Divides,
    /// Its result can be known where some operand is not.
    And,
    Or,
    Selects,
}

#[derive(Clone, Copy)]
pub(crate) enum Shuffle {
    Up,
    Butterfly,
    Index,
}

pub(crate) enum Operation {
    Compute {
        to: Register,
        compute: Compute,
        from: Vec<Operand>,
        kind: Kind,
    },
    Load {
        to: Vec<Register>,
        access: Access,
    },
    Store {
        access: Access,
        from: Vec<Operand>,
    },
    Atomic {
        to: Register,
        access: Access,
        compute: Compute,
        from: Vec<Operand>,
    },
    Branch(usize),
    Return,
    Fence,
    Barrier,
    /// From a value, a lane or distance, and bounds.
    Shuffle {
        to: Register,
        in_range: Register,
        mode: Shuffle,
        from: [Operand; 3],
        mask: Operand,
    },
    Ballot {
        to: Register,
        from: Operand,
        mask: Operand,
    },
}

pub(crate) struct Instruction {
    pub line: usize,
    /// It is passed over unless this register has this value.
    pub guard: Option<(Register, bool)>,
    pub operation: Operation,
}

/// A piece of memory of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variable {
    pub address: u64,
    pub byte_size: usize,
    pub alignment: u64,
}

#[derive(Default)]
pub(crate) struct Kernel {
    pub name: String,
    pub registers: usize,
    /// Its only one, a structure.
    pub parameters: Vec<Variable>,
    /// The first is the one whose size the launch says.
    pub shared: Vec<Variable>,
    pub code: Vec<Instruction>,
}

/// Kernels, ready to run.
pub struct Program {
    pub(crate) kernels: Vec<Kernel>,
}
