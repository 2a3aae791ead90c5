//! The server's objects behind metrics, and the rules of their lives.
//!
//! What Triton's core does, and what follows:
//! - Two family objects of one name share their metrics, but each counts only its own: when one of them deletes a
//!   metric, the other one's metric with the same labels is freed too. So a name has one object in this library.
//! - Within a family, core looks up or makes a metric and counts it in two steps, and so with deleting. One that is
//!   made while the same one is deleted could be freed. So making and deleting take turns.
//! - A family with metrics is not deleted. A metric holds its family, so that it goes first.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::Kind;
use crate::error::{Error, Result};
use crate::{c_string, raw, sys};

/// The families that are in use, by name.
static FAMILIES: Mutex<BTreeMap<String, Weak<FamilyObject>>> = Mutex::new(BTreeMap::new());

/// A family of the server's; deleted with the last handle.
#[derive(Debug)]
pub struct FamilyObject {
    raw: NonNull<sys::TRITONSERVER_MetricFamily>,
    name: String,
    kind: Kind,
    /// Held while a metric is made or deleted.
    changing: Mutex<()>,
}

// SAFETY: the server's calls may be made from any thread; those that it does not order itself take turns, see above.
unsafe impl Send for FamilyObject {}
// SAFETY: as above.
unsafe impl Sync for FamilyObject {}

impl FamilyObject {
    /// The family of that name: the one there is, or a new one.
    pub(super) fn shared(name: &str, help: &str, kind: Kind) -> Result<Arc<Self>> {
        check_family_name(name)?;
        let mut families = FAMILIES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(family) = families.get(name).and_then(Weak::upgrade) {
            drop(families); // what is upgraded may be the last handle: it is not dropped under the lock
            return if family.kind == kind {
                Ok(family)
            } else {
                Err(Error::invalid_arg(format!(
                    "metric family '{name}' is {} already, not {kind}",
                    family.kind
                )))
            };
        }
        let family = Arc::new(Self::new(name, help, kind)?);
        families.retain(|_, family| family.strong_count() > 0);
        families.insert(name.to_owned(), Arc::downgrade(&family));
        Ok(family)
    }

