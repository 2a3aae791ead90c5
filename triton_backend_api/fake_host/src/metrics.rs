//! Custom metrics, as Triton's core keeps them: families of one name share their metrics, each counts its own users.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};

use triton_backend_api::sys::*;

use crate::late::late_symbols;
use crate::state::{Outcome, Refusal, State, consume, lock, put, symbols, text};
use crate::table::{handle, pointer};

type Labels = BTreeMap<String, String>;

/// A metric as the server's endpoint shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct ServedMetric {
    /// The name of its family.
    pub name: String,
    /// What its family is for.
    pub help: String,
    /// Its kind, as the ABI numbers it.
    pub kind: TRITONSERVER_MetricKind,
    /// Its labels by name.
    pub labels: BTreeMap<String, String>,
    /// A counter's or gauge's value, or the sum of a histogram's observations.
    pub value: f64,
    /// A histogram's upper bounds, and how many observations are not above each. The last one has no bound.
    pub buckets: Vec<(f64, u64)>,
}

/// What the server's endpoint shows; outlives the objects that made it, as in Triton's core.
#[derive(Default)]
pub(crate) struct Endpoint {
    families: BTreeMap<String, (TRITONSERVER_MetricKind, String)>,
    series: BTreeMap<(String, Labels), ServedMetric>,
}

pub(crate) struct FamilyObject {
    name: String,
    kind: TRITONSERVER_MetricKind,
}

pub(crate) struct MetricObject {
    family: usize,
    series: (String, Labels),
}

pub(crate) struct ParameterObject {
    name: String,
    value: String,
}

#[derive(Default)]
pub(crate) struct ArgsObject {
    bounds: Option<Vec<f64>>,
}

impl crate::FakeHost {
    /// What the server's metrics endpoint shows, by name and labels.
    pub fn metrics(&self) -> Vec<ServedMetric> {
        lock().endpoint.series.values().cloned().collect()
    }

    /// The value of a counter or gauge, where the endpoint shows one of that name and labels.
    pub fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        lock().endpoint.series.get(&(name.to_owned(), labels)).map(|metric| metric.value)
    }
}

impl State {
    /// The series of a live metric, and whether it is of one of these kinds.
    fn series(
        &mut self,
        metric: *mut TRITONSERVER_Metric,
        kinds: &[TRITONSERVER_MetricKind],
        what: &str,
    ) -> Outcome<&mut ServedMetric> {
        let key = &self.metrics.get(handle(metric))?.series;
        let Some(series) = self.endpoint.series.get_mut(key) else {
            let what = format!("the metric '{}' was freed through another family object of that name", key.0);
            return Err(Refusal::Violation(what));
        };
        if !kinds.contains(&series.kind) {
            let what = format!("kind {} does not support {what}", series.kind);
            return Err(Refusal::Error(TRITONSERVER_ERROR_UNSUPPORTED, what));
        }
        Ok(series)
    }

    fn new_metric(
        &mut self,
        family: *mut TRITONSERVER_MetricFamily,
        labels: Labels,
        bounds: Option<Vec<f64>>,
    ) -> Outcome<usize> {
        let object = self.families.get(handle(family))?;
        let (name, kind) = (object.name.clone(), object.kind);
        if bounds.is_some() != (kind == TRITONSERVER_METRIC_KIND_HISTOGRAM) {
            let what = format!("arguments do not fit kind {kind}");
            return Err(Refusal::Error(TRITONSERVER_ERROR_INVALID_ARG, what));
        }
        let series = (name.clone(), labels.clone());
        let help = self.endpoint.families.get(&name).map(|(_, help)| help.clone()).unwrap_or_default();
        let bounds =
            bounds.map(|bounds| bounds.into_iter().chain([f64::INFINITY]).map(|bound| (bound, 0)).collect());
        let fresh =
            ServedMetric { name, help, kind, labels, value: 0.0, buckets: bounds.unwrap_or_default() };
        self.endpoint.series.entry(series.clone()).or_insert(fresh);
        Ok(self.metrics.insert(MetricObject { family: handle(family), series }))
    }

