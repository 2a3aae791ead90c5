//! Arithmetic on shapes, boxes and byte counts equals the same in 128 bits; what 64 bits cannot hold is refused.
#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use spleenseg_fuzz as _;
use triton_backend_api::{DataType, ErrorCode};
use triton_spleenseg::config::Limits;
use triton_spleenseg::cpu::{Input, Labels, Logits};
use triton_spleenseg::native::Placement;
use triton_spleenseg::volume::{AXES, BoundingBox, LogitType, Shape3, VoxelType};

// The backend's own reading of a request's shape: it is no public part of the pipeline.
#[path = "../../src/interface.rs"]
#[allow(dead_code)]
mod interface;
use triton_spleenseg::{config, pipeline, volume};

/// Small numbers, powers of two and their neighbours, and any others.
fn number(u: &mut Unstructured) -> Result<i64> {
    Ok(match u.int_in_range(0..=3)? {
        0 | 1 => u.int_in_range(-2..=300)?,
        2 => (1i64 << u.int_in_range(0..=62)?) + u.int_in_range(-1..=1)?,
        _ => u.arbitrary()?,
    })
}

fn three(u: &mut Unstructured) -> Result<[i64; 3]> {
    Ok([number(u)?, number(u)?, number(u)?])
}

/// The product, where it does not leave 128 bits: then it leaves 64 too.
fn product(numbers: &[i64]) -> Option<i128> {
    match numbers.contains(&0) {
        true => Some(0),
        false => numbers.iter().try_fold(1i128, |product, &number| product.checked_mul(number.into())),
    }
}

fn byte_sizes(u: &mut Unstructured) -> Result<()> {
    let rank = u.int_in_range(0..=6)?;
    let shape = (0..rank).map(|_| number(u)).collect::<Result<Vec<_>>>()?;
    for data_type in [DataType::Bool, DataType::Fp16, DataType::Fp32, DataType::Int64, DataType::Bytes] {
        let found = data_type.tensor_byte_size(&shape);
        let size = data_type.byte_size().map(|size| size as i128);
        let expected = match shape.iter().all(|&dim| dim >= 0) {
            true => size.and_then(|size| product(&shape)?.checked_mul(size)),
            false => None,
        };
        match (found, expected.filter(|&bytes| bytes <= i64::MAX.into())) {
            (Ok(found), expected) => assert_eq!(Some(found as i128), expected, "{data_type} {shape:?}"),
            // A product that passes 64 bits before a 0 comes is refused too: nobody has such a tensor.
            (Err(_), Some(expected)) => assert_eq!(expected, 0, "{data_type} {shape:?}"),
            (Err(error), None) => assert_eq!(error.code(), ErrorCode::InvalidArg),
        }
    }
    match interface::volumes(&shape) {
        Ok((count, size)) => {
            let dims = size.dims().map(|dim| dim as i64);
            assert_eq!(shape, [count as i64, dims[0], dims[1], dims[2]]);
            assert!(shape.iter().all(|&dim| dim > 0));
            let limits = Limits { voxels: u.arbitrary()?, volumes: u.arbitrary()? };
            let voxels = product(&shape).map(|voxels| voxels as u128);
            let fits = count as u64 <= limits.volumes && voxels.is_some_and(|n| n <= limits.voxels.into());
            // At the end of 64 bits the count stops growing, and a limit there is none.
            if limits.voxels < u64::MAX {
                assert_eq!(limits.check(count, size).is_ok(), fits, "{limits:?} {shape:?}");
            }
        }
        Err(error) => assert_eq!(error.code(), ErrorCode::InvalidArg),
    }
    Ok(())
}