    fn new(name: &str, help: &str, kind: Kind) -> Result<Self> {
        let (c_name, c_help) = (c_string(name)?, c_string(help)?);
        // SAFETY: both strings are NUL-terminated, and copied by the server.
        let raw = unsafe { raw::metric_family_new(kind.to_raw(), c_name.as_ptr(), c_help.as_ptr()) }
            .map_err(|e| e.context(format!("metric family '{name}', {kind}")))?;
        let raw = NonNull::new(raw).ok_or_else(|| Error::internal("the server made no metric family"))?;
        Ok(Self { raw, name: name.to_owned(), kind, changing: Mutex::new(()) })
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for FamilyObject {
    fn drop(&mut self) {
        // SAFETY: ours, deleted once; its metrics are gone, for each holds a handle.
        if let Err(e) = unsafe { raw::metric_family_delete(self.raw.as_ptr()) } {
            crate::log!(Warn, "metric family '{}' could not be deleted: {e}", self.name);
        }
    }
}

/// A metric of the server's; deleted with the last handle.
#[derive(Debug)]
pub struct MetricObject {
    raw: NonNull<sys::TRITONSERVER_Metric>,
    family: Arc<FamilyObject>,
}

// SAFETY: the server's calls may be made from any thread.
unsafe impl Send for MetricObject {}
// SAFETY: as above.
unsafe impl Sync for MetricObject {}

impl MetricObject {
    pub fn new(family: &Arc<FamilyObject>, labels: &[(&str, &str)]) -> Result<Self> {
        let wrong = |e: Error| e.context(format!("metric '{}' {labels:?}", family.name));
        let labels = Labels::new(labels, &family.kind).map_err(wrong)?;
        let args = match &family.kind {
            Kind::Histogram(bounds) => Some(Args::histogram(bounds).map_err(wrong)?),
            Kind::Counter | Kind::Gauge => None,
        };
        let args = args.as_ref().map_or(std::ptr::null_mut(), |args| args.0);
        let mut pointers: Vec<_> = labels.0.iter().map(|label| label.cast_const()).collect();
        let changing = family.changing.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: a live family, live labels and arguments, all of which the server copies.
        let raw = unsafe { raw::metric_new(family.raw.as_ptr(), &mut pointers, args) };
        drop(changing);
        let raw = NonNull::new(raw.map_err(wrong)?)
            .ok_or_else(|| wrong(Error::internal("the server made no metric")))?;
        Ok(Self { raw, family: family.clone() })
    }

    pub fn as_raw(&self) -> *mut sys::TRITONSERVER_Metric {
        self.raw.as_ptr()
    }

    pub fn family(&self) -> &FamilyObject {
        &self.family
    }
}

impl Drop for MetricObject {
    fn drop(&mut self) {
        let changing = self.family.changing.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: ours, deleted once, and before its family.
        let deleted = unsafe { raw::metric_delete(self.raw.as_ptr()) };
        drop(changing);
        if let Err(e) = deleted {
            crate::log!(Warn, "a metric of '{}' could not be deleted: {e}", self.family.name);
        }
    }
}

/// Labels as the server's parameters.
struct Labels(Vec<*mut sys::TRITONSERVER_Parameter>);

impl Labels {
    fn new(labels: &[(&str, &str)], kind: &Kind) -> Result<Self> {
        let mut made = Self(Vec::with_capacity(labels.len()));
        for (index, (name, value)) in labels.iter().enumerate() {
            let reserved = name.starts_with("__") || *name == "le" && matches!(kind, Kind::Histogram(_));
            if reserved || !is_name(name, "_") {
                return Err(Error::invalid_arg(format!("'{name}' is no name for a label")));
            }
            if labels[..index].iter().any(|(earlier, _)| earlier == name) {
                return Err(Error::invalid_arg(format!("label '{name}' comes twice")));
            }
            let (name, value) = (c_string(name)?, c_string(value)?);
            // SAFETY: both strings are NUL-terminated, and copied by the server.
            made.0.push(unsafe { raw::parameter_new(name.as_ptr(), value.as_ptr()) }?);
        }
        Ok(made)
    }
}

impl Drop for Labels {
    fn drop(&mut self) {
        for label in self.0.drain(..) {
            // SAFETY: ours, deleted once.
            unsafe { raw::parameter_delete(label) };
        }
    }
}

/// What the server needs to make a histogram.
pub struct Args(*mut sys::TRITONSERVER_MetricArgs);

impl Args {
    pub fn histogram(bounds: &[f64]) -> Result<Self> {
        // SAFETY: the arguments are ours until they are deleted.
        let args = Self(unsafe { raw::metric_args_new() }?);
        // SAFETY: live arguments; the bounds are live for their count and copied.
        unsafe { raw::metric_args_set_histogram(args.0, bounds.as_ptr(), bounds.len() as u64) }?;
        Ok(args)
    }
}

impl Drop for Args {
    fn drop(&mut self) {
        // SAFETY: ours, deleted once. A server that fails in this keeps a few bytes; a metric is not worth less for it.
        let _ = unsafe { raw::metric_args_delete(self.0) };
    }
}

fn check_family_name(name: &str) -> Result<()> {
    if name.starts_with("nv_") {
        return Err(Error::invalid_arg(format!(
            "metric family '{name}': names that begin with nv_ are the server's own"
        )));
    }
    if !is_name(name, "_:") {
        return Err(Error::invalid_arg(format!(
            "'{name}' is no name for a metric family; accepted are letters, digits, '_' and ':', no digit first"
        )));
    }
    Ok(())
}

/// Whether it is a name of Prometheus' with these signs beside letters and digits.
fn is_name(name: &str, signs: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || signs.contains(c);
    !name.is_empty() && name.chars().all(fits) && !name.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_prometheus() {
        for name in ["a", "_a:b_9", "A1"] {
            assert!(check_family_name(name).is_ok(), "{name}");
        }
        for name in ["", "1a", "a b", "a-b", "\u{e4}", "a\0", "nv_inference_count"] {
            let wrong = check_family_name(name).unwrap_err();
            assert!(wrong.message().contains(&format!("'{name}'")), "{wrong}");
        }
    }
}
