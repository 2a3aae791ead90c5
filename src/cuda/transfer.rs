//! Copies between Triton's memory and the GPU.
//!
//! Ordinary host memory goes through pinned pieces, so that the GPU copies one while the host fills the next and the first
//! kernel already reads the one before.

use std::collections::VecDeque;
use std::ops::Range;

use rayon::prelude::*;
use triton_backend_api::{Buffer, Error, MemoryKind, Result};

use super::driver::cuda;
use super::memory::PinnedMemory;
use super::queue::DeviceSpan;
use super::session::Session;
use super::stream::Event;

/// Bytes of a pinned piece: long enough that starting a copy costs nothing beside it. All have this size, so that each serves
/// any transfer.
const PIECE: usize = 4 << 20;
/// Pinned pieces of one transfer: one that the host works on, one under way, one between them.
pub const PIECES: usize = 3;
/// Bytes that one thread copies at a time.
const SHARE: usize = 512 << 10;

/// Memory of the server's, wherever it is.
#[derive(Clone, Copy)]
pub struct Place {
    base: u64,
    byte_size: usize,
    kind: MemoryKind,
}

impl Place {
    /// Memory that is read, or written by the work of one step only.
    ///
    /// # Safety
    /// The memory is of that kind and size, and stays until all work on it is waited for.
    pub unsafe fn new(base: u64, byte_size: usize, kind: MemoryKind) -> Self {
        Self { base, byte_size, kind }
    }

    /// Where it begins.
    pub fn base(self) -> u64 {
        self.base
    }

    /// Its size.
    pub fn byte_size(self) -> usize {
        self.byte_size
    }

    /// Of what kind it is.
    pub fn kind(self) -> MemoryKind {
        self.kind
    }

    /// A part of it, which must lie inside.
    pub fn part(self, range: Range<usize>) -> Self {
        Self { base: self.base + range.start as u64, byte_size: range.len(), kind: self.kind }
    }
}

impl From<Buffer<'_>> for Place {
    fn from(buffer: Buffer<'_>) -> Self {
        Self { base: buffer.as_ptr() as u64, byte_size: buffer.byte_size(), kind: buffer.kind() }
    }
}

/// The parts of consecutive places that `range` of all their bytes lies in.
pub fn part_of(places: &[Place], range: Range<usize>) -> impl Iterator<Item = Place> + '_ {
    let mut end = 0;
    places.iter().filter_map(move |place| {
        let start = end;
        end += place.byte_size;
        let (from, to) = (range.start.max(start), range.end.min(end));
        (from < to).then(|| place.part(from - start..to - start))
    })
}

/// A pinned piece, and the copy from or to it that is under way.
struct Piece {
    memory: PinnedMemory,
    copied: Option<Event>,
}

/// The pinned pieces of a transfer. They are given back when nothing copies from or to them any more.
pub struct Pieces<'s, 'd> {
    session: &'s Session<'d>,
    /// Those used longest ago first.
    pieces: VecDeque<Piece>,
}

impl<'s, 'd> Pieces<'s, 'd> {
    /// The piece that was used longest ago, or a new one; its copy is done.
    fn next(&mut self, step: &'static str) -> Result<Piece> {
        if self.pieces.len() < PIECES {
            let memory = self.session.pinned(PIECE, step)?;
            return Ok(Piece { memory, copied: None });
        }
        let mut oldest = self.pieces.pop_front().ok_or_else(|| Error::internal("no pinned memory"))?;
        if let Some(copied) = oldest.copied.take() {
            let waited = self.session.check(copied.wait(step));
            if let Err(error) = waited {
                self.pieces.push_front(oldest); // still under way, as far as anyone knows
                return Err(error);
            }
        }
        Ok(oldest)
    }
}

impl Drop for Pieces<'_, '_> {
    fn drop(&mut self) {
        if self.pieces.iter().any(|piece| piece.copied.is_some()) {
            self.session.drain();
        }
    }
}

