//! The text that identifies a configuration by what decides the result.

use sha2::{Digest, Sha256};

use super::{PipelineConfig, ResizeMode};

impl PipelineConfig {
    /// The parameters that decide the result, `key=value;..`: however they were written, the same values give the same text.
    pub fn canonical(&self) -> String {
        let Self { intensity, crop, resize, keep, segmentation, .. } = self;
        let (mode, align_corners) = match resize.mode {
            ResizeMode::Area => ("area", None),
            ResizeMode::Trilinear { align_corners } => ("trilinear", Some(align_corners)),
            ResizeMode::Nearest => ("nearest", None),
            ResizeMode::NearestExact => ("nearest-exact", None),
        };
        let applied_labels = keep.applied_labels.as_ref().map(|labels| format!("[{}]", list(labels)));
        let values = [
            ("a_min", intensity.a_min.to_string()),
            ("a_max", intensity.a_max.to_string()),
            ("b_min", or_none(intensity.b_min)),
            ("b_max", or_none(intensity.b_max)),
            ("clip", intensity.clip.to_string()),
            ("margin", list(&crop.margin)),
            ("allow_smaller", crop.allow_smaller.to_string()),
            ("k_divisible", list(&crop.k_divisible)),
            ("spatial_size", list(&resize.spatial_size.map(|size| size.unwrap_or(-1)))),
            ("mode", mode.to_owned()),
            ("align_corners", or_none(align_corners)),
            ("applied_labels", or_none(applied_labels)),
            ("independent", keep.independent.to_string()),
            ("connectivity", (keep.connectivity as u8).to_string()),
            ("num_components", keep.num_components.to_string()),
            ("segmentation_model", segmentation.model.clone()),
            ("segmentation_version", segmentation.version.to_string()),
            ("segmentation_input", segmentation.input.clone()),
            ("segmentation_output", segmentation.output.clone()),
        ];
        values.map(|(key, value)| format!("{key}={value}")).join(";")
    }

    /// The first 16 hexadecimal digits of SHA-256 of [`PipelineConfig::canonical`].
    pub fn hash(&self) -> String {
        Sha256::digest(self.canonical()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

fn or_none(value: Option<impl ToString>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

fn list(values: &[i64]) -> String {
    values.iter().map(i64::to_string).collect::<Vec<_>>().join(",")
}
