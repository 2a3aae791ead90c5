#![doc = include_str!("../docs/configuration.md")]

mod limits;
mod parse;
mod provenance;
mod shadow;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use triton_backend_api::Result;

use crate::volume::{AXES, Shape3};
pub use limits::Limits;
use parse::Parameters;
pub use shadow::ShadowModel;

/// Every key with its default, as it would be written in `config.pbtxt`.
pub const DEFAULTS: [(&str, &str); 29] = [
    ("a_min", "-57"),
    ("a_max", "164"),
    ("b_min", "0"),
    ("b_max", "1"),
    ("clip", "true"),
    ("margin", "0"),
    ("allow_smaller", "true"),
    ("k_divisible", "1"),
    ("spatial_size", "224,224,224"),
    ("mode", "area"),
    ("align_corners", ""),
    ("applied_labels", "1"),
    ("is_onehot", ""),
    ("independent", "true"),
    ("connectivity", ""),
    ("num_components", "1"),
    ("segmentation_model", "segmentation_3d"),
    ("segmentation_version", "-1"),
    ("segmentation_input", "INPUT__0"),
    ("segmentation_output", "OUTPUT__0"),
    ("segmentation_timeout_s", "300"),
    ("max_in_flight", "2"),
    ("threads", "0"),
    ("max_voxels", "1073741824"),
    ("max_volumes", "16"),
    ("shadow_model", ""),
    ("shadow_version", "-1"),
    ("shadow_every", "100"),
    ("shadow_timeout_s", "300"),
];

/// Keys of the Python backend that are accepted without effect: inputs are used where they lie, and there is no
/// environment to unpack.
pub const IGNORED: [&str; 2] = ["EXECUTION_ENV_PATH", "FORCE_CPU_ONLY_INPUT_TENSORS"];

/// All parameters of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineConfig {
    /// ScaleIntensityRange.
    pub intensity: ScaleIntensity,
    /// CropForeground.
    pub crop: CropForeground,
    /// Resize.
    pub resize: Resize,
    /// KeepLargestConnectedComponent.
    pub keep: KeepLargest,
    /// The network.
    pub segmentation: SegmentationModel,
    /// Requests that one instance works on at once.
    pub max_in_flight: usize,
    /// Threads of the model's steps on the CPU; 0 is one for each processor.
    pub threads: usize,
    /// What a request may hold.
    pub limits: Limits,
    /// Another model to compare with.
    pub shadow: Option<ShadowModel>,
    /// The keys of [`IGNORED`] that were given: worth an INFO line.
    pub ignored: Vec<String>,
}

impl PipelineConfig {
    /// Reads the parameters; those that are absent have their defaults.
    pub fn from_parameters(parameters: &BTreeMap<String, String>) -> Result<Self> {
        let parameters = Parameters::new(parameters)?;
        Ok(Self {
            intensity: ScaleIntensity::from_parameters(&parameters)?,
            crop: CropForeground {
                margin: parameters.three_integers("margin", 0)?,
                allow_smaller: parameters.boolean("allow_smaller")?,
                k_divisible: parameters.three_integers("k_divisible", i64::MIN)?,
            },
            resize: Resize::from_parameters(&parameters)?,
            keep: KeepLargest::from_parameters(&parameters)?,
            segmentation: SegmentationModel::from_parameters(&parameters)?,
            max_in_flight: parameters.integer("max_in_flight", 1..=1024)? as usize,
            threads: parameters.integer("threads", 0..=1024)? as usize,
            limits: Limits::from_parameters(&parameters)?,
            shadow: ShadowModel::from_parameters(&parameters)?,
            ignored: parameters.ignored(),
        })
    }
}

/// ScaleIntensityRange: `a_min..a_max` becomes `b_min..b_max`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaleIntensity {
    /// The intensity that becomes `b_min`.
    pub a_min: f64,
    /// The intensity that becomes `b_max`.
    pub a_max: f64,
    /// What `a_min` becomes.
    pub b_min: Option<f64>,
    /// What `a_max` becomes.
    pub b_max: Option<f64>,
    /// Whether the result is limited to `b_min..b_max`.
    pub clip: bool,
}

impl ScaleIntensity {
    fn from_parameters(parameters: &Parameters<'_>) -> Result<Self> {
        let a_min = parameters.number("a_min")?;
        let a_max = parameters.number("a_max")?;
        parameters.check_range("a_min", "a_max", a_min, a_max)?;
        let b_min = parameters.number_or_none("b_min")?;
        let b_max = parameters.number_or_none("b_max")?;
        if let (Some(b_min), Some(b_max)) = (b_min, b_max) {
            parameters.check_range("b_min", "b_max", b_min, b_max)?;
        }
        let clip = parameters.boolean("clip")?;
        if clip && b_min.is_none() && b_max.is_none() {
            return Err(parameters.refuse("clip", "false, because neither b_min nor b_max is given"));
        }
        Ok(Self { a_min, a_max, b_min, b_max, clip })
    }

    /// The factors in the precision that the arithmetic has. Differences are taken before they are rounded.
    pub fn in_float32(&self) -> Scale {
        Scale {
            a_min: self.a_min as f32,
            a_span: (self.a_max - self.a_min) as f32,
            b: match (self.b_min, self.b_max) {
                (Some(b_min), Some(b_max)) => Some(((b_max - b_min) as f32, b_min as f32)),
                _ => None,
            },
            lowest: self.b_min.filter(|_| self.clip).map(|b_min| b_min as f32),
            highest: self.b_max.filter(|_| self.clip).map(|b_max| b_max as f32),
        }
    }
}

