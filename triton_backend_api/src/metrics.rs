//! Custom metrics, served with the server's own at its metrics endpoint (port 8002, `/metrics`).
//!
//! A [`Family`] has a name, a help text and a kind; each of its metrics differs in its labels:
//!
//! ```no_run
//! # use triton_backend_api::{*, metrics::*};
//! # fn load(cx: &ModelContext) -> Result<()> {
//! let volumes = Family::counter("spleenseg_volumes_total", "Volumes segmented")?;
//! let volumes = volumes.metric(&[("model", cx.name())])?; // keep it in the model or the instance
//! volumes.increment(1.0)?;
//! # Ok(())
//! # }
//! ```
//!
//! Families and metrics are handles: clone them, keep them in the backend, its models or their instances, and call
//! them from any thread. The server's objects go with the last handle, metrics before their family. A metric
//! that goes takes its value along.
//!
//! **One name, one family.** Whoever asks again for a family of the same name and kind gets the one there is, so
//! several models of a backend may each declare theirs; the first help text stays. Another kind, or other bounds of a
//! histogram, are an error. The server keeps the name of a family and its kind until it ends, and shows the
//! empty family.
//!
//! **Names.** Letters, digits, `_` and `:`, no digit first. Begin with the name of the backend: two backends that
//! use one name for a family and the same labels share a value, and the server frees it when the first of them lets go
//! (read from the source of Triton's core, which counts users within a family object only). `nv_` is the server's
//! own, and refused.

mod family;

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::{raw, sys};
use family::{FamilyObject, MetricObject};

/// A metric family: a name under which metrics with different labels are served. Cheap to clone.
#[derive(Debug)]
pub struct Family<M> {
    object: Arc<FamilyObject>,
    metric: std::marker::PhantomData<fn() -> M>,
}

impl<M> Clone for Family<M> {
    fn clone(&self) -> Self {
        Self::of(self.object.clone())
    }
}

/// What a family can consist of: [`Counter`], [`Gauge`] or [`Histogram`].
pub trait Metric: Sized + sealed::Sealed {}

mod sealed {
    use super::MetricObject;
    use std::sync::Arc;

    pub trait Sealed {
        fn of(object: Arc<MetricObject>) -> Self;
    }
}

/// The kind of a family, as the ABI numbers it, and the bounds of a histogram.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram(Vec<f64>),
}

impl Kind {
    fn to_raw(&self) -> u32 {
        match self {
            Self::Counter => sys::TRITONSERVER_METRIC_KIND_COUNTER,
            Self::Gauge => sys::TRITONSERVER_METRIC_KIND_GAUGE,
            Self::Histogram(_) => sys::TRITONSERVER_METRIC_KIND_HISTOGRAM,
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Counter => f.write_str("a counter"),
            Self::Gauge => f.write_str("a gauge"),
            Self::Histogram(bounds) => write!(f, "a histogram with the bounds {bounds:?}"),
        }
    }
}

impl<M> Family<M> {
    fn of(object: Arc<FamilyObject>) -> Self {
        Self { object, metric: std::marker::PhantomData }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.object.name()
    }
}

impl Family<Counter> {
    /// A family of counters.
    ///
    /// Errors: `InvalidArg` for a name that is none or that is taken by another kind, `Unsupported` where the server
    /// was built without metrics, and what else the server refuses.
    pub fn counter(name: &str, help: &str) -> Result<Self> {
        FamilyObject::shared(name, help, Kind::Counter).map(Self::of)
    }
}

impl Family<Gauge> {
    /// A family of gauges. Errors as for [`Family::counter`].
    pub fn gauge(name: &str, help: &str) -> Result<Self> {
        FamilyObject::shared(name, help, Kind::Gauge).map(Self::of)
    }
}

