//! The contour of any label map equals the plain form's.
#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use spleenseg_fuzz::{CPU, REFERENCE, THREADS, labels};
use triton_spleenseg::pipeline::Device;

fn compare(u: &mut Unstructured) -> Result<()> {
    let highest = *u.choose(&[1, 1, 1, 2, 3, 200])?;
    let labels = labels(u, highest)?;
    assert_eq!(CPU.contour(&labels), REFERENCE.contour(&labels));
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    // Too few bytes are no volume.
    let _ = THREADS.run(|| compare(&mut Unstructured::new(data)));
});
