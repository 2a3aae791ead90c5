//! The order of the steps, shown on a device that records them, and the whole on the host.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::*;
use crate::cpu::{Cpu, Input, Logits, Threads};
use crate::volume::{LogitType, VoxelType};

/// A device whose volumes are all 4-cubes; an input is its foreground.
#[derive(Default)]
struct Recorder {
    calls: RefCell<Vec<String>>,
}

impl Recorder {
    fn note(&self, call: impl Into<String>) {
        self.calls.borrow_mut().push(call.into());
    }
}

impl Device for Recorder {
    type Input<'a> = Option<BoundingBox>;
    type Tensor = BoundingBox;
    type Logits<'a> = ();
    type Labels = &'static str;
    type Output<'a> = ();

    fn shape(&self, _: &Option<BoundingBox>) -> Shape3 {
        Shape3::new([4; 3]).unwrap()
    }

    fn find_foreground(&self, input: &Option<BoundingBox>, _: &Scale) -> Result<Foreground> {
        self.note("find_foreground");
        Ok(Foreground { bounding_box: *input, nan_count: 3, inf_count: 1 })
    }

    fn crop_scale_resize(&self, _: &Option<BoundingBox>, plan: &CropScaleResize) -> Result<BoundingBox> {
        self.note("crop_scale_resize");
        Ok(plan.crop)
    }

