//! PTX as NVRTC writes it: a statement a line, or several lines up to a `;`. What is not known is an error with its line.

use std::collections::HashMap;

use crate::decode::{split, type_size};
use crate::memory::address;
use crate::program::{Instruction, Kernel, Operation, Program, Register, Variable};

impl Program {
    /// Reads PTX of version 7.8. The error says which line is not understood.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser::default();
        let (mut statement, mut begin) = (String::new(), 0);
        for (number, line) in text.lines().enumerate() {
            let line = line.split("//").next().unwrap_or_default().trim();
            if statement.is_empty() {
                begin = number + 1;
            }
            let in_line = |error: String| format!("line {begin} of the PTX: {error}");
            match line {
                "{" if !statement.is_empty() => {
                    parser.begin(&std::mem::take(&mut statement)).map_err(in_line)?;
                }
                "}" if parser.inside => parser.end().map_err(in_line)?,
                "" => {}
                _ if statement.is_empty() && is_header(line) => {}
                _ if statement.is_empty() && line.ends_with(':') => {
                    let label = line.trim_end_matches(':').to_owned();
                    parser.labels.insert(label, parser.kernel.code.len());
                }
                _ => {
                    let (part, ends) = line.strip_suffix(';').map_or((line, false), |part| (part, true));
                    statement += part;
                    statement += " ";
                    if ends {
                        parser.line = begin;
                        parser.statement(std::mem::take(&mut statement).trim()).map_err(in_line)?;
                    }
                }
            }
        }
        if parser.inside || !statement.is_empty() {
            return Err(format!("the PTX ends within line {begin}'s statement"));
        }
        Ok(Self { kernels: parser.kernels })
    }
}

#[derive(Default)]
pub(crate) struct Parser {
    kernels: Vec<Kernel>,
    /// The one that is being read, if `inside`; its registers, and what it has in memory.
    pub kernel: Kernel,
    inside: bool,
    pub registers: HashMap<String, Register>,
    pub variables: HashMap<String, Variable>,
    line: usize,
    /// The shared memory whose size the launch says.
    dynamic: Option<(String, Variable)>,
    labels: HashMap<String, usize>,
    /// Its instructions that go to labels.
    pub branches: Vec<(usize, String)>,
}

impl Parser {
    /// `.visible .entry name(parameter)`.
    fn begin(&mut self, header: &str) -> Result<(), String> {
        let unknown = || format!("{header:?} is not a kernel");
        let header = header.trim_end().strip_prefix(".visible .entry ").ok_or_else(unknown)?;
        let (name, parameter) =
            header.strip_suffix(')').and_then(|header| header.split_once('(')).ok_or_else(unknown)?;
        let unused = Variable { address: address(0, 1), byte_size: 0, alignment: 1 };
        let (dynamic, variable) = self.dynamic.clone().unwrap_or((String::new(), unused));
        self.kernel = Kernel { name: name.to_owned(), shared: vec![variable], ..Kernel::default() };
        self.variables = HashMap::from([(dynamic, variable)]);
        (self.inside, self.registers, self.labels) = (true, HashMap::new(), HashMap::new());
        self.declare(parameter)
    }

    fn end(&mut self) -> Result<(), String> {
        for (instruction, label) in self.branches.drain(..) {
            let target = self.labels.get(&label).filter(|target| **target < self.kernel.code.len());
            let target = *target.ok_or_else(|| format!("nothing is at label {label}"))?;
            self.kernel.code[instruction].operation = Operation::Branch(target);
        }
        let last = self.kernel.code.last().filter(|last| last.guard.is_none());
        if !matches!(last.map(|last| &last.operation), Some(Operation::Return | Operation::Branch(_))) {
            return Err(format!("{} does not end with a return", self.kernel.name));
        }
        self.kernel.registers = self.registers.len();
        self.inside = false;
        self.kernels.push(std::mem::take(&mut self.kernel));
        Ok(())
    }

    fn statement(&mut self, text: &str) -> Result<(), String> {
        if !self.inside {
            return match text.split_whitespace().next() {
                // Constants, which no instruction uses.
                Some(".global") => Ok(()),
                Some(".extern") => self.declare(text.trim_start_matches(".extern")),
                _ => Err(format!("{text:?} is not understood")),
            };
        }
        if text.starts_with(".pragma") {
            return Ok(());
        }
        if text.starts_with(".reg") {
            return self.declare_registers(text);
        }
        if text.starts_with('.') {
            return self.declare(text);
        }
        let (guard, text) = match text.strip_prefix('@') {
            Some(guarded) => {
                let (guard, text) = guarded.split_once(char::is_whitespace).unwrap_or_default();
                (Some((self.register(guard.trim_start_matches('!'))?, !guard.starts_with('!'))), text.trim())
            }
            None => (None, text),
        };
        let (opcode, operands) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let operands = split(operands);
        let operands: Vec<&str> = operands.iter().map(String::as_str).collect();
        for operation in self.operations(opcode, &operands)? {
            self.kernel.code.push(Instruction { line: self.line, guard, operation });
        }
        Ok(())
    }

    /// `.reg .b32 %r<16>`.
    fn declare_registers(&mut self, text: &str) -> Result<(), String> {
        let unknown = || format!("the declaration {text:?} is not understood");
        let [".reg", _, name] = text.split_whitespace().collect::<Vec<_>>()[..] else {
            return Err(unknown());
        };
        let (name, count) =
            name.strip_suffix('>').and_then(|name| name.split_once('<')).ok_or_else(unknown)?;
        for number in 0..count.parse::<usize>().map_err(|_| unknown())? {
            self.registers.insert(format!("{name}{number}"), self.registers.len());
        }
        Ok(())
    }

    /// `.param .align 8 .b8 name[24]`, `.shared .align 1 .u8 name` and the like.
    fn declare(&mut self, text: &str) -> Result<(), String> {
        let unknown = || format!("the declaration {text:?} is not understood");
        let [space, ".align", alignment, kind, name] = text.split_whitespace().collect::<Vec<_>>()[..] else {
            return Err(unknown());
        };
        let alignment: u64 = alignment.parse().map_err(|_| unknown())?;
        let size = kind.strip_prefix('.').and_then(type_size).ok_or_else(unknown)?;
        let (name, count) = match name.strip_suffix(']').and_then(|name| name.split_once('[')) {
            // Of the size that the launch says.
            Some((name, "")) if !self.inside => (name, 0),
            Some((name, count)) => (name, count.parse::<usize>().map_err(|_| unknown())?),
            None => (name, 1),
        };
        let mut variable = Variable { address: address(0, alignment), byte_size: size * count, alignment };
        let list = match space {
            ".shared" if !self.inside => {
                self.dynamic = Some((name.to_owned(), variable));
                return Ok(());
            }
            ".shared" => &mut self.kernel.shared,
            ".param" => &mut self.kernel.parameters,
            _ => return Err(unknown()),
        };
        variable.address = address(list.len(), alignment);
        list.push(variable);
        self.variables.insert(name.to_owned(), variable);
        Ok(())
    }
}

/// The lines before everything else.
fn is_header(line: &str) -> bool {
    let known = [".version 7.8", ".target sm_70", ".address_size 64"];
    known.iter().any(|known| line.split_whitespace().eq(known.split(' ')))
}