fn shapes(u: &mut Unstructured) -> Result<()> {
    let dims = three(u)?;
    let bytes = product(&dims).and_then(|voxels| voxels.checked_mul(8));
    let expected = dims.iter().all(|&dim| dim > 0) && bytes.is_some_and(|bytes| bytes <= i64::MAX.into());
    let shape = Shape3::new(dims);
    assert_eq!(shape.is_ok(), expected, "{dims:?}");
    let Ok(shape) = shape else { return Ok(()) };
    assert_eq!(Some(shape.count() as i128), product(&dims));
    assert_eq!(shape.offset(shape.dims().map(|dim| dim - 1)), shape.count() - 1);
    // Bytes that do not fit the shape are refused, however large it is.
    let bytes = u.bytes(u.len().min(64))?;
    let fits =
        |size: usize, classes: usize| (shape.count() * size) as u128 * classes as u128 == bytes.len() as u128;
    assert_eq!(Labels::new(bytes, shape).is_ok(), fits(1, 1));
    assert_eq!(Input::new(bytes, VoxelType::Fp32, shape).is_ok(), fits(4, 1));
    assert_eq!(Input::new(bytes, VoxelType::Int16, shape).is_ok(), fits(2, 1));
    for classes in [0, 1, 2, 256, 257, usize::MAX] {
        let found = Logits::new(bytes, LogitType::Fp32, classes, shape).is_ok();
        assert_eq!(found, (1..257).contains(&classes) && fits(4, classes));
    }
    Ok(())
}

fn boxes(u: &mut Unstructured) -> Result<()> {
    let (start, end, margin, k) = (three(u)?, three(u)?, three(u)?, three(u)?);
    let Ok(image) = Shape3::new(three(u)?) else { return Ok(()) };
    // What the pipeline does: a box inside the image, parameters within 31 bits.
    let dims = image.dims().map(|dim| dim as i64);
    let start = AXES.map(|axis| start[axis].rem_euclid(dims[axis]));
    let end = AXES.map(|axis| start[axis] + 1 + end[axis].rem_euclid(dims[axis] - start[axis]));
    let margin = margin.map(|margin| margin.rem_euclid(1 << 31));
    let k = k.map(|k| k.min(i32::MAX.into()));
    let allow_smaller = u.arbitrary()?;
    let tight = BoundingBox { start, end };
    let grown = tight.with_margin(margin, allow_smaller, image);
    let crop = grown.made_divisible(k);
    for axis in AXES {
        let wide = |value: i64| i128::from(value);
        let (mut low, mut high) =
            (wide(start[axis]) - wide(margin[axis]), wide(end[axis]) + wide(margin[axis]));
        if allow_smaller {
            (low, high) = (low.max(0), high.min(wide(dims[axis])));
        }
        assert_eq!((wide(grown.start[axis]), wide(grown.end[axis])), (low, high));
        let k = wide(k[axis]).max(1);
        let wanted = (high - low + k - 1) / k * k;
        low -= (wanted - (high - low)) / 2;
        assert_eq!((wide(crop.start[axis]), wide(crop.end[axis])), (low, low + wanted));
    }
    // The way back, where it is small enough to be made.
    let Ok(grid) = Shape3::new([number(u)?, number(u)?, number(u)?]) else { return Ok(()) };
    if dims.iter().chain(&grid.dims().map(|dim| dim as i64)).all(|&dim| dim <= 4096) && crop.size().is_ok() {
        let placement = Placement { crop, input_shape: image, align_corners: u.arbitrary()? };
        let Ok(axes) = placement.axes(grid) else { panic!("no way back: {placement:?}") };
        for (axis, back) in AXES.into_iter().zip(axes) {
            let size = grid.dims()[axis];
            assert!(back.labels.iter().all(|&label| label < size) && back.labels.is_sorted());
            assert!(back.first + back.labels.len() <= image.dims()[axis]);
            let Ok(weights) = back.weights(size) else { panic!("no weights") };
            assert_eq!(weights.iter().sum::<u64>(), back.labels.len() as u64);
        }
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    let u = &mut Unstructured::new(data);
    // Where the bytes end, so does the look at them.
    let _ = match u.int_in_range(0..=2) {
        Ok(0) => byte_sizes(u),
        Ok(1) => shapes(u),
        _ => boxes(u),
    };
});
