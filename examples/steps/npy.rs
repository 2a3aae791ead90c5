//! NumPy's .npy files, version 1 and C order: as much as the steps need.

use std::error::Error;
use std::fs;

/// An array file in memory.
pub struct Npy {
    bytes: Vec<u8>,
    data: usize,
    /// NumPy's name of the element type, such as `<f4`.
    pub descr: String,
    /// The size along each axis.
    pub shape: Vec<i64>,
}

impl Npy {
    pub fn read(path: &str) -> Result<Self, Box<dyn Error>> {
        let bytes = fs::read(path).map_err(|error| format!("{path}: {error}"))?;
        let wrong = || format!("{path}: not a .npy file of version 1");
        let header = bytes.strip_prefix(b"\x93NUMPY\x01\x00").ok_or_else(wrong)?;
        let (length, rest) = header.split_first_chunk().ok_or_else(wrong)?;
        let length = usize::from(u16::from_le_bytes(*length));
        let text = std::str::from_utf8(rest.get(..length).ok_or_else(wrong)?)?;
        if value(text, "fortran_order").is_none_or(|value| !value.starts_with("False")) {
            return Err(format!("{path}: only C order is read").into());
        }
        let descr =
            value(text, "descr").and_then(|value| value.split('\'').nth(1)).ok_or_else(wrong)?.to_owned();
        let shape = value(text, "shape").and_then(|value| value.strip_prefix('(')?.split(')').next());
        let sizes = shape.ok_or_else(wrong)?.split(',').map(str::trim).filter(|size| !size.is_empty());
        let shape = sizes.map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self { descr, shape, data: 10 + length, bytes })
    }

    /// The elements.
    pub fn data(&self) -> &[u8] {
        &self.bytes[self.data..]
    }
}

/// Writes an array in C order.
pub fn write(path: &str, descr: &str, shape: &[usize], data: &[u8]) -> Result<(), Box<dyn Error>> {
    let shape: String = shape.iter().map(|size| format!("{size},")).collect();
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    // The elements begin at a multiple of 64 bytes; the header ends with a line break.
    let length = (10 + text.len() + 1).next_multiple_of(64) - 10;
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(length)?.to_le_bytes());
    bytes.extend(format!("{text:<width$}\n", width = length - 1).bytes());
    bytes.extend(data);
    fs::write(path, bytes).map_err(|error| format!("{path}: {error}").into())
}

/// What follows `'key':` in the header.
fn value<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.split_once(&format!("'{key}':")).map(|(_, value)| value.trim_start())
}
