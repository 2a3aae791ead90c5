//! What a request came to, as its client sees it.

use std::collections::BTreeMap;

use triton_backend_api::sys::*;

use crate::error::HostError;
use crate::state::{Outcome, Refusal};
use crate::statistics::ResponseStatistics;

/// What became of one request.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The responses, in the order they were sent.
    pub responses: Vec<Response>,
    /// Whether it was ended without a response: a flag said that none follows.
    pub ended_without_response: bool,
    /// Its statistics, one entry a report.
    pub statistics: Vec<Statistics>,
    /// The statistics of its responses, one entry a report.
    pub response_statistics: Vec<ResponseStatistics>,
    /// How often it was released.
    pub released: u32,
    /// The error of the Execute that left it with the server.
    pub refused: Option<HostError>,
}

/// One response.
#[derive(Clone, Debug)]
pub struct Response {
    /// Its outputs, in order.
    pub outputs: Vec<OutputTensor>,
    /// Its parameters.
    pub parameters: BTreeMap<String, ParameterValue>,
    /// The error it carries.
    pub error: Option<HostError>,
    /// Whether it was said to be the last.
    pub is_final: bool,
    /// Whether sending it was made to fail, so that no client ever sees it.
    pub lost: bool,
}

/// An output of a response.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputTensor {
    /// Its name.
    pub name: String,
    /// Its element type, as the ABI numbers it.
    pub data_type: TRITONSERVER_DataType,
    /// Its shape.
    pub shape: Vec<i64>,
    /// Its bytes; none where its memory was never asked for.
    pub bytes: Option<Vec<u8>>,
}

/// The value of a parameter of a request or a response.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names are Triton's
pub enum ParameterValue {
    String(String),
    Int(i64),
    Bool(bool),
    Double(f64),
    /// A value of a type that this crate does not know, by its number (requests).
    Other(u32),
}

/// The statistics of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Whether it was counted as a success.
    pub success: bool,
    /// Start, compute start, compute end, end.
    pub times: [u64; 4],
}

impl Answer {
    /// Whether it was said that no response follows, or the attempt was made.
    pub fn is_final(&self) -> bool {
        self.ended_without_response || self.responses.iter().any(|response| response.is_final)
    }

    /// The one response that a client got: its outputs, or the error it carries.
    pub fn result(&self) -> Result<&Response, HostError> {
        if let Some(error) = &self.refused {
            return Err(error.clone());
        }
        match self.responses.as_slice() {
            [one] => one.error.clone().map_or(Ok(one), Err),
            other => Err(HostError::new(
                TRITONSERVER_ERROR_UNKNOWN,
                format!("the request has {} responses; exactly one is accepted", other.len()),
            )),
        }
    }

    /// The bytes of an output of the one response.
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        self.result().ok()?.outputs.iter().find(|output| output.name == name)?.bytes.clone()
    }
}

/// The clock of the server's statistics.
pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place is live.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Times must be in order, on the server's clock: not before the request came and not in the future.
pub(crate) fn check_times(times: &[u64; 4], since_ns: u64) -> Outcome {
    let now = now_ns();
    match times.is_sorted() && times[0] >= since_ns && times[3] <= now {
        true => Ok(()),
        false => Err(Refusal::Violation(format!(
            "times {times:?} are out of order, or not on the server's clock between {since_ns} and {now}"
        ))),
    }
}
