//! The largest components of any label map are those that the plain form keeps.
#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use spleenseg_fuzz::{CPU, REFERENCE, THREADS, copy, labels};
use triton_spleenseg::config::{Connectivity, KeepLargest};
use triton_spleenseg::pipeline::Device;

fn compare(u: &mut Unstructured) -> Result<()> {
    let applied: &[Option<&[i64]>] =
        &[Some(&[1]), None, Some(&[2, 1]), Some(&[0]), Some(&[]), Some(&[3, 300])];
    let keep = KeepLargest {
        applied_labels: u.choose(applied)?.map(<[i64]>::to_vec),
        independent: u.arbitrary()?,
        connectivity: *u.choose(&[Connectivity::Corners, Connectivity::Edges, Connectivity::Faces])?,
        num_components: u.int_in_range(0..=3)?,
    };
    let highest = *u.choose(&[1, 1, 1, 2, 4, 200])?;
    let labels = labels(u, highest)?;
    let found = CPU.keep_largest(copy(&labels), &keep);
    assert_eq!(found, REFERENCE.keep_largest(labels, &keep), "{keep:?}");
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    // Too few bytes are no volume.
    let _ = THREADS.run(|| compare(&mut Unstructured::new(data)));
});
