//! One instruction: its opcode and operands.

use crate::arithmetic::{atomic, compute};
use crate::parse::Parser;
use crate::program::{Access, Kind, Operand, Operation, Register, Shuffle, Space};

impl Parser {
    /// One or two steps for each instruction.
    pub(crate) fn operations(&mut self, opcode: &str, operands: &[&str]) -> Result<Vec<Operation>, String> {
        let unknown = || format!("the instruction {opcode} with operands {operands:?} is not known");
        let parts: Vec<&str> = opcode.split('.').collect();
        let operation = match (&parts[..], operands) {
            (["bra"] | ["bra", "uni"], [label]) => {
                self.branches.push((self.kernel.code.len(), (*label).to_owned()));
                Operation::Branch(usize::MAX)
            }
            (["ret"], []) => Operation::Return,
            (["membar", "gl"], []) => Operation::Fence,
            (["bar", "sync"], ["0"]) => Operation::Barrier,
            (["shfl", "sync", mode, "b32"], [to, value, lane, bounds, mask]) => {
                let (to, in_range) = to.split_once('|').ok_or_else(unknown)?;
                let mode = match *mode {
                    "up" => Shuffle::Up,
                    "bfly" => Shuffle::Butterfly,
                    "idx" => Shuffle::Index,
                    _ => return Err(unknown()),
                };
                let from = [self.operand(value)?, self.operand(lane)?, self.operand(bounds)?];
                let (to, in_range) = (self.register(to)?, self.register(in_range)?);
                Operation::Shuffle { to, in_range, mode, from, mask: self.operand(mask)? }
            }
            (["vote", "sync", "ballot", "b32"], [to, from, mask]) => {
                let (from, mask) = (self.operand(from)?, self.operand(mask)?);
                Operation::Ballot { to: self.register(to)?, from, mask }
            }
            (["ld", kind @ ..], [to, place]) => {
                let (count, access) = self.access(kind, place)?;
                let to: Vec<_> =
                    elements(to).into_iter().map(|to| self.register(to)).collect::<Result<_, _>>()?;
                if to.len() != count {
                    return Err(unknown());
                }
                Operation::Load { to, access }
            }
            (["st", kind @ ..], [place, from]) => {
                let (count, access) = self.access(kind, place)?;
                let from = self.operands(&elements(from))?;
                if from.len() != count {
                    return Err(unknown());
                }
                Operation::Store { access, from }
            }
            (["atom", kind @ .., operation, of], [to, place, from @ ..]) => {
                let (_, access) = self.access(&[kind, &[of]].concat(), place)?;
                let (arity, compute) = atomic(&format!("{operation}.{of}")).ok_or_else(unknown)?;
                if from.len() != arity {
                    return Err(unknown());
                }
                Operation::Atomic { to: self.register(to)?, access, compute, from: self.operands(from)? }
            }
            (["mov", _], [to, from]) if from.starts_with('{') => {
                self.calculation(&format!("{opcode}.from_halves"), to, &elements(from))?
            }
            (["mov", _], [to, from]) if to.starts_with('{') => {
                let [low, high] = elements(to)[..] else { return Err(unknown()) };
                let half = |to, which| self.calculation(&format!("{opcode}.{which}_half"), to, &[from]);
                return Ok(vec![half(low, "low")?, half(high, "high")?]);
            }
            (_, [to, from @ ..]) => self.calculation(opcode, to, from)?,
            _ => return Err(unknown()),
        };
        Ok(vec![operation])
    }

    fn calculation(&self, opcode: &str, to: &str, from: &[&str]) -> Result<Operation, String> {
        let (arity, compute) =
            compute(opcode).ok_or_else(|| format!("the instruction {opcode} is not known"))?;
        if from.len() != arity {
            return Err(format!("{opcode} takes {arity} operands, not {from:?}"));
        }
        let kind = match opcode {
            "div.u32" | "div.u64" | "rem.u32" | "rem.u64" => Kind::Divides,
            "and.pred" => Kind::And,
            "or.pred" => Kind::Or,
            _ if opcode.starts_with("selp.") => Kind::Selects,
            _ => Kind::Plain,
        };
        Ok(Operation::Compute { to: self.register(to)?, compute, from: self.operands(from)?, kind })
    }