impl Family<Histogram> {
    /// A family of histograms with these upper bounds of their buckets, ascending; the bucket without a bound is added
    /// by the server.
    ///
    /// Errors as for [`Family::counter`]; `Unsupported` too where the server's API is older than 1.34 (Triton 2.49), which
    /// brought histograms; `InvalidArg` for bounds that are not finite or do not ascend.
    pub fn histogram(name: &str, help: &str, bounds: &[f64]) -> Result<Self> {
        if !bounds.iter().all(|bound| bound.is_finite()) || !bounds.is_sorted_by(|a, b| a < b) {
            return Err(Error::invalid_arg(format!(
                "metric family '{name}': the bounds are {bounds:?}; accepted are finite numbers that ascend"
            )));
        }
        // Asked first: a family that no metric can be made of would keep its name in the server for ever.
        family::Args::histogram(bounds)?;
        FamilyObject::shared(name, help, Kind::Histogram(bounds.to_vec())).map(Self::of)
    }
}

impl<M: Metric> Family<M> {
    /// The metric with these labels, name and value. Asked for again, it is the same metric, and keeps its value.
    ///
    /// Errors: `InvalidArg` for a label's name that is none (letters, digits and `_`, no digit first, not `__` first; not
    /// `le` in histograms) or that comes twice, and for a NUL character; else what the server refuses.
    pub fn metric(&self, labels: &[(&str, &str)]) -> Result<M> {
        MetricObject::new(&self.object, labels).map(|object| M::of(Arc::new(object)))
    }
}

/// Defines the handle of a kind of metric.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name(Arc<MetricObject>);

        impl Metric for $name {}

        impl sealed::Sealed for $name {
            fn of(object: Arc<MetricObject>) -> Self {
                Self(object)
            }
        }
    };
}

handle! {
    /// A number that only grows, such as how often something happened. Cheap to clone.
    Counter
}

handle! {
    /// A number that goes up and down, such as how much is in use. Cheap to clone.
    Gauge
}

handle! {
    /// Observations counted by size, such as durations, with their sum. Cheap to clone.
    Histogram
}

impl Counter {
    /// Adds `by`. Errors: `InvalidArg` for what is negative or not finite; else the server's.
    pub fn increment(&self, by: f64) -> Result<()> {
        if !(by.is_finite() && by >= 0.0) {
            let name = self.0.family().name();
            return Err(Error::invalid_arg(format!(
                "metric '{name}' was to grow by {by}; a counter accepts finite numbers from 0"
            )));
        }
        // SAFETY: a live metric; the server counts atomically.
        unsafe { raw::metric_increment(self.0.as_raw(), by) }
    }

    /// Its value.
    pub fn value(&self) -> Result<f64> {
        // SAFETY: a live metric.
        unsafe { raw::metric_value(self.0.as_raw()) }
    }
}

impl Gauge {
    /// Sets it.
    pub fn set(&self, value: f64) -> Result<()> {
        // SAFETY: a live metric; the server sets atomically.
        unsafe { raw::metric_set(self.0.as_raw(), value) }
    }

    /// Adds `by`, which may be negative.
    pub fn add(&self, by: f64) -> Result<()> {
        // SAFETY: a live metric; the server adds atomically.
        unsafe { raw::metric_increment(self.0.as_raw(), by) }
    }

    /// Its value.
    pub fn value(&self) -> Result<f64> {
        // SAFETY: a live metric.
        unsafe { raw::metric_value(self.0.as_raw()) }
    }
}

impl Histogram {
    /// Counts an observation. Errors: `InvalidArg` for NaN, which would spoil the sum; else the server's.
    pub fn observe(&self, value: f64) -> Result<()> {
        if value.is_nan() {
            let name = self.0.family().name();
            return Err(Error::invalid_arg(format!(
                "metric '{name}' was to observe NaN; accepted are numbers"
            )));
        }
        // SAFETY: a live metric; the server counts atomically.
        unsafe { raw::metric_observe(self.0.as_raw(), value) }
    }
}
