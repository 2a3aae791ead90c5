//! ScaleIntensityRange in float32, and how a voxel is read.

use crate::config::Scale;

/// One voxel as it lies in memory.
pub(super) trait Voxel: Copy + Send + Sync {
    /// Its intensity.
    fn value(self) -> f32;
}

/// FP32.
impl Voxel for [u8; 4] {
    #[inline(always)]
    fn value(self) -> f32 {
        f32::from_ne_bytes(self)
    }
}

/// INT16: converted first, so that the arithmetic is that of FP32.
impl Voxel for [u8; 2] {
    #[inline(always)]
    fn value(self) -> f32 {
        f32::from(i16::from_ne_bytes(self))
    }
}

/// The scaled intensity. Each operation is rounded to float32; NaN stays NaN, also through the limits.
#[inline(always)]
pub(super) fn scaled(scale: &Scale, value: f32) -> f32 {
    ranged(scale, (value - scale.a_min) / scale.a_span)
}

/// What comes after the division by the span: the range `b`, and the limits.
#[inline(always)]
pub(super) fn ranged(scale: &Scale, mut value: f32) -> f32 {
    if let Some((span, min)) = scale.b {
        value = value * span + min;
    }
    if let Some(lowest) = scale.lowest
        && value < lowest
    {
        value = lowest;
    }
    if let Some(highest) = scale.highest
        && value > highest
    {
        value = highest;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO_UNIT: Scale =
        Scale { a_min: -57.0, a_span: 221.0, b: Some((1.0, 0.0)), lowest: Some(0.0), highest: Some(1.0) };

    #[test]
    fn the_range_maps_onto_its_target_and_is_limited_to_it() {
        for (value, expected) in
            [(-57.0, 0.0), (164.0, 1.0), (53.5, 0.5), (-1000.0, 0.0), (3000.0, 1.0), (f32::INFINITY, 1.0)]
        {
            assert_eq!(scaled(&TO_UNIT, value), expected, "{value}");
        }
        assert_eq!(scaled(&TO_UNIT, f32::NEG_INFINITY), 0.0);
        assert!(scaled(&TO_UNIT, f32::NAN).is_nan());
    }

    #[test]
    fn without_limits_values_go_on_beyond_the_range() {
        let open = Scale { lowest: None, highest: None, ..TO_UNIT };
        assert_eq!(scaled(&open, 164.0 + 221.0), 2.0);
        assert_eq!(scaled(&open, f32::NEG_INFINITY), f32::NEG_INFINITY);
    }

    #[test]
    fn one_limit_alone_limits_one_side_and_does_not_scale() {
        let floor = Scale { b: None, lowest: Some(0.25), highest: None, ..TO_UNIT };
        assert_eq!(scaled(&floor, -57.0), 0.25);
        assert_eq!(scaled(&floor, 164.0 + 221.0), 2.0);
    }

    #[test]
    fn voxels_are_read_in_native_order() {
        assert_eq!((-1024i16).to_ne_bytes().value(), -1024.0);
        assert_eq!((1.5f32).to_ne_bytes().value(), 1.5);
    }
}
