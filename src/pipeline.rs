//! The order of the steps, for each request and each batch, on any device.
//!
//! [`Pipeline`] knows what comes after what and nothing of where the voxels lie: a [`Device`] owns all buffers, and each
//! of its methods is one step. The network's turn comes between [`Pipeline::prepare`] and [`Pipeline::finish`].

use triton_backend_api::{Error, Result};

use crate::config::{CropForeground, KeepLargest, PipelineConfig, Resize, ResizeMode, Scale};
use crate::native::{Placement, VoxelCount};
use crate::volume::{BoundingBox, Foreground, Shape3};

/// Where the steps run. One implementation is one set of kernels and the buffers that they work on.
pub trait Device {
    /// One volume of the input, where it lies.
    type Input<'a>;
    /// A resized volume, FP32: what the network reads.
    type Tensor;
    /// The network's reply for one volume, where it lies: one score per class and voxel.
    type Logits<'a>;
    /// One label per voxel.
    type Labels;
    /// A place to write labels to, and the element type wanted there.
    type Output<'a>;

    /// The size of an input volume.
    fn shape(&self, input: &Self::Input<'_>) -> Shape3;

    /// The box around the voxels above 0 after scaling, and how many voxels are no finite number, as far as it looks.
    fn find_foreground(&self, input: &Self::Input<'_>, scale: &Scale) -> Result<Foreground>;

    /// Cuts the box out of the input, scales the intensities, pads with 0 where the box leaves the image, and resizes.
    fn crop_scale_resize(&self, input: &Self::Input<'_>, plan: &CropScaleResize) -> Result<Self::Tensor>;

    /// Completes what was counted by [`Device::find_foreground`] after the resize, where that did not look at every voxel.
    fn count_not_finite(
        &self,
        _input: &Self::Input<'_>,
        found: Foreground,
        _resized: &Self::Tensor,
    ) -> Result<Foreground> {
        Ok(found)
    }

    /// The class of the largest score at each voxel: NaN counts as largest, the lowest class wins ties.
    fn argmax(&self, logits: &Self::Logits<'_>) -> Result<Argmax<Self::Labels>>;

    /// Sets to 0 what is not among the largest connected components.
    fn keep_largest(&self, labels: Self::Labels, keep: &KeepLargest) -> Result<Self::Labels>;

    /// 1 where 26 times the label exceeds the sum of the 26 labels around it (0 outside the volume), else 0.
    fn contour(&self, labels: &Self::Labels) -> Result<Self::Labels>;

    /// Puts labels back on the grid of the input: each voxel of the box takes the nearest label, all others are 0. Counts
    /// them as [`Device::count`] does.
    fn restore(&self, labels: &Self::Labels, placement: &Placement) -> Result<(Self::Labels, VoxelCount)>;

    /// How many labels are above 0, on their own grid and on that of the input, without making the latter.
    fn count(&self, labels: &Self::Labels, placement: &Placement) -> Result<VoxelCount>;

    /// Writes labels to an output in the output's element type.
    fn write(&self, labels: &Self::Labels, output: Self::Output<'_>) -> Result<()>;
}

/// All that [`Device::crop_scale_resize`] needs besides the voxels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CropScaleResize {
    /// The intensity scaling.
    pub scale: Scale,
    /// The box to cut out; it overlaps the image and may reach outside it.
    pub crop: BoundingBox,
    /// The size to resize to.
    pub size: Shape3,
    /// How to resize.
    pub mode: ResizeMode,
}

/// What [`Device::argmax`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argmax<Labels> {
    /// The winning class of each voxel.
    pub labels: Labels,
    /// How many scores are NaN.
    pub nan_count: u64,
}

/// One volume of a request, ready for the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedVolume<Tensor> {
    /// What the network reads.
    pub tensor: Tensor,
    /// The size of `tensor`; the network's own shape is this with a batch and a channel axis of 1 before it.
    pub tensor_shape: Shape3,
    /// Where the tensor lies in the input.
    pub placement: Placement,
    /// How many voxels of the input are NaN: worth a warning.
    pub nan_count: u64,
    /// How many voxels of the input are infinite: worth a warning.
    pub inf_count: u64,
}

/// One thing for each of the results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Results<T> {
    /// The label map, on the network's grid.
    pub mask: T,
    /// Its contour.
    pub contour: T,
    /// The label map on the grid of the input.
    pub mask_native: T,
    /// The contour of that.
    pub contour_native: T,
}

impl<T> Results<T> {
    /// The same for each, in the order of the fields.
    pub fn map<U>(self, mut each: impl FnMut(T) -> U) -> Results<U> {
        Results {
            mask: each(self.mask),
            contour: each(self.contour),
            mask_native: each(self.mask_native),
            contour_native: each(self.contour_native),
        }
    }

    /// Each with that of `other`.
    pub fn zip<U>(self, other: Results<U>) -> Results<(T, U)> {
        Results {
            mask: (self.mask, other.mask),
            contour: (self.contour, other.contour),
            mask_native: (self.mask_native, other.mask_native),
            contour_native: (self.contour_native, other.contour_native),
        }
    }

