//! Shadow mode: another model that some requests also go to.

use std::time::Duration;

use triton_backend_api::Result;

use super::parse::Parameters;

/// The other model, and how often it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShadowModel {
    /// Its name.
    pub model: String,
    /// Its version; -1 leaves the choice to the server.
    pub version: i64,
    /// Of so many requests, one is compared.
    pub every: u64,
    /// How long to wait for its answer.
    pub timeout: Duration,
}

impl ShadowModel {
    /// None where no model is named; the other parameters are checked all the same.
    pub(super) fn from_parameters(parameters: &Parameters<'_>) -> Result<Option<Self>> {
        let version = parameters.version("shadow_version")?;
        let every = parameters.integer("shadow_every", 1..=i64::from(i32::MAX))? as u64;
        let timeout = parameters.seconds("shadow_timeout_s")?;
        let named = parameters.text_or_none("shadow_model");
        Ok(named.map(|model| Self { model: model.to_owned(), version, every, timeout }))
    }
}