    /// Ends a metric; what it showed goes with the last user that its family object counts.
    fn delete_metric(&mut self, metric: usize) -> Outcome {
        let MetricObject { family, series } = self.metrics.end(metric, "deleted")?;
        let shared = |metric: &MetricObject| metric.family == family && metric.series == series;
        if !self.metrics.iter().any(|(_, metric)| shared(metric)) {
            self.endpoint.series.remove(&series);
        }
        Ok(())
    }

    fn delete_family(&mut self, family: usize) -> Outcome {
        let users = self.metrics.iter().filter(|(_, metric)| metric.family == family).count();
        if users > 0 {
            let name = self.families.name(family);
            return Err(Refusal::Violation(format!("{name} was to be deleted before its {users} metrics")));
        }
        self.families.end(family, "deleted").map(|_| ())
    }
}

/// # Safety
/// `labels` points to `count` parameters.
unsafe fn labels(
    state: &mut State,
    labels: *mut *const TRITONSERVER_Parameter,
    count: u64,
) -> Outcome<Labels> {
    let labels = match count {
        0 => &[],
        // SAFETY: so many, see above.
        _ => unsafe { std::slice::from_raw_parts(labels.cast_const(), count as usize) },
    };
    let mut read = |label: &*const TRITONSERVER_Parameter| {
        state.parameters.get(label.addr()).map(|label| (label.name.clone(), label.value.clone()))
    };
    labels.iter().map(&mut read).collect()
}

symbols! {
    fn TRITONSERVER_MetricFamilyNew(
        family: *mut *mut TRITONSERVER_MetricFamily, kind: TRITONSERVER_MetricKind, name: *const c_char,
        description: *const c_char
    ) |state| {
        let (name, help) = (text(name)?, text(description)?);
        let known = state.endpoint.families.entry(name.clone()).or_insert((kind, help)).0;
        if known != kind {
            let what = format!("metric family '{name}' is of kind {known} already");
            return Err(Refusal::Error(TRITONSERVER_ERROR_INVALID_ARG, what));
        }
        put(family, pointer(state.families.insert(FamilyObject { name, kind })))
    }

    fn TRITONSERVER_MetricNew(
        metric: *mut *mut TRITONSERVER_Metric, family: *mut TRITONSERVER_MetricFamily,
        parameters: *mut *const TRITONSERVER_Parameter, count: u64
    ) |state| {
        let labels = labels(state, parameters, count)?;
        put(metric, pointer(state.new_metric(family, labels, None)?))
    }

    fn TRITONSERVER_MetricValue(metric: *mut TRITONSERVER_Metric, value: *mut f64) |state| {
        let kinds = [TRITONSERVER_METRIC_KIND_COUNTER, TRITONSERVER_METRIC_KIND_GAUGE];
        put(value, state.series(metric, &kinds, "Value")?.value)
    }

    fn TRITONSERVER_MetricIncrement(metric: *mut TRITONSERVER_Metric, value: f64) |state| {
        let kinds = [TRITONSERVER_METRIC_KIND_COUNTER, TRITONSERVER_METRIC_KIND_GAUGE];
        let series = state.series(metric, &kinds, "Increment")?;
        if value < 0.0 && series.kind == TRITONSERVER_METRIC_KIND_COUNTER {
            return Err(Refusal::Error(TRITONSERVER_ERROR_INVALID_ARG, "a counter only grows".to_owned()));
        }
        series.value += value;
        Ok(())
    }

    fn TRITONSERVER_MetricSet(metric: *mut TRITONSERVER_Metric, value: f64) |state| {
        state.series(metric, &[TRITONSERVER_METRIC_KIND_GAUGE], "Set")?.value = value;
        Ok(())
    }
}