    /// All, in the order of the fields.
    pub fn into_array(self) -> [T; 4] {
        [self.mask, self.contour, self.mask_native, self.contour_native]
    }

    /// References to change them.
    pub fn as_mut(&mut self) -> Results<&mut T> {
        let Self { mask, contour, mask_native, contour_native } = self;
        Results { mask, contour, mask_native, contour_native }
    }

    /// References to them.
    pub fn as_ref(&self) -> Results<&T> {
        let Self { mask, contour, mask_native, contour_native } = self;
        Results { mask, contour, mask_native, contour_native }
    }
}

/// Which results a request asks for.
pub type Wanted = Results<bool>;

/// The results for one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segmentation<Labels> {
    /// Those that were wanted; the others were not computed.
    pub labels: Results<Option<Labels>>,
    /// How many voxels the label map has.
    pub voxels: VoxelCount,
    /// How many of the network's scores are NaN: worth a warning.
    pub nan_count: u64,
}

/// The steps before and after the network, with their parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    scale: Scale,
    crop: CropForeground,
    resize: Resize,
    keep: KeepLargest,
}

impl Pipeline {
    /// The pipeline of a configuration.
    pub fn new(config: &PipelineConfig) -> Self {
        Self {
            scale: config.intensity.in_float32(),
            crop: config.crop,
            resize: config.resize,
            keep: config.keep.clone(),
        }
    }

    /// Everything before the network, for all volumes of a request.
    ///
    /// All boxes are found before anything is resized, so a volume without foreground costs nothing but a look.
    pub fn prepare<D: Device>(
        &self,
        device: &D,
        inputs: &[D::Input<'_>],
    ) -> Result<Vec<PreparedVolume<D::Tensor>>> {
        let plans: Vec<_> =
            inputs.iter().enumerate().map(|(i, input)| self.plan(device, input, i)).collect::<Result<_>>()?;
        inputs
            .iter()
            .zip(plans)
            .map(|(input, (found, plan))| {
                let tensor = device.crop_scale_resize(input, &plan)?;
                let foreground = device.count_not_finite(input, found, &tensor)?;
                Ok(PreparedVolume {
                    tensor,
                    tensor_shape: plan.size,
                    placement: Placement {
                        crop: plan.crop,
                        input_shape: device.shape(input),
                        align_corners: plan.mode == ResizeMode::Trilinear { align_corners: true },
                    },
                    nan_count: foreground.nan_count,
                    inf_count: foreground.inf_count,
                })
            })
            .collect()
    }

    /// Everything after the network, for one volume, which lies in the input at `placement`.
    pub fn finish<D: Device>(
        &self,
        device: &D,
        logits: &D::Logits<'_>,
        placement: &Placement,
        wanted: Wanted,
    ) -> Result<Segmentation<D::Labels>> {
        let Argmax { labels, nan_count } = device.argmax(logits)?;
        let mask = device.keep_largest(labels, &self.keep)?;
        let (mask_native, voxels) = if wanted.mask_native || wanted.contour_native {
            let (native, voxels) = device.restore(&mask, placement)?;
            (Some(native), voxels)
        } else {
            (None, device.count(&mask, placement)?)
        };
        let contour = wanted.contour.then(|| device.contour(&mask)).transpose()?;
        let mask = wanted.mask.then_some(mask);
        let contour_native = match &mask_native {
            Some(mask) if wanted.contour_native => Some(device.contour(mask)?),
            _ => None,
        };
        let mask_native = mask_native.filter(|_| wanted.mask_native);
        let labels = Results { mask, contour, mask_native, contour_native };
        Ok(Segmentation { labels, voxels, nan_count })
    }

    /// What to cut out of one volume, and how to resize it.
    fn plan<D: Device>(
        &self,
        device: &D,
        input: &D::Input<'_>,
        index: usize,
    ) -> Result<(Foreground, CropScaleResize)> {
        let image = device.shape(input);
        let foreground = device.find_foreground(input, &self.scale)?;
        let Some(tight) = foreground.bounding_box else {
            let (nan, inf) = (foreground.nan_count, foreground.inf_count);
            return Err(Error::invalid_arg(format!(
                "volume {index} of the batch ({image} voxels, {nan} NaN, {inf} infinite) has no foreground: \
                 no voxel is above 0 after scaling; accepted are volumes with at least one"
            )));
        };
        let crop = tight
            .with_margin(self.crop.margin, self.crop.allow_smaller, image)
            .made_divisible(self.crop.k_divisible);
        let in_volume = |error: Error| error.context(format!("volume {index} of the batch"));
        let cropped = crop.size().map_err(in_volume)?;
        let size = self.resize.target(cropped).map_err(in_volume)?;
        Ok((foreground, CropScaleResize { scale: self.scale, crop, size, mode: self.resize.mode }))
    }
}

#[cfg(test)]
mod tests;
