//! Value types of volumes: sizes, boxes, and the element types at the pipeline's edges.

use std::fmt;

use triton_backend_api::{Error, Result};

// Sizes are `usize` and file offsets reach beyond 2^31 elements.
const _: () = assert!(usize::BITS == 64, "volumes need 64-bit sizes");

/// The largest element of any buffer of the pipeline, in bytes (INT64 labels).
const LARGEST_ELEMENT: i64 = 8;

/// The numbers of a volume's axes: H, W, D.
pub const AXES: [usize; 3] = [0, 1, 2];

/// The size of a volume along its three axes (H, W, D), in C order: the last axis is contiguous.
///
/// Every axis is at least 1, and any buffer of this many elements has a byte count below 2^63.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shape3([usize; 3]);

impl Shape3 {
    /// The shape of these sizes, or INVALID_ARG when an axis is empty or the volume too large to address.
    pub fn new(dims: [i64; 3]) -> Result<Self> {
        let [h, w, d] = dims;
        if dims.iter().any(|&dim| dim < 1) {
            return Err(Error::invalid_arg(format!(
                "a volume of {h}x{w}x{d} voxels; every axis must be 1 or more"
            )));
        }
        let bytes =
            h.checked_mul(w).and_then(|hw| hw.checked_mul(d)).and_then(|n| n.checked_mul(LARGEST_ELEMENT));
        match bytes {
            Some(_) => Ok(Self(dims.map(|dim| dim as usize))),
            None => Err(Error::invalid_arg(format!(
                "a volume of {h}x{w}x{d} voxels cannot be addressed; accepted are fewer than 2^60 voxels"
            ))),
        }
    }

    /// The sizes along the axes.
    pub fn dims(self) -> [usize; 3] {
        self.0
    }

    /// The number of voxels.
    pub fn count(self) -> usize {
        let [h, w, d] = self.0;
        h * w * d
    }

    /// The place of a voxel in C order. Each index must lie inside its axis.
    pub fn offset(self, [i, j, k]: [usize; 3]) -> usize {
        let [_, w, d] = self.0;
        (i * w + j) * d + k
    }
}

impl fmt::Display for Shape3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [h, w, d] = self.0;
        write!(f, "{h}x{w}x{d}")
    }
}

/// A box of voxels: `start` belongs to it, `end` does not. It may reach outside the image; what lies there is padding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BoundingBox {
    /// First voxel along each axis.
    pub start: [i64; 3],
    /// One past the last voxel along each axis.
    pub end: [i64; 3],
}

impl BoundingBox {
    /// The size along each axis.
    pub fn size(&self) -> Result<Shape3> {
        Shape3::new(AXES.map(|axis| self.end[axis].saturating_sub(self.start[axis])))
    }

    /// The box with `margin` more voxels on both sides of each axis; with `allow_smaller` cut at the image's edges.
    #[must_use]
    pub fn with_margin(&self, margin: [i64; 3], allow_smaller: bool, image: Shape3) -> Self {
        let mut grown = *self;
        for axis in AXES {
            grown.start[axis] = self.start[axis].saturating_sub(margin[axis]);
            grown.end[axis] = self.end[axis].saturating_add(margin[axis]);
            if allow_smaller {
                grown.start[axis] = grown.start[axis].max(0);
                grown.end[axis] = grown.end[axis].min(image.dims()[axis] as i64);
            }
        }
        grown
    }

    /// The box grown, about its middle, until each axis is a multiple of `k`; 0 and below leave an axis as it is.
    ///
    /// An odd number of new voxels puts the odd one at the end. The image's edges play no part: outside is padding.
    #[must_use]
    pub fn made_divisible(&self, k: [i64; 3]) -> Self {
        let mut grown = *self;
        for axis in AXES {
            if k[axis] > 0 {
                let size = self.end[axis].saturating_sub(self.start[axis]);
                let wanted = (size as u64).div_ceil(k[axis] as u64).saturating_mul(k[axis] as u64);
                let wanted = i64::try_from(wanted).unwrap_or(i64::MAX);
                grown.start[axis] = self.start[axis].saturating_sub((wanted - size) / 2);
                grown.end[axis] = grown.start[axis].saturating_add(wanted);
            }
        }
        grown
    }
}

