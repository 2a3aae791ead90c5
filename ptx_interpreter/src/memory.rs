//! Memory in pieces, each with its size, and every byte with whether it was written.

/// Bits of an address within a piece; the others are the piece's number, counted from 1.
const OFFSET_BITS: u32 = 40;

/// The address of a piece by its number, counted from 0: a multiple of `alignment`, a power of 2, and of no higher one.
pub(crate) fn address(number: usize, alignment: u64) -> u64 {
    (number as u64 + 1) << OFFSET_BITS | alignment
}

#[derive(Clone)]
struct Piece {
    /// How far its beginning is behind a multiple of 2^40.
    skew: u64,
    /// None has not been written, or with something that nobody knows.
    bytes: Vec<Option<u8>>,
}

/// One of PTX's state spaces.
#[derive(Clone, Default)]
pub struct Memory {
    /// The number of its first piece.
    first: usize,
    pieces: Vec<Option<Piece>>,
}

impl Memory {
    /// The global memory of a device. No address of it is one in shared memory.
    pub fn global() -> Self {
        Self { first: 1 << 16, pieces: Vec::new() }
    }

    /// A piece that holds these bytes. Its address is a multiple of `alignment`, a power of 2, and of no higher one.
    pub fn holding(&mut self, bytes: &[u8], alignment: u64) -> u64 {
        self.add(bytes.iter().copied().map(Some).collect(), alignment)
    }

    /// A piece that must be written before it is read.
    pub fn room(&mut self, byte_size: usize, alignment: u64) -> u64 {
        self.add(vec![None; byte_size], alignment)
    }

    fn add(&mut self, bytes: Vec<Option<u8>>, alignment: u64) -> u64 {
        self.pieces.push(Some(Piece { skew: alignment, bytes }));
        address(self.first + self.pieces.len() - 1, alignment)
    }

    /// Takes a piece away: from here on nothing may use it.
    pub fn free(&mut self, address: u64) {
        let number = self.number(address);
        self.pieces.get_mut(number).into_iter().for_each(|piece| *piece = None);
    }

    /// These bytes, which have been written.
    pub fn read(&self, address: u64, byte_size: usize) -> Result<Vec<u8>, String> {
        let bytes = self.bytes(address, byte_size)?;
        bytes.iter().enumerate().map(|(at, byte)| byte.ok_or_else(|| unwritten(address, at))).collect()
    }

    /// Sets every byte.
    pub fn fill(&mut self, address: u64, byte_size: usize, byte: u8) -> Result<(), String> {
        self.bytes_mut(address, byte_size)?.fill(Some(byte));
        Ok(())
    }

    /// Copies bytes, written or not.
    pub fn copy(&mut self, from: u64, to: u64, byte_size: usize) -> Result<(), String> {
        let bytes = self.bytes(from, byte_size)?.to_vec();
        self.bytes_mut(to, byte_size)?.copy_from_slice(&bytes);
        Ok(())
    }

    /// The numbers of `size` bytes each that an instruction loads.
    pub(crate) fn load(&self, address: u64, size: usize, to: &mut [u64]) -> Result<(), String> {
        aligned(address, size * to.len())?;
        let bytes = self.bytes(address, size * to.len())?;
        to.fill(0);
        for (at, byte) in bytes.iter().enumerate() {
            let byte = u64::from(byte.ok_or_else(|| unwritten(address, at))?);
            to[at / size] |= byte << (at % size * 8);
        }
        Ok(())
    }

    /// The same for what it stores.
    pub(crate) fn store(&mut self, address: u64, size: usize, values: &[Option<u64>]) -> Result<(), String> {
        aligned(address, size * values.len())?;
        let bytes = self.bytes_mut(address, size * values.len())?;
        for (place, value) in bytes.chunks_mut(size).zip(values) {
            let value = value.map(u64::to_le_bytes);
            place.iter_mut().enumerate().for_each(|(at, place)| *place = value.map(|value| value[at]));
        }
        Ok(())
    }

    /// Which piece an address is in; far beyond the last where it is in none.
    fn number(&self, address: u64) -> usize {
        ((address >> OFFSET_BITS) as usize).wrapping_sub(self.first + 1)
    }

    fn bytes(&self, address: u64, byte_size: usize) -> Result<&[Option<u8>], String> {
        let Some(Some(piece)) = self.pieces.get(self.number(address)) else {
            return Err(format!("there is no memory at {address:#x}"));
        };
        let offset = (address & ((1 << OFFSET_BITS) - 1)).wrapping_sub(piece.skew);
        let end = offset.checked_add(byte_size as u64).and_then(|end| usize::try_from(end).ok());
        let bytes = end.and_then(|end| piece.bytes.get(offset as usize..end));
        bytes.ok_or_else(|| {
            let (offset, size) = (offset as i64, piece.bytes.len());
            format!("{byte_size} bytes from byte {offset} on of memory of {size} bytes")
        })
    }

    fn bytes_mut(&mut self, address: u64, byte_size: usize) -> Result<&mut [Option<u8>], String> {
        self.bytes(address, byte_size)?;
        let number = self.number(address);
        let piece = self.pieces[number].as_mut().ok_or("no memory")?;
        let offset = ((address & ((1 << OFFSET_BITS) - 1)) - piece.skew) as usize;
        Ok(&mut piece.bytes[offset..offset + byte_size])
    }
}

fn aligned(address: u64, byte_size: usize) -> Result<(), String> {
    if address.is_multiple_of(byte_size as u64) {
        return Ok(());
    }
    Err(format!("{byte_size} bytes at {address:#x}, which is not a multiple of that"))
}

fn unwritten(address: u64, at: usize) -> String {
    format!("byte {at} at {address:#x} has never been written")
}