    fn argmax(&self, (): &()) -> Result<Argmax<&'static str>> {
        self.note("argmax");
        Ok(Argmax { labels: "labels", nan_count: 7 })
    }

    fn keep_largest(&self, labels: &'static str, _: &KeepLargest) -> Result<&'static str> {
        self.note(format!("keep_largest of {labels}"));
        Ok("mask")
    }

    fn contour(&self, labels: &&'static str) -> Result<&'static str> {
        self.note(format!("contour of {labels}"));
        Ok(if *labels == "mask" { "contour" } else { "native contour" })
    }

    fn restore(&self, labels: &&'static str, _: &Placement) -> Result<(&'static str, VoxelCount)> {
        self.note(format!("restore of {labels}"));
        Ok(("native mask", VoxelCount { grid: 8, native: 9 }))
    }

    fn count(&self, labels: &&'static str, _: &Placement) -> Result<VoxelCount> {
        self.note(format!("count of {labels}"));
        Ok(VoxelCount { grid: 8, native: 9 })
    }

    fn write(&self, _: &&'static str, (): ()) -> Result<()> {
        Ok(())
    }
}

fn pipeline(parameters: &[(&str, &str)]) -> Pipeline {
    let parameters: BTreeMap<_, _> = parameters.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
    Pipeline::new(&PipelineConfig::from_parameters(&parameters).unwrap())
}

const BOX: BoundingBox = BoundingBox { start: [1, 0, 2], end: [3, 1, 3] };

#[test]
fn all_boxes_are_found_before_anything_is_resized() {
    let device = Recorder::default();
    let prepared = pipeline(&[]).prepare(&device, &[Some(BOX), Some(BOX)]).unwrap();
    assert_eq!(prepared.len(), 2);
    assert_eq!((prepared[0].nan_count, prepared[0].inf_count), (3, 1));
    let order = ["find_foreground", "find_foreground", "crop_scale_resize", "crop_scale_resize"];
    assert_eq!(*device.calls.borrow(), order);
}

#[test]
fn a_volume_without_foreground_is_named_and_nothing_is_resized() {
    let device = Recorder::default();
    let error = pipeline(&[]).prepare(&device, &[Some(BOX), None, Some(BOX)]).unwrap_err();
    assert_eq!(error.code(), triton_backend_api::ErrorCode::InvalidArg);
    assert!(
        error.message().starts_with("volume 1 of the batch (4x4x4 voxels, 3 NaN, 1 infinite)"),
        "{error}"
    );
    assert!(!device.calls.borrow().iter().any(|call| call == "crop_scale_resize"));
}

#[test]
fn the_box_grows_by_the_margin_first_and_to_a_multiple_of_k_then() {
    let crop = |parameters: &[(&str, &str)]| {
        pipeline(parameters).prepare(&Recorder::default(), &[Some(BOX)]).unwrap().remove(0).placement.crop
    };
    assert_eq!(crop(&[]), BOX);
    assert_eq!(crop(&[("margin", "2")]), BoundingBox { start: [0, 0, 0], end: [4, 3, 4] });
    let padded = [("margin", "2"), ("allow_smaller", "false")];
    assert_eq!(crop(&padded), BoundingBox { start: [-1, -2, 0], end: [5, 3, 5] });
    let divisible = [("margin", "2"), ("k_divisible", "8")];
    assert_eq!(crop(&divisible), BoundingBox { start: [-2, -2, -2], end: [6, 6, 6] });
}

#[test]
fn the_size_is_the_configured_one_or_the_crops_own() {
    let size = |value| {
        let prepared =
            pipeline(&[("spatial_size", value)]).prepare(&Recorder::default(), &[Some(BOX)]).unwrap();
        prepared[0].tensor_shape.dims()
    };
    assert_eq!(size("9,8,7"), [9, 8, 7]);
    assert_eq!(size("-1"), [2, 1, 1]);
    assert_eq!(size("-1,8,0"), [2, 8, 1]);
}

#[test]
fn what_is_not_wanted_is_not_computed() {
    let placement = Placement { crop: BOX, input_shape: Shape3::new([4; 3]).unwrap(), align_corners: false };
    for bits in 0..16 {
        let [mask, contour, mask_native, contour_native] = [1, 2, 4, 8].map(|bit| bits & bit > 0);
        let wanted = Wanted { mask, contour, mask_native, contour_native };
        // What is put back is counted with it.
        let counted = if mask_native || contour_native { "restore of mask" } else { "count of mask" };
        let mut calls = vec!["argmax", "keep_largest of labels", counted];
        calls.extend(contour.then_some("contour of mask"));
        calls.extend(contour_native.then_some("contour of native mask"));

        let device = Recorder::default();
        let done = pipeline(&[]).finish(&device, &(), &placement, wanted).unwrap();
        let names = Results {
            mask: "mask",
            contour: "contour",
            mask_native: "native mask",
            contour_native: "native contour",
        };
        assert_eq!(done.labels, wanted.zip(names).map(|(wanted, name)| wanted.then_some(name)));
        assert_eq!((done.voxels, done.nan_count), (VoxelCount { grid: 8, native: 9 }, 7));
        assert_eq!(*device.calls.borrow(), calls);
    }
}

#[test]
fn on_the_host_from_voxels_to_contour() {
    // Foreground is the last 3-cube of a 4-cube of air, whose corner is NaN; the resize keeps its size.
    let shape = Shape3::new([4; 3]).unwrap();
    let mut values = [-1000.0_f32; 64];
    for i in 1..4 {
        for j in 1..4 {
            for k in 1..4 {
                values[shape.offset([i, j, k])] = 53.5;
            }
        }
    }
    values[0] = f32::NAN;
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let pipeline = pipeline(&[("spatial_size", "3")]);
    let input = Input::new(&bytes, VoxelType::Fp32, shape).unwrap();
    let cpu = Cpu::new(Threads::new(2).unwrap(), 1);
    let prepared = pipeline.prepare(&cpu, &[input]).unwrap().remove(0);
    let placement = prepared.placement;
    let crop = BoundingBox { start: [1; 3], end: [4; 3] };
    assert_eq!(placement, Placement { crop, input_shape: shape, align_corners: false });
    assert_eq!((prepared.nan_count, prepared.inf_count), (1, 0));
    assert_eq!(prepared.tensor.data(), [0.5; 27]);

    let scores: Vec<u8> =
        [0.0_f32; 27].iter().chain(&[1.0; 27]).flat_map(|score| score.to_ne_bytes()).collect();
    let logits = Logits::new(&scores, LogitType::Fp32, 2, prepared.tensor_shape).unwrap();
    let all = Wanted { mask: true, contour: true, mask_native: true, contour_native: true };
    let done = pipeline.finish(&cpu, &logits, &placement, all).unwrap();
    let mut shell = [1; 27];
    shell[13] = 0;
    // The box in the corner of the input, where the contour also runs along the input's own faces.
    let in_corner = |small: &[u8]| {
        let mut native = vec![0; 64];
        for (at, &label) in small.iter().enumerate() {
            native[shape.offset([1 + at / 9, 1 + at / 3 % 3, 1 + at % 3])] = label;
        }
        native
    };
    let found = done.labels.as_ref().map(|labels| labels.as_ref().unwrap().data().to_vec());
    assert_eq!(found.mask, [1; 27]);
    assert_eq!(found.contour, shell);
    assert_eq!(found.mask_native, in_corner(&[1; 27]));
    assert_eq!(found.contour_native, in_corner(&shell));
    assert_eq!(done.voxels, VoxelCount { grid: 27, native: 27 });
}