/// What the search for an input's foreground tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Foreground {
    /// The smallest box around all voxels above 0 after scaling; none when there is no such voxel.
    pub bounding_box: Option<BoundingBox>,
    /// How many voxels are NaN.
    pub nan_count: u64,
    /// How many voxels are infinite.
    pub inf_count: u64,
}

/// Element type of an input volume.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum VoxelType {
    /// 32-bit float.
    Fp32,
    /// 16-bit signed integer.
    Int16,
}

impl VoxelType {
    /// Bytes of one voxel.
    pub fn size(self) -> usize {
        match self {
            Self::Fp32 => 4,
            Self::Int16 => 2,
        }
    }
}

/// Element type of the network's reply.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LogitType {
    /// 32-bit float.
    Fp32,
    /// 16-bit float.
    Fp16,
}

impl LogitType {
    /// Bytes of one logit.
    pub fn size(self) -> usize {
        match self {
            Self::Fp32 => 4,
            Self::Fp16 => 2,
        }
    }
}

/// Element type of an output.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LabelType {
    /// 32-bit float.
    Fp32,
    /// 16-bit float.
    Fp16,
    /// 8-bit unsigned integer.
    Uint8,
    /// 32-bit signed integer.
    Int32,
    /// 64-bit signed integer.
    Int64,
    /// One byte, 0 or 1.
    Bool,
}

impl LabelType {
    /// Bytes of one label.
    pub fn size(self) -> usize {
        match self {
            Self::Uint8 | Self::Bool => 1,
            Self::Fp16 => 2,
            Self::Fp32 | Self::Int32 => 4,
            Self::Int64 => 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_beyond_32_bits_are_addressed_and_beyond_63_refused() {
        let shape = Shape3::new([1300, 1300, 1300]).unwrap();
        assert_eq!(shape.count(), 2_197_000_000);
        assert_eq!(shape.offset([1299, 1299, 1299]), 2_196_999_999);
        let most = 1 << 20;
        assert!(Shape3::new([most, most, most - 1]).is_ok());
        for dims in [[most, most, most], [i64::MAX, 1, 1], [i64::MAX; 3], [0, 5, 5], [5, -1, 5]] {
            let error = Shape3::new(dims).unwrap_err();
            assert_eq!(error.code(), triton_backend_api::ErrorCode::InvalidArg);
            assert!(error.message().contains(&format!("{}x{}x{}", dims[0], dims[1], dims[2])), "{error}");
        }
    }

    #[test]
    fn a_margin_ends_at_the_image_or_leaves_it() {
        // Foreground of 3x2x2 voxels at the border of a 10-cube, margin 4.
        let tight = BoundingBox { start: [0, 4, 8], end: [3, 6, 10] };
        let image = Shape3::new([10, 10, 10]).unwrap();
        assert_eq!(tight.with_margin([0; 3], false, image), tight);
        assert_eq!(tight.with_margin([0; 3], true, image), tight);
        let inside = tight.with_margin([4; 3], true, image);
        assert_eq!(inside, BoundingBox { start: [0, 0, 4], end: [7, 10, 10] });
        let padded = tight.with_margin([4; 3], false, image);
        assert_eq!(padded, BoundingBox { start: [-4, 0, 4], end: [7, 10, 14] });
        assert_eq!(padded.size().unwrap().dims(), [11, 10, 10]);
    }

    #[test]
    fn a_divisible_box_grows_about_its_middle_with_the_odd_voxel_at_the_end() {
        let tight = BoundingBox { start: [0, 4, 8], end: [3, 6, 10] };
        let grown = tight.made_divisible([4, 5, 2]);
        assert_eq!(grown, BoundingBox { start: [0, 3, 8], end: [4, 8, 10] });
        assert_eq!(tight.made_divisible([8, 0, -3]), BoundingBox { start: [-2, 4, 8], end: [6, 6, 10] });
    }
}
