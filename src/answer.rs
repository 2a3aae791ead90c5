//! What a response says besides its outputs, and what a request says besides its input: their parameters.
//!
//! Values are text. What differs between the volumes of a request is a JSON list with one entry a volume.

use build_id::BUILD_ID;
use serde_json::{Value, json};
use triton_backend_api::{Error, Parameter, Reply, Request, Result};

use crate::config::PipelineConfig;
use crate::native::VoxelCount;
use crate::pipeline::PreparedVolume;

/// Where a result comes from, as far as the configuration and the build decide it.
pub struct Provenance {
    config_hash: String,
}

impl Provenance {
    /// Of this configuration.
    pub fn new(config: &PipelineConfig) -> Self {
        Self { config_hash: config.hash() }
    }

    /// The hash of the configuration.
    pub fn config_hash(&self) -> &str {
        &self.config_hash
    }

    /// Says which build, which configuration and, for each volume, which version of the network.
    pub fn write(&self, reply: &mut Reply, networks: &[String]) -> Result<()> {
        reply.set_parameter("build_id", BUILD_ID)?;
        reply.set_parameter("config_hash", self.config_hash.as_str())?;
        reply.set_parameter("network", json!(networks).to_string())
    }
}

/// Says where the results lie in the input.
pub fn places<T>(reply: &mut Reply, prepared: &[PreparedVolume<T>]) -> Result<()> {
    reply.set_parameter("crop_start", list(prepared, |volume| json!(volume.placement.crop.start)))?;
    reply.set_parameter("crop_end", list(prepared, |volume| json!(volume.placement.crop.end)))?;
    reply.set_parameter("input_shape", list(prepared, |volume| json!(volume.placement.input_shape.dims())))
}

/// Says how large the masks are.
pub fn sizes(reply: &mut Reply, voxels: &[VoxelCount], spacing: Option<Spacing>) -> Result<()> {
    reply.set_parameter("voxels", list(voxels, |voxels| json!(voxels.native)))?;
    reply.set_parameter("mask_voxels", list(voxels, |voxels| json!(voxels.grid)))?;
    match spacing {
        Some(spacing) => {
            reply.set_parameter("volume_ml", list(voxels, |voxels| json!(spacing.millilitres(voxels.native))))
        }
        None => Ok(()),
    }
}

fn list<T>(volumes: &[T], entry: impl Fn(&T) -> Value) -> String {
    Value::from_iter(volumes.iter().map(entry)).to_string()
}

/// Millimetres from one voxel of the input to the next, along H, W and D.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spacing([f64; 3]);

impl Spacing {
    /// The request's, where it has one.
    pub fn of(request: &Request) -> Result<Option<Self>> {
        match request.parameter("spacing")? {
            None => Ok(None),
            Some(Parameter::String(text)) => Self::parse(&text).map(Some),
            Some(other) => Err(Self::refused(&format!("{other:?}"))),
        }
    }

    /// Reads `0.8,0.8,1.5` or `[0.8, 0.8, 1.5]`.
    fn parse(text: &str) -> Result<Self> {
        let inner = text.trim();
        let inner = inner.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(inner);
        let numbers: Option<Vec<f64>> = inner.split(',').map(|number| number.trim().parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[h, w, d]) if [h, w, d].iter().all(|size| size.is_finite() && *size > 0.0) => {
                Ok(Self([h, w, d]))
            }
            _ => Err(Self::refused(&format!("{text:?}"))),
        }
    }

    /// The error for a value that is not accepted.
    fn refused(found: &str) -> Error {
        Error::invalid_arg(format!(
            "request parameter 'spacing' is {found}; accepted is a string with three numbers above 0, the millimetres \
             from voxel to voxel along H, W and D, such as \"0.8,0.8,1.5\""
        ))
    }

    /// The volume of this many voxels, to the thousandth of a millilitre.
    fn millilitres(self, voxels: u64) -> f64 {
        // A cubic millimetre is a thousandth of a millilitre.
        (voxels as f64 * self.0.iter().product::<f64>()).round() / 1000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spacings_are_three_numbers_above_0() {
        assert_eq!(Spacing::parse("0.8,0.8,1.5"), Ok(Spacing([0.8, 0.8, 1.5])));
        assert_eq!(Spacing::parse(" [1, 2,3e0] "), Ok(Spacing([1.0, 2.0, 3.0])));
        for wrong in
            ["", "1", "1,2", "1,2,3,4", "1,2,x", "1,2,0", "1,2,-3", "1,2,inf", "1,2,nan", "1;2;3", "[1,2,3"]
        {
            let error = Spacing::parse(wrong).unwrap_err();
            assert_eq!(error.code(), triton_backend_api::ErrorCode::InvalidArg);
            assert!(error.message().contains(&format!("{wrong:?}; accepted")), "{error}");
        }
    }

    #[test]
    fn a_thousand_cubic_millimetres_are_a_millilitre() {
        let spacing = Spacing([0.5, 0.5, 4.0]);
        assert_eq!(spacing.millilitres(0), 0.0);
        assert_eq!(spacing.millilitres(1000), 1.0);
        assert_eq!(spacing.millilitres(1234), 1.234);
        assert_eq!(Spacing([0.1, 0.2, 0.3]).millilitres(1_000_000), 6.0);
    }

    #[test]
    fn the_build_id_names_product_version_and_hash() {
        let rest = BUILD_ID.strip_prefix("spleenseg-").unwrap();
        let (version, hash) = rest.split_once('+').unwrap();
        assert_eq!(version, env!("CARGO_PKG_VERSION"));
        assert!(hash.len() == 16 && hash.bytes().all(|digit| digit.is_ascii_hexdigit()), "{hash}");
    }
}