late_symbols! {
    fn TRITONSERVER_MetricArgsNew: TRITONSERVER_MetricArgsNew_late(
        args: *mut *mut TRITONSERVER_MetricArgs
    ) |state| {
        put(args, pointer(state.metric_args.insert(ArgsObject::default())))
    }

    fn TRITONSERVER_MetricArgsSetHistogram: TRITONSERVER_MetricArgsSetHistogram_late(
        args: *mut TRITONSERVER_MetricArgs, buckets: *const f64, count: u64
    ) |state| {
        let bounds = match count {
            0 => Vec::new(),
            _ => std::slice::from_raw_parts(buckets, count as usize).to_vec(),
        };
        if !bounds.is_sorted_by(|a, b| a < b) {
            return Err(Refusal::Violation(format!("the bounds {bounds:?} do not ascend")));
        }
        state.metric_args.get(handle(args))?.bounds = Some(bounds);
        Ok(())
    }

    fn TRITONSERVER_MetricNewWithArgs: TRITONSERVER_MetricNewWithArgs_late(
        metric: *mut *mut TRITONSERVER_Metric, family: *mut TRITONSERVER_MetricFamily,
        parameters: *mut *const TRITONSERVER_Parameter, count: u64, args: *const TRITONSERVER_MetricArgs
    ) |state| {
        let bounds = match args.is_null() {
            true => None,
            false => state.metric_args.get(args.addr())?.bounds.clone(),
        };
        let labels = labels(state, parameters, count)?;
        put(metric, pointer(state.new_metric(family, labels, bounds)?))
    }

    fn TRITONSERVER_MetricObserve: TRITONSERVER_MetricObserve_late(
        metric: *mut TRITONSERVER_Metric, value: f64
    ) |state| {
        let series = state.series(metric, &[TRITONSERVER_METRIC_KIND_HISTOGRAM], "Observe")?;
        series.value += value;
        series.buckets.iter_mut().filter(|(bound, _)| value <= *bound).for_each(|(_, count)| *count += 1);
        Ok(())
    }
    also TRITONSERVER_MetricArgsDelete: TRITONSERVER_MetricArgsDelete_late
}

/// See the ABI. Its object is taken also where it is made to fail.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_MetricDelete(metric: *mut TRITONSERVER_Metric) -> *mut TRITONSERVER_Error {
    consume("TRITONSERVER_MetricDelete", |state, _| state.delete_metric(handle(metric)), drop)
}

/// See the ABI. Its object is taken also where it is made to fail.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_MetricFamilyDelete(
    family: *mut TRITONSERVER_MetricFamily,
) -> *mut TRITONSERVER_Error {
    consume("TRITONSERVER_MetricFamilyDelete", |state, _| state.delete_family(handle(family)), drop)
}

/// See the ABI. Its object is taken also where it is made to fail.
///
/// # Safety
/// None is needed: handles are checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_MetricArgsDelete(
    args: *mut TRITONSERVER_MetricArgs,
) -> *mut TRITONSERVER_Error {
    let delete = |state: &mut State, _| state.metric_args.end(handle(args), "deleted").map(|_| ());
    consume("TRITONSERVER_MetricArgsDelete", delete, drop)
}

/// See the ABI; only strings are parameters here. Null where it is made to fail.
///
/// # Safety
/// Both are live strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ParameterNew(
    name: *const c_char,
    kind: TRITONSERVER_ParameterType,
    value: *const c_void,
) -> *mut TRITONSERVER_Parameter {
    let mut made = 0;
    let error = crate::state::call("TRITONSERVER_ParameterNew", |state| {
        if kind != TRITONSERVER_PARAMETER_STRING {
            return Err(Refusal::Violation(format!(
                "a parameter of type {kind} was made; labels are strings"
            )));
        }
        // SAFETY: live strings, see above.
        let (name, value) = unsafe { (text(name)?, text(value.cast())?) };
        made = state.parameters.insert(ParameterObject { name, value });
        Ok(())
    });
    let _ = crate::error::take(error); // this call has no way to say why
    pointer(made)
}

/// See the ABI.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_ParameterDelete(parameter: *mut TRITONSERVER_Parameter) {
    let mut state = lock();
    if let Err(Refusal::Violation(what) | Refusal::Error(_, what)) =
        state.parameters.end(handle(parameter), "deleted")
    {
        state.violation(format!("TRITONSERVER_ParameterDelete: {what}"));
    }
}