impl<'d> Session<'d> {
    /// Copies all of `from` to the GPU, in order. `arrived` is called whenever more has come: with the bytes that kernels
    /// queued from then on find there.
    ///
    /// What is returned is kept until the copies are waited for.
    pub fn upload<'s>(
        &'s self,
        from: impl Iterator<Item = Place>,
        to: DeviceSpan<'_>,
        step: &'static str,
        mut arrived: impl FnMut(Range<usize>) -> Result<()>,
    ) -> Result<Pieces<'s, 'd>> {
        let mut pieces = Pieces { session: self, pieces: VecDeque::new() };
        let (mut filling, mut filled, mut end) = (None::<Piece>, 0, 0);
        let flush =
            |piece: Option<Piece>, filled: &mut usize, end: &mut usize, pieces: &mut Pieces<'_, '_>| {
                let Some(mut piece) = piece else { return Ok(None) };
                let target = to.part(*end, *filled)?;
                let copied =
                    self.host_to_device(target, piece.memory.base(), step).and_then(|()| self.mark(step));
                piece.copied = Some(match copied {
                    Ok(event) => event,
                    Err(error) => {
                        self.drain();
                        return Err(error);
                    }
                });
                pieces.pieces.push_back(piece);
                let range = *end..*end + *filled;
                (*end, *filled) = (range.end, 0);
                Ok(Some(range))
            };
        for place in from {
            if place.kind != MemoryKind::Host {
                if let Some(range) = flush(filling.take(), &mut filled, &mut end, &mut pieces)? {
                    arrived(range)?;
                }
                for start in (0..place.byte_size).step_by(PIECE) {
                    let part = place.part(start..place.byte_size.min(start + PIECE));
                    self.to_device(part, to.part(end, part.byte_size)?, step)?;
                    arrived(end..end + part.byte_size)?;
                    end += part.byte_size;
                }
                continue;
            }
            // SAFETY: host memory of the server's that stays and is unchanged meanwhile (see `Place`).
            let mut left = unsafe { host_bytes(place) };
            while !left.is_empty() {
                if filling.is_none() {
                    filling = Some(pieces.next(step)?);
                }
                let Some(piece) = &mut filling else { continue };
                // SAFETY: the piece's last copy is done.
                let room = unsafe { &mut piece.memory.bytes_mut()[filled..] };
                let count = room.len().min(left.len());
                self.copy(&mut room[..count], &left[..count]);
                (left, filled) = (&left[count..], filled + count);
                let full = filled == piece.memory.byte_size() || end + filled == to.bytes();
                if full && let Some(range) = flush(filling.take(), &mut filled, &mut end, &mut pieces)? {
                    arrived(range)?;
                }
            }
        }
        if let Some(range) = flush(filling.take(), &mut filled, &mut end, &mut pieces)? {
            arrived(range)?;
        }
        Ok(pieces)
    }

    /// Copies from the GPU to memory of the server's, and waits until that is done.
    pub fn download(&self, from: DeviceSpan<'_>, to: Place, step: &'static str) -> Result<()> {
        if to.byte_size != from.bytes() {
            let (size, room) = (from.bytes(), to.byte_size);
            return Err(Error::internal(format!("{step}: {size} bytes for {room} bytes of room")));
        }
        match to.kind {
            MemoryKind::Host => return self.download_in_pieces(from, to, step),
            MemoryKind::Pinned => {
                // SAFETY: both ends are live, of that size, until this waits.
                let copied = unsafe {
                    cuda!(
                        step,
                        cuMemcpyDtoHAsync_v2(to.base as *mut _, from.address(), from.bytes(), self.stream())
                    )
                };
                self.queued(copied)?;
            }
            MemoryKind::Gpu(id) if id == self.gpu_id() => {
                // SAFETY: both ends are live, of that size, until this waits.
                let copied = unsafe {
                    cuda!(step, cuMemcpyDtoDAsync_v2(to.base, from.address(), from.bytes(), self.stream()))
                };
                self.queued(copied)?;
            }
            MemoryKind::Gpu(id) => {
                let (peer, own) = (self.peer(id)?, self.context());
                // SAFETY: both ends are live, of that size and of those GPUs, until this waits.
                let copied = unsafe {
                    cuda!(
                        step,
                        cuMemcpyPeerAsync(
                            to.base,
                            peer.raw(),
                            from.address(),
                            own.raw(),
                            from.bytes(),
                            self.stream()
                        )
                    )
                };
                self.queued(copied)?;
            }
            other => return Err(out_of_reach(step, other)),
        }
        self.wait(step)
    }

    fn download_in_pieces(&self, from: DeviceSpan<'_>, to: Place, step: &'static str) -> Result<()> {
        let mut under_way = VecDeque::new();
        let mut pieces = Pieces { session: self, pieces: VecDeque::new() };
        let finish = |range: Range<usize>, pieces: &mut Pieces<'_, '_>| {
            let Some(piece) = pieces.pieces.iter_mut().find(|piece| piece.copied.is_some()) else {
                return Ok(());
            };
            if let Some(copied) = &piece.copied {
                self.check(copied.wait(step))?;
            }
            piece.copied = None;
            // SAFETY: the copy to the piece is done; the server's memory is written by this alone.
            unsafe {
                let target =
                    std::slice::from_raw_parts_mut((to.base + range.start as u64) as *mut u8, range.len());
                self.copy(target, &piece.memory.bytes_mut()[..range.len()]);
            }
            Ok(())
        };
        for start in (0..from.bytes()).step_by(PIECE) {
            let range = start..from.bytes().min(start + PIECE);
            if under_way.len() == PIECES
                && let Some(oldest) = under_way.pop_front()
            {
                finish(oldest, &mut pieces)?;
            }
            let mut piece = pieces.next(step)?;
            let source = from.part(range.start, range.len())?;
            // SAFETY: both ends are live until the copy is waited for, no part being longer than a piece.
            let copied = unsafe {
                let base = piece.memory.base() as *mut _;
                cuda!(step, cuMemcpyDtoHAsync_v2(base, source.address(), source.bytes(), self.stream()))
            };
            let copied = self.queued(copied).and_then(|()| self.mark(step));
            piece.copied = Some(copied.inspect_err(|_| self.drain())?);
            pieces.pieces.push_back(piece);
            under_way.push_back(range);
        }
        under_way.into_iter().try_for_each(|range| finish(range, &mut pieces))?;
        self.settled();
        Ok(())
    }

    /// Queues a copy of memory that the GPU can read where it lies.
    fn to_device(&self, from: Place, to: DeviceSpan<'_>, step: &'static str) -> Result<()> {
        match from.kind {
            MemoryKind::Pinned => self.host_to_device(to, from.base, step),
            MemoryKind::Gpu(id) if id == self.gpu_id() => {
                // SAFETY: both ends are live, of that size, until the work is waited for.
                let copied = unsafe {
                    cuda!(step, cuMemcpyDtoDAsync_v2(to.address(), from.base, to.bytes(), self.stream()))
                };
                self.queued(copied)
            }
            MemoryKind::Gpu(id) => {
                let (peer, own) = (self.peer(id)?, self.context());
                // SAFETY: both ends are live, of that size and of those GPUs, until the work is waited for. Without a
                // direct way between them the driver goes through the host.
                let copied = unsafe {
                    cuda!(
                        step,
                        cuMemcpyPeerAsync(
                            to.address(),
                            own.raw(),
                            from.base,
                            peer.raw(),
                            to.bytes(),
                            self.stream()
                        )
                    )
                };
                self.queued(copied)
            }
            other => Err(out_of_reach(step, other)),
        }
    }

    fn host_to_device(&self, to: DeviceSpan<'_>, from: u64, step: &'static str) -> Result<()> {
        // SAFETY: both ends are live, of that size, until the work is waited for.
        let copied = unsafe {
            cuda!(step, cuMemcpyHtoDAsync_v2(to.address(), from as *const _, to.bytes(), self.stream()))
        };
        self.queued(copied)
    }

    /// Copies on the host, on the model's threads where that is worth it.
    fn copy(&self, to: &mut [u8], from: &[u8]) {
        if to.len() <= SHARE {
            to.copy_from_slice(from);
            return;
        }
        self.threads().run(|| {
            to.par_chunks_mut(SHARE)
                .zip(from.par_chunks(SHARE))
                .for_each(|(to, from)| to.copy_from_slice(from));
        });
    }
}

/// # Safety
/// Host memory that stays and is unchanged while `'p` lasts.
unsafe fn host_bytes<'p>(place: Place) -> &'p [u8] {
    if place.byte_size == 0 {
        return &[];
    }
    // SAFETY: see above; bytes need no alignment.
    unsafe { std::slice::from_raw_parts(place.base as *const u8, place.byte_size) }
}

fn out_of_reach(step: &'static str, kind: MemoryKind) -> Error {
    Error::unsupported(format!("{step}: {kind} cannot be copied; accepted are host, pinned and GPU memory"))
}
