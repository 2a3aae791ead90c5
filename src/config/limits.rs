//! What a request may hold: refused by its shape, before anything is allocated for it.

use triton_backend_api::{Error, Result};

use super::parse::Parameters;
use crate::volume::Shape3;

/// The limits of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Voxels of INPUT0, all volumes of the request together.
    pub voxels: u64,
    /// Volumes of a request.
    pub volumes: u64,
}

impl Limits {
    pub(super) fn from_parameters(parameters: &Parameters<'_>) -> Result<Self> {
        Ok(Self {
            voxels: parameters.integer("max_voxels", 1..=i64::MAX)? as u64,
            volumes: parameters.integer("max_volumes", 1..=i64::from(i32::MAX))? as u64,
        })
    }

    /// These limits for a model of this `max_batch_size`: above 0 it is the limit of volumes, and the server has checked it.
    pub fn beside(self, max_batch_size: u64) -> Self {
        if max_batch_size > 0 { Self { volumes: u64::MAX, ..self } } else { self }
    }

    /// Refuses a request of this many volumes of this size.
    pub fn check(&self, count: usize, size: Shape3) -> Result<()> {
        let volumes = count as u64;
        if volumes > self.volumes {
            return Err(Error::invalid_arg(format!(
                "INPUT0 has {volumes} volumes; accepted are up to {} (parameter \"max_volumes\")",
                self.volumes
            )));
        }
        let voxels = volumes.saturating_mul(size.count() as u64);
        if voxels > self.voxels {
            return Err(Error::invalid_arg(format!(
                "INPUT0 has {volumes} x {size} = {voxels} voxels; accepted are up to {} (parameter \"max_voxels\")",
                self.voxels
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { voxels: 120, volumes: 2 };

    fn check(limits: Limits, count: usize, size: [i64; 3]) -> Result<()> {
        limits.check(count, Shape3::new(size).unwrap())
    }

    #[test]
    fn the_voxels_of_all_volumes_count_together() {
        assert_eq!(check(LIMITS, 2, [3, 4, 5]), Ok(()));
        let message = check(LIMITS, 1, [11, 11, 1]).unwrap_err().message().to_owned();
        assert!(message.contains("11x11x1 = 121 voxels; accepted are up to 120"), "{message}");
        assert!(check(LIMITS, 2, [1, 1, 61]).is_err());
        assert!(check(LIMITS.beside(1), usize::MAX, [3, 4, 5]).is_err(), "no overflow");
    }

    #[test]
    fn volumes_are_limited_where_the_server_does_not() {
        let message = check(LIMITS.beside(0), 3, [1, 1, 1]).unwrap_err().message().to_owned();
        assert!(message.contains("3 volumes; accepted are up to 2"), "{message}");
        assert_eq!(check(LIMITS.beside(8), 8, [1, 1, 1]), Ok(()));
    }
}
