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