/// [`ScaleIntensity`] in float32: `(x - a_min) / a_span`, then `* b.0 + b.1`, then limited, each step rounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Subtracted first.
    pub a_min: f32,
    /// Divided by next.
    pub a_span: f32,
    /// Multiplied by the first and increased by the second.
    pub b: Option<(f32, f32)>,
    /// The lower limit of the result.
    pub lowest: Option<f32>,
    /// The upper limit of the result.
    pub highest: Option<f32>,
}

/// CropForeground: the box around the foreground, and how it grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CropForeground {
    /// Voxels added on both sides of each axis.
    pub margin: [i64; 3],
    /// Whether the margin ends at the image's edge; otherwise what lies outside is padded with 0.
    pub allow_smaller: bool,
    /// The crop's size is made a multiple of this; 0 and below leave the axis as it is.
    pub k_divisible: [i64; 3],
}

/// Resize: the size of the network's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resize {
    /// The size along each axis; none keeps the crop's.
    pub spatial_size: [Option<i64>; 3],
    /// How to resize.
    pub mode: ResizeMode,
}

/// How voxels are resampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeMode {
    /// The mean of the voxels that an output voxel covers, counting partly covered ones in full.
    Area,
    /// Linear along each axis.
    Trilinear {
        /// Whether the centres of the corner voxels stay where they are; otherwise the volume's outer faces do.
        align_corners: bool,
    },
    /// The voxel at the rounded-down position of the output voxel's lower corner.
    Nearest,
    /// The voxel under the output voxel's centre.
    NearestExact,
}

impl Resize {
    fn from_parameters(parameters: &Parameters<'_>) -> Result<Self> {
        let align_corners = parameters.boolean_or_none("align_corners")?;
        let mode = match parameters.text("mode")? {
            "area" => ResizeMode::Area,
            "trilinear" => ResizeMode::Trilinear { align_corners: align_corners.unwrap_or(false) },
            "nearest" => ResizeMode::Nearest,
            "nearest-exact" => ResizeMode::NearestExact,
            _ => return Err(parameters.refuse("mode", "area, trilinear, nearest or nearest-exact")),
        };
        if align_corners.is_some() && !matches!(mode, ResizeMode::Trilinear { .. }) {
            return Err(parameters
                .refuse("align_corners", "\"\" (None), because only mode trilinear has corners to align"));
        }
        let spatial_size = parameters
            .three_integers("spatial_size", i64::MIN)?
            .map(|size| Some(size).filter(|&size| size > 0));
        let resize = Self { spatial_size, mode };
        if let [Some(h), Some(w), Some(d)] = spatial_size {
            Shape3::new([h, w, d]).map_err(|error| error.context("parameter \"spatial_size\""))?;
        }
        Ok(resize)
    }

    /// The size that a crop of this size is resized to.
    pub fn target(&self, cropped: Shape3) -> Result<Shape3> {
        let cropped = cropped.dims();
        Shape3::new(AXES.map(|axis| self.spatial_size[axis].unwrap_or(cropped[axis] as i64)))
    }
}

/// KeepLargestConnectedComponent: which components of the label map stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepLargest {
    /// The labels looked at; none means every label but 0. Other labels stay as they are.
    pub applied_labels: Option<Vec<i64>>,
    /// Whether components are those of each label, or of the labels' union.
    pub independent: bool,
    /// Which voxels are neighbours.
    pub connectivity: Connectivity,
    /// How many components stay.
    pub num_components: usize,
}

/// Which of the 26 voxels around a voxel are its neighbours. The number counts the axes along which two may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Connectivity {
    /// The 6 that share a face.
    Faces = 1,
    /// The 18 that share a face or an edge.
    Edges = 2,
    /// All 26.
    Corners = 3,
}

impl KeepLargest {
    fn from_parameters(parameters: &Parameters<'_>) -> Result<Self> {
        if parameters.boolean_or_none("is_onehot")? == Some(true) {
            let accepted = "\"\" (None) or false, because after argmax there is one channel of labels";
            return Err(parameters.refuse("is_onehot", accepted));
        }
        Ok(Self {
            applied_labels: parameters.integers_or_none("applied_labels", 0)?,
            independent: parameters.boolean("independent")?,
            connectivity: match parameters.integer_or_none("connectivity", 1..=3)? {
                Some(1) => Connectivity::Faces,
                Some(2) => Connectivity::Edges,
                _ => Connectivity::Corners,
            },
            num_components: parameters.integer("num_components", 0..=i64::MAX)? as usize,
        })
    }
}

/// The network: another model of the same server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentationModel {
    /// Its name.
    pub model: String,
    /// Its version; -1 leaves the choice to the server.
    pub version: i64,
    /// The name of its input.
    pub input: String,
    /// The name of its output.
    pub output: String,
    /// How long to wait for its answer.
    pub timeout: Duration,
}

impl SegmentationModel {
    fn from_parameters(parameters: &Parameters<'_>) -> Result<Self> {
        Ok(Self {
            model: parameters.name("segmentation_model")?,
            version: parameters.version("segmentation_version")?,
            input: parameters.name("segmentation_input")?,
            output: parameters.name("segmentation_output")?,
            timeout: parameters.seconds("segmentation_timeout_s")?,
        })
    }
}
