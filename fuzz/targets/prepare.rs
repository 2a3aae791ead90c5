//! Box, crop, scaling and resize of any volume are the plain form's: the box to the voxel, the intensities within 1e-5 of
//! what they are averages of.
#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use spleenseg_fuzz::{CPU, REFERENCE, THREADS, shape};
use triton_spleenseg::config::{ResizeMode, Scale};
use triton_spleenseg::cpu::Input;
use triton_spleenseg::pipeline::{CropScaleResize, Device};
use triton_spleenseg::volume::{BoundingBox, VoxelType};

fn compare(u: &mut Unstructured) -> Result<()> {
    let voxel_type = *u.choose(&[VoxelType::Fp32, VoxelType::Int16])?;
    let mode = *u.choose(&[
        ResizeMode::Area,
        ResizeMode::Area,
        ResizeMode::Trilinear { align_corners: false },
        ResizeMode::Trilinear { align_corners: true },
        ResizeMode::Nearest,
        ResizeMode::NearestExact,
    ])?;
    let limits = *u.choose(&[(Some(0.0), Some(1.0)), (None, None), (Some(0.0), None)])?;
    let b = *u.choose(&[Some((1.0, 0.0)), None, Some((3.0, -1.5))])?;
    let scale = Scale { a_min: -57.0, a_span: 221.0, b, lowest: limits.0, highest: limits.1 };
    let margin = [(); 3].map(|()| u.int_in_range(0..=2).unwrap_or(0));
    let divisible = [(); 3].map(|()| u.int_in_range(0..=5).unwrap_or(0));
    let allow_smaller = u.arbitrary()?;
    let (image, size) = (shape(u)?, shape(u)?);

    // Voxels are the rest of the bytes, again and again: any bits at all, or numbers about the window.
    let plain: bool = u.arbitrary()?;
    let rest = u.bytes(u.len())?;
    let count = image.count();
    let at = |index: usize| rest.get(index % rest.len().max(1)).copied().unwrap_or(0);
    let bytes: Vec<u8> = match (voxel_type, plain) {
        (_, false) => (0..count * voxel_type.size()).map(at).collect(),
        (VoxelType::Fp32, true) => {
            (0..count).flat_map(|i| (f32::from(at(i)) * 2.0 - 200.0).to_ne_bytes()).collect()
        }
        (VoxelType::Int16, true) => {
            (0..count).flat_map(|i| (i16::from(at(i)) * 2 - 200).to_ne_bytes()).collect()
        }
    };
    let Ok(input) = Input::new(&bytes, voxel_type, image) else { panic!("a whole volume is refused") };

    let (Ok(found), Ok(expected)) =
        (CPU.find_foreground(&input, &scale), REFERENCE.find_foreground(&input, &scale))
    else {
        panic!("no search")
    };
    assert_eq!(found.bounding_box, expected.bounding_box);
    let Some(tight) = found.bounding_box else {
        assert_eq!(found, expected);
        return Ok(());
    };
    let crop = tight.with_margin(margin, allow_smaller, image).made_divisible(divisible);
    let plan = CropScaleResize { scale, crop, size, mode };
    let (Ok(resized), Ok(plainly)) =
        (CPU.crop_scale_resize(&input, &plan), REFERENCE.crop_scale_resize(&input, &plan))
    else {
        panic!("{plan:?} is refused")
    };
    // What the search did not look at is counted after the resize.
    assert_eq!(CPU.count_not_finite(&input, found, &resized), Ok(expected), "{plan:?}");
    assert_eq!((resized.shape(), plainly.shape()), (size, size));
    let sizes = sizes_averaged(&input, &plan);
    for (at, ((found, expected), size)) in resized.data().iter().zip(plainly.data()).zip(sizes).enumerate() {
        let close = (found - expected).abs() <= 1e-5 * size.max(1.0)
            || found == expected
            || found.is_nan() && expected.is_nan();
        assert!(close, "voxel {at}: {found}, plainly {expected}, of sizes about {size}; {plan:?}");
    }
    Ok(())
}

/// For each resized voxel the average of the sizes, without their signs, of the intensities that it is made of. Without
/// limits intensities are as large as their input, and where they cancel out their rounding stays.
fn sizes_averaged(input: &Input<'_>, plan: &CropScaleResize) -> Vec<f32> {
    let size = plan.crop.size().expect("a size of the crop");
    let scaled = REFERENCE.crop_scale_resize(input, &CropScaleResize { size, ..*plan }).expect("the crop");
    let bytes: Vec<u8> = scaled.data().iter().flat_map(|value| value.abs().to_ne_bytes()).collect();
    let without_signs = Input::new(&bytes, VoxelType::Fp32, size).expect("the crop as a volume");
    let plan = CropScaleResize {
        scale: Scale { a_min: 0.0, a_span: 1.0, b: None, lowest: None, highest: None },
        crop: BoundingBox { start: [0; 3], end: size.dims().map(|size| size as i64) },
        ..*plan
    };
    REFERENCE.crop_scale_resize(&without_signs, &plan).expect("the averages").data().to_vec()
}

fuzz_target!(|data: &[u8]| {
    // Too few bytes are no volume.
    let _ = THREADS.run(|| compare(&mut Unstructured::new(data)));
});
