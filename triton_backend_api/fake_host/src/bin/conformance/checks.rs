//! The checks: what is done to a backend, and what it is found to have done.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use triton_fake_host::{Execution, FakeHost, HostError, LoadedModel, TestRequest};

use crate::subject::Subject;

/// One check. Its text names it on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    LoadTwice,
    OneRequest,
    Pieces,
    Cancelled,
    Batch,
    /// The nth call of a symbol fails, in a life of load, one execution, unload.
    Fault(String, usize),
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LoadTwice => f.write_str("load, unload, load again"),
            Self::OneRequest => f.write_str("one request"),
            Self::Pieces => f.write_str("inputs in three buffers each"),
            Self::Cancelled => f.write_str("a cancelled request"),
            Self::Batch => f.write_str("three requests in one execution"),
            Self::Fault(symbol, nth) => write!(f, "{symbol} fails (call {nth})"),
        }
    }
}

impl Check {
    /// Those without faults.
    pub fn plain(subject: &Subject) -> Vec<Self> {
        let mut checks = vec![Self::OneRequest, Self::LoadTwice, Self::Pieces, Self::Cancelled];
        checks.extend(subject.batches().then_some(Self::Batch));
        checks
    }

    pub fn named(text: &str) -> Option<Self> {
        let plain = [Self::OneRequest, Self::LoadTwice, Self::Pieces, Self::Cancelled, Self::Batch];
        plain.into_iter().find(|check| check.to_string() == text).or_else(|| {
            let (symbol, nth) = text.strip_suffix(')')?.split_once(" fails (call ")?;
            Some(Self::Fault(symbol.to_owned(), nth.parse().ok()?))
        })
    }
}

/// What a check found.
#[derive(Debug, Default)]
pub struct Report {
    /// Rules that were broken.
    pub broken: Vec<String>,
    /// What is allowed, and worth knowing.
    pub notes: Vec<String>,
    /// How often each call that can fail was made.
    pub calls: BTreeMap<String, usize>,
}

impl Report {
    pub fn to_json(&self) -> Value {
        json!({"broken": self.broken, "notes": self.notes, "calls": self.calls})
    }

    pub fn from_json(text: &str) -> Option<Self> {
        let mut value: Value = serde_json::from_str(text).ok()?;
        let mut take = |key: &str| value.get_mut(key).map(Value::take);
        let strings = |value| serde_json::from_value::<Vec<String>>(value).ok();
        Some(Self {
            broken: strings(take("broken")?)?,
            notes: strings(take("notes")?)?,
            calls: serde_json::from_value(take("calls")?).ok()?,
        })
    }
}

/// Runs a check on a fresh host.
pub fn run(check: &Check, subject: &Subject, patience: Duration) -> Report {
    let host = FakeHost::new();
    host.set_api_version(subject.api.0, subject.api.1);
    let mut report = Report::default();
    if let Check::Fault(symbol, nth) = check {
        host.fail_next(symbol.clone().leak(), *nth);
    }
    life(check, subject, &host, patience, &mut report);
    if matches!(check, Check::LoadTwice) {
        life(check, subject, &host, patience, &mut report);
    }
    report.broken.extend(host.violations());
    report.calls = host.calls().into_iter().map(|(symbol, count)| (symbol.to_owned(), count)).collect();
    report.calls.remove("errors"); // those that cannot fail
    report
}

/// Initialize, load, execute, unload.
fn life(check: &Check, subject: &Subject, host: &FakeHost, patience: Duration, report: &mut Report) {
    let is_fault = matches!(check, Check::Fault(..));
    let mut refused = |what: &str, e: HostError| {
        if !is_fault {
            report.broken.push(format!("{what} was refused, where nothing was wrong: {e}"));
        }
    };
    let backend = match host.load_backend(subject.entry_points, subject.backend()) {
        Ok(backend) => backend,
        Err(e) => return refused("the backend", e),
    };
    if let Err(e) = backend.attributes() {
        return refused("the backend's attributes", e);
    }
    let model = match backend.load(subject.model()) {
        Ok(model) => model,
        Err(e) => return refused("the model", e),
    };
    let requests = match check {
        Check::LoadTwice => vec![],
        Check::OneRequest | Check::Fault(..) if !subject.batches() => vec![subject.request("a")],
        Check::OneRequest => vec![subject.request("a")],
        Check::Pieces => vec![subject.request_in_pieces("pieces")],
        Check::Cancelled => vec![subject.request("given up").cancelled()],
        Check::Batch | Check::Fault(..) => ["a", "b", "c"].map(|id| subject.request(id)).into(),
    };
    let strict = matches!(check, Check::OneRequest | Check::Pieces | Check::Batch);
    execute(&model, requests, patience, strict, report);
    if is_fault && host.faults_left() == 0 {
        // The instance goes on as if nothing had been.
        execute(&model, vec![subject.request("after the fault")], patience, true, report);
    }
    model.unload();
}

fn execute(
    model: &LoadedModel<'_>,
    requests: Vec<TestRequest>,
    patience: Duration,
    strict: bool,
    report: &mut Report,
) {
    if requests.is_empty() {
        return;
    }
    let execution = model.execute(requests);
    if !wait(&execution, patience) {
        let open = execution.open();
        report
            .broken
            .push(format!("{open} of its requests were not released within {} s", patience.as_secs_f32()));
    }
    for answer in execution.answers() {
        if answer.refused.is_none() && !answer.is_final() {
            report.broken.push("a request got no final response".to_owned());
        }
        let error = answer.refused.clone().or_else(|| answer.responses.iter().find_map(|r| r.error.clone()));
        if let (true, Some(e)) = (strict, error) {
            report.notes.push(format!("a request of zeros was answered with {e}"));
        }
        let reports = answer.statistics.len();
        if strict && answer.refused.is_none() && reports != 1 {
            report.notes.push(format!(
                "statistics of a request were reported {reports} times; the server expects one"
            ));
        }
    }
}

fn wait(execution: &Execution, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    while execution.open() > 0 {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}
