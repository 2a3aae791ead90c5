//! Custom metrics and their labels.

use std::ffi::{c_char, c_void};
use std::ptr::null_mut;

use super::{check, late::late, out};
use crate::error::{Error, Result};
use crate::sys::*;

type Family = *mut TRITONSERVER_MetricFamily;
type Metric = *mut TRITONSERVER_Metric;
type Label = *const TRITONSERVER_Parameter;
type Args = *mut TRITONSERVER_MetricArgs;

wrap! {
    /// Deletes a family; the server refuses while it has metrics.
    metric_family_delete = TRITONSERVER_MetricFamilyDelete(family: Family);
    /// Deletes a metric.
    metric_delete = TRITONSERVER_MetricDelete(metric: Metric);
    /// The value of a counter or gauge.
    metric_value = TRITONSERVER_MetricValue(metric: Metric) -> f64 = 0.0;
    /// Adds to a counter or gauge.
    metric_increment = TRITONSERVER_MetricIncrement(metric: Metric, value: f64);
    /// Sets a gauge.
    metric_set = TRITONSERVER_MetricSet(metric: Metric, value: f64);
}

late! {
    /// Arguments for a metric, which the caller owns.
    metric_args_new = TRITONSERVER_MetricArgsNew: TRITONSERVER_MetricArgsNew_late, since "server API 1.34"
        () -> Args = null_mut();
    /// Makes the arguments those of a histogram; the bounds are copied.
    metric_args_set_histogram = TRITONSERVER_MetricArgsSetHistogram: TRITONSERVER_MetricArgsSetHistogram_late,
        since "server API 1.34" (args: Args, bounds: *const f64, count: u64);
    /// Deletes arguments.
    metric_args_delete = TRITONSERVER_MetricArgsDelete: TRITONSERVER_MetricArgsDelete_late,
        since "server API 1.34" (args: Args);
    /// Adds an observation to a histogram.
    metric_observe = TRITONSERVER_MetricObserve: TRITONSERVER_MetricObserve_late, since "server API 1.34"
        (metric: Metric, value: f64);
    /// A metric of a family, with arguments: see [`metric_new`].
    metric_new_with_args = TRITONSERVER_MetricNewWithArgs: TRITONSERVER_MetricNewWithArgs_late,
        since "server API 1.34" (place: *mut Metric, family: Family, labels: *mut Label, count: u64, args: Args);
}

/// A new family, which the caller owns.
///
/// # Safety
/// See the module; the strings are NUL-terminated.
pub unsafe fn metric_family_new(
    kind: TRITONSERVER_MetricKind,
    name: *const c_char,
    help: *const c_char,
) -> Result<Family> {
    // SAFETY: the module's promise.
    unsafe { out(null_mut(), |family| TRITONSERVER_MetricFamilyNew(family, kind, name, help)) }
}

/// A new metric of a family, which the caller owns; `args` is null for counters and gauges. The labels are copied.
///
/// # Safety
/// See the module.
pub unsafe fn metric_new(family: Family, labels: &mut [Label], args: Args) -> Result<Metric> {
    let (base, count) = (labels.as_mut_ptr(), labels.len() as u64);
    let mut metric = null_mut();
    // SAFETY: the module's promise; the labels are live for their count, and only read.
    unsafe {
        match args.is_null() {
            true => check(TRITONSERVER_MetricNew(&mut metric, family, base, count)),
            false => metric_new_with_args(&mut metric, family, base, count, args),
        }
    }?;
    Ok(metric)
}

/// A parameter that holds a copy of a string, which the caller owns.
///
/// # Safety
/// See the module; the strings are NUL-terminated.
pub unsafe fn parameter_new(
    name: *const c_char,
    value: *const c_char,
) -> Result<*mut TRITONSERVER_Parameter> {
    let value = value.cast::<c_void>();
    // SAFETY: the module's promise.
    let parameter = unsafe { TRITONSERVER_ParameterNew(name, TRITONSERVER_PARAMETER_STRING, value) };
    if parameter.is_null() {
        return Err(Error::internal("the server made no parameter"));
    }
    Ok(parameter)
}

/// Deletes a parameter.
///
/// # Safety
/// See the module.
pub unsafe fn parameter_delete(parameter: *mut TRITONSERVER_Parameter) {
    // SAFETY: the module's promise.
    unsafe { TRITONSERVER_ParameterDelete(parameter) }
}
