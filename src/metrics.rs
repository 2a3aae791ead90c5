//! What this model tells Prometheus, on the server's own metrics endpoint. docs/operations.md lists it.
//!
//! Metrics never fail a request: where the server has none, or refuses one, it is not counted, and one line of the log
//! says so when the model is loaded.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use triton_backend_api::metrics::{Counter, Family, Histogram, Metric};
use triton_backend_api::{Error, ErrorCode, Result, log};

/// Seconds of a step.
const DURATIONS: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Dice of two masks: those that are equal to the voxel fall into the last bucket alone.
const DICE: [f64; 10] = [0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999, 0.999_999];

/// A model's labels.
#[derive(Clone)]
pub struct Owner {
    model: String,
    version: String,
}

impl Owner {
    /// Of this version of a model.
    pub fn new(model: &str, version: u64) -> Self {
        Self { model: model.to_owned(), version: version.to_string() }
    }

    /// The family's metric with this model's labels and these.
    fn metric<M: Metric>(&self, family: &Family<M>, labels: &[(&str, &str)]) -> Result<M> {
        let mut all = vec![("model", self.model.as_str()), ("version", self.version.as_str())];
        all.extend(labels);
        family.metric(&all)
    }

    fn counter(&self, name: &str, help: &str) -> Count {
        let made = Family::counter(name, help).and_then(|family| self.metric(&family, &[]));
        Count(self.unless_refused(made))
    }

    /// What was made, or a line in the log.
    fn unless_refused<T>(&self, made: Result<T>) -> Option<T> {
        let refused = |e: &Error| log!(Info, "{}: a metric is not served: {e}", self.model);
        made.inspect_err(refused).ok()
    }
}

/// A counter, where the server has it.
struct Count(Option<Counter>);

impl Count {
    fn add(&self, by: u64) {
        if let Some(counter) = &self.0 {
            let _ = counter.increment(by as f64);
        }
    }
}

/// Metrics with one more label, made when a value of it first comes and kept from then on.
struct Labelled<M: Metric> {
    owner: Owner,
    family: Option<Family<M>>,
    known: Mutex<BTreeMap<Vec<String>, M>>,
}

impl<M: Metric + Clone> Labelled<M> {
    fn new(owner: &Owner, family: Result<Family<M>>) -> Self {
        let family = owner.unless_refused(family);
        Self { owner: owner.clone(), family, known: Mutex::default() }
    }

    fn with(&self, labels: &[(&str, &str)], record: impl FnOnce(&M) -> Result<()>) {
        let Some(family) = &self.family else { return };
        let key: Vec<_> = labels.iter().map(|(_, value)| (*value).to_owned()).collect();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains_key(&key) {
            let Ok(metric) = self.owner.metric(family, labels) else { return };
            known.insert(key.clone(), metric);
        }
        if let Some(metric) = known.get(&key) {
            let _ = record(metric);
        }
    }
}

/// How long steps take: a histogram, or their sum on servers without histograms.
enum Durations {
    Histogram(Labelled<Histogram>),
    Total(Labelled<Counter>),
}

impl Durations {
    fn new(owner: &Owner) -> Self {
        let (name, help) = ("spleenseg_step_duration_seconds", "Duration of the steps of a request");
        match Family::histogram(name, help, &DURATIONS) {
            Err(e) if e.code() == ErrorCode::Unsupported => {
                Self::Total(Labelled::new(owner, Family::counter(&format!("{name}_total"), help)))
            }
            family => Self::Histogram(Labelled::new(owner, family)),
        }
    }

    fn record(&self, step: &str, took: Duration) {
        let (labels, seconds) = ([("step", step)], took.as_secs_f64());
        match self {
            Self::Histogram(family) => family.with(&labels, |metric| metric.observe(seconds)),
            Self::Total(family) => family.with(&labels, |metric| metric.increment(seconds)),
        }
    }
}

