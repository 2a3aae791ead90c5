//! The order of the steps, for each request and each batch, on any device.
//!
//! [`Pipeline`] knows what comes after what and nothing of where the voxels lie: a [`Device`] owns all buffers, and each
//! of its methods is one step. The network's turn comes between [`Pipeline::prepare`] and [`Pipeline::finish`].

use triton_backend_api::{Error, Result};

use crate::config::{CropForeground, KeepLargest, PipelineConfig, Resize, ResizeMode, Scale};
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

    /// Looks at every voxel: the box around those above 0 after scaling, and how many are no finite number.
    fn find_foreground(&self, input: &Self::Input<'_>, scale: &Scale) -> Result<Foreground>;

    /// Cuts the box out of the input, scales the intensities, pads with 0 where the box leaves the image, and resizes.
    fn crop_scale_resize(&self, input: &Self::Input<'_>, plan: &CropScaleResize) -> Result<Self::Tensor>;

    /// The class of the largest score at each voxel: NaN counts as largest, the lowest class wins ties.
    fn argmax(&self, logits: &Self::Logits<'_>) -> Result<Argmax<Self::Labels>>;

    /// Sets to 0 what is not among the largest connected components.
    fn keep_largest(&self, labels: Self::Labels, keep: &KeepLargest) -> Result<Self::Labels>;

    /// 1 where 26 times the label exceeds the sum of the 26 labels around it (0 outside the volume), else 0.
    fn contour(&self, labels: &Self::Labels) -> Result<Self::Labels>;

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
    pub crop: BoundingBox,
    /// The size of the input.
    pub input_shape: Shape3,
    /// How many voxels of the input are NaN: worth a warning.
    pub nan_count: u64,
    /// How many voxels of the input are infinite: worth a warning.
    pub inf_count: u64,
}

/// Which results a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The label map.
    pub mask: bool,
    /// Its contour.
    pub contour: bool,
}

/// The results for one volume; those that were not wanted are absent and were not computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segmentation<Labels> {
    /// The label map.
    pub mask: Option<Labels>,
    /// Its contour.
    pub contour: Option<Labels>,
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
            .map(|(input, (foreground, plan))| {
                Ok(PreparedVolume {
                    tensor: device.crop_scale_resize(input, &plan)?,
                    tensor_shape: plan.size,
                    crop: plan.crop,
                    input_shape: device.shape(input),
                    nan_count: foreground.nan_count,
                    inf_count: foreground.inf_count,
                })
            })
            .collect()
    }

    /// Everything after the network, for one volume.
    pub fn finish<D: Device>(
        &self,
        device: &D,
        logits: &D::Logits<'_>,
        wanted: Wanted,
    ) -> Result<Segmentation<D::Labels>> {
        if !wanted.mask && !wanted.contour {
            return Ok(Segmentation { mask: None, contour: None, nan_count: 0 });
        }
        let Argmax { labels, nan_count } = device.argmax(logits)?;
        let mask = device.keep_largest(labels, &self.keep)?;
        let contour = if wanted.contour { Some(device.contour(&mask)?) } else { None };
        Ok(Segmentation { mask: wanted.mask.then_some(mask), contour, nan_count })
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