    /// How many elements, and where: `global.v2.u32` and `[%rd1+8]`.
    fn access(&self, kind: &[&str], place: &str) -> Result<(usize, Access), String> {
        let unknown = || format!("the access .{} to {place} is not known", kind.join("."));
        // All accesses are in order here.
        let words = kind.strip_prefix(&["volatile"]).unwrap_or(kind);
        let (space, words) = match words {
            ["global", words @ ..] => (Space::Global, words),
            ["shared", words @ ..] => (Space::Shared, words),
            ["param", words @ ..] => (Space::Parameters, words),
            _ => return Err(unknown()),
        };
        let (count, size) = match words {
            [kind] => (1, type_size(kind)),
            ["v2", kind] => (2, type_size(kind)),
            ["v4", kind] => (4, type_size(kind)),
            _ => return Err(unknown()),
        };
        let place = place.strip_prefix('[').and_then(|place| place.strip_suffix(']')).ok_or_else(unknown)?;
        let (base, offset) = place.split_once('+').unwrap_or((place, "0"));
        let offset: i64 = offset.parse().map_err(|_| unknown())?;
        let (size, base) = (size.ok_or_else(unknown)?, self.operand(base)?);
        Ok((count, Access { space, size, base, offset: offset as u64 }))
    }

    pub(crate) fn register(&self, name: &str) -> Result<Register, String> {
        self.registers.get(name).copied().ok_or_else(|| format!("there is no register {name:?}"))
    }

    fn operands(&self, texts: &[&str]) -> Result<Vec<Operand>, String> {
        texts.iter().map(|text| self.operand(text)).collect()
    }

    fn operand(&self, text: &str) -> Result<Operand, String> {
        let float = text.strip_prefix("0f").or_else(|| text.strip_prefix("0d"));
        Ok(match text {
            "%tid.x" => Operand::Thread,
            "%ntid.x" => Operand::Threads,
            "%ctaid.x" => Operand::Block,
            "%nctaid.x" => Operand::Blocks,
            _ if text.starts_with('%') => Operand::Register(self.register(text)?),
            _ if text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) => {
                let number = match float {
                    Some(digits) => u64::from_str_radix(digits, 16).ok(),
                    None => text.parse::<i128>().ok().map(|number| number as u64),
                };
                Operand::Constant(number.ok_or_else(|| format!("{text:?} is not a number"))?)
            }
            _ => {
                let variable = self.variables.get(text);
                Operand::Constant(variable.ok_or_else(|| format!("there is no variable {text:?}"))?.address)
            }
        })
    }
}

/// The bytes of an element in memory. Signed ones would have to be extended when they are loaded.
pub(crate) fn type_size(kind: &str) -> Option<usize> {
    match kind {
        "b8" | "u8" => Some(1),
        "u16" => Some(2),
        "b32" | "u32" | "f32" => Some(4),
        "b64" | "u64" | "f64" => Some(8),
        _ => None,
    }
}

/// At the commas that are not in brackets of any kind.
pub(crate) fn split(text: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for letter in text.chars().filter(|letter| !letter.is_whitespace()) {
        match letter {
            '(' | '{' | '[' => depth += 1,
            ')' | '}' | ']' => depth -= 1,
            _ => {}
        }
        match parts.last_mut() {
            Some(last) if letter != ',' || depth > 0 => last.push(letter),
            _ => parts.push(String::new()),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// One operand, or those in braces.
fn elements(text: &str) -> Vec<&str> {
    text.trim_matches(['{', '}']).split(',').collect()
}