/// The metrics of a model.
pub struct Metrics {
    durations: Durations,
    failures: Labelled<Counter>,
    input_bytes: Count,
    output_bytes: Count,
    volumes: Count,
    empty_masks: Count,
}

impl Metrics {
    /// Declares them. They begin at 0, those with a label of their own when it first comes.
    pub fn new(owner: &Owner) -> Self {
        Self {
            durations: Durations::new(owner),
            failures: Labelled::new(
                owner,
                Family::counter("spleenseg_failures_total", "Requests that failed, by stage and error code"),
            ),
            input_bytes: owner.counter("spleenseg_input_bytes_total", "Bytes of INPUT0 that were read"),
            output_bytes: owner.counter("spleenseg_output_bytes_total", "Bytes of outputs that were written"),
            volumes: owner.counter("spleenseg_volumes_total", "Volumes that were segmented"),
            empty_masks: owner.counter("spleenseg_empty_masks_total", "Volumes whose mask is empty"),
        }
    }

    /// What a request took, answered or not.
    pub fn steps(&self, steps: &[(&'static str, Duration)]) {
        steps.iter().for_each(|(step, took)| self.durations.record(step, *took));
    }

    /// An input was read.
    pub fn input(&self, bytes: usize) {
        self.input_bytes.add(bytes as u64);
    }

    /// An output was written.
    pub fn output(&self, bytes: usize) {
        self.output_bytes.add(bytes as u64);
    }

    /// Volumes were segmented, some of them with an empty mask.
    pub fn volumes(&self, count: usize, empty: usize) {
        self.volumes.add(count as u64);
        self.empty_masks.add(empty as u64);
    }

    /// A request failed.
    pub fn failure(&self, stage: &str, code: ErrorCode) {
        let labels = [("stage", stage), ("code", code_label(code))];
        self.failures.with(&labels, |metric| metric.increment(1.0));
    }
}

/// The metrics of a model that has another one beside it.
pub struct ShadowMetrics {
    requests: Labelled<Counter>,
    dice: Labelled<Histogram>,
    volumes: Count,
    mismatched_volumes: Count,
    mismatched_voxels: Count,
}

impl ShadowMetrics {
    /// Declares them.
    pub fn new(owner: &Owner) -> Self {
        let requests = "Requests chosen for the shadow model, by what became of them";
        let mismatched = "Volumes whose mask differs from the shadow model's in any voxel";
        Self {
            requests: Labelled::new(owner, Family::counter("spleenseg_shadow_requests_total", requests)),
            dice: Labelled::new(
                owner,
                Family::histogram("spleenseg_shadow_dice", "Dice of the masks of both models", &DICE),
            ),
            volumes: owner
                .counter("spleenseg_shadow_volumes_total", "Volumes compared with the shadow model's"),
            mismatched_volumes: owner.counter("spleenseg_shadow_mismatched_volumes_total", mismatched),
            mismatched_voxels: owner
                .counter("spleenseg_shadow_mismatched_voxels_total", "Voxels in which the masks differ"),
        }
    }

    /// What became of a request that was chosen.
    pub fn request(&self, outcome: &str) {
        self.requests.with(&[("outcome", outcome)], |metric| metric.increment(1.0));
    }

    /// A volume was compared.
    pub fn volume(&self, dice: f64, mismatched_voxels: u64) {
        self.dice.with(&[], |metric| metric.observe(dice));
        self.volumes.add(1);
        self.mismatched_volumes.add(u64::from(mismatched_voxels > 0));
        self.mismatched_voxels.add(mismatched_voxels);
    }
}

fn code_label(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::Internal => "internal",
        ErrorCode::NotFound => "not_found",
        ErrorCode::InvalidArg => "invalid_arg",
        ErrorCode::Unavailable => "unavailable",
        ErrorCode::Unsupported => "unsupported",
        ErrorCode::AlreadyExists => "already_exists",
        ErrorCode::Cancelled => "cancelled",
        _ => "unknown",
    }
}
