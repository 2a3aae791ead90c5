//! The embedded machine code: which GPUs it is for, and that every kernel is in it.

use triton_spleenseg::cuda::images::{CUBINS, PTX};
use triton_spleenseg::cuda::kernels::Kernel;

/// The machine of ELF files that hold code for NVIDIA's GPUs.
const EM_CUDA: u16 = 190;

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn there_is_machine_code_for_every_architecture() {
    let architectures: Vec<u32> = CUBINS.iter().map(|(architecture, _)| *architecture).collect();
    assert_eq!(architectures, [75, 80, 86, 89, 90, 100, 120]);
    for (architecture, cubin) in CUBINS {
        assert!(cubin.starts_with(b"\x7fELF"), "sm_{architecture}");
        assert_eq!(u16::from_le_bytes([cubin[18], cubin[19]]), EM_CUDA, "sm_{architecture}");
        // The flags name the architecture that the code is for.
        let flags = u32::from_le_bytes([cubin[48], cubin[49], cubin[50], cubin[51]]);
        let named = [flags & 0xFF, flags >> 8 & 0xFF, flags >> 16 & 0xFF];
        assert!(named.contains(architecture), "sm_{architecture} has flags {flags:#x}");
        for kernel in Kernel::ALL {
            assert!(
                contains(cubin, &format!(".text.{}\0", kernel.name())),
                "{kernel:?} in sm_{architecture}"
            );
        }
    }
}

#[test]
fn every_image_lies_where_the_driver_may_read_its_structures() {
    let images = CUBINS.iter().map(|(_, cubin)| *cubin).chain([PTX]);
    let addresses: Vec<usize> = images.map(|image| image.as_ptr().addr()).collect();
    assert!(addresses.iter().all(|address| address.is_multiple_of(16)), "{addresses:x?}");
}

#[test]
fn the_ptx_is_what_the_oldest_driver_accepts() {
    let (last, text) = PTX.split_last().unwrap();
    let text = std::str::from_utf8(text).unwrap();
    assert_eq!(*last, 0);
    let directives: Vec<&str> = text.lines().filter(|line| line.starts_with('.')).take(3).collect();
    assert_eq!(directives, [".version 7.8", ".target sm_70", ".address_size 64"]);
    for kernel in Kernel::ALL {
        assert!(text.contains(&format!(".entry {}(", kernel.name())), "{kernel:?}");
    }
    assert!(!text.contains("\0"));
}

fn number<const SIZE: usize>(bytes: &[u8], at: usize) -> usize {
    let mut all = [0; 8];
    all[..SIZE].copy_from_slice(&bytes[at..at + SIZE]);
    u64::from_le_bytes(all) as usize
}

/// The values of an attribute of all functions, from the sections that machine code has for its loader.
fn attributes(cubin: &[u8], attribute: u8) -> Vec<usize> {
    const SHT_CUDA_INFO: usize = 0x7000_0000;
    let (sections, each, count) =
        (number::<8>(cubin, 0x28), number::<2>(cubin, 0x3A), number::<2>(cubin, 0x3C));
    let mut values = Vec::new();
    for header in (0..count).map(|at| sections + at * each) {
        if number::<4>(cubin, header + 4) != SHT_CUDA_INFO {
            continue;
        }
        let (mut at, size) = (number::<8>(cubin, header + 0x18), number::<8>(cubin, header + 0x20));
        let end = at + size;
        while at < end {
            // A format, an attribute, and a value of 16 bits or, in the format 4, the size of what follows: there a function
            // and its value.
            let (format, found, size) = (cubin[at], cubin[at + 1], number::<2>(cubin, at + 2));
            if format == 4 && found == attribute {
                values.push(number::<4>(cubin, at + 8));
            }
            at += 4 + if format == 4 { size } else { 0 };
        }
    }
    values
}

#[test]
fn kernels_keep_nothing_in_local_memory_and_leave_room_for_three_blocks() {
    const FRAME_SIZE: u8 = 0x11;
    const REGISTERS: u8 = 0x2F;
    // Registers of a multiprocessor, for blocks of 256 threads.
    const MOST: usize = 65536 / (3 * 256);
    for (architecture, cubin) in CUBINS {
        let [frames, registers] = [FRAME_SIZE, REGISTERS].map(|attribute| attributes(cubin, attribute));
        assert!(frames.len() >= Kernel::ALL.len(), "sm_{architecture}: {frames:?}");
        assert!(frames.iter().all(|bytes| *bytes == 0), "sm_{architecture}: {frames:?}");
        assert!(registers.len() >= Kernel::ALL.len(), "sm_{architecture}: {registers:?}");
        assert!(registers.iter().all(|registers| *registers <= MOST), "sm_{architecture}: {registers:?}");
    }
}
