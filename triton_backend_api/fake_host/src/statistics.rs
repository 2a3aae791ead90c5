//! Statistics of responses, as Triton's core takes them: a form is filled in, reported and deleted by the backend.

use std::ffi::c_void;

use triton_backend_api::sys::*;

use crate::answer::check_times;
use crate::error::HostError;
use crate::late::late_symbols;
use crate::state::{Outcome, Refusal, State, consume, put};
use crate::table::{handle, pointer};

/// The statistics of one response, as they were reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseStatistics {
    /// When work on it began.
    pub start: u64,
    /// When its outputs began to be written; none of an empty response.
    pub output_start: Option<u64>,
    /// When it was done.
    pub end: u64,
    /// The error that it carries.
    pub error: Option<HostError>,
    /// How many responses to its request had been sent before it was reported.
    pub sent_before: usize,
}

/// What the backend has filled in so far. Core keeps the pointers and follows them when the form is reported.
#[derive(Clone, Copy, Default)]
pub(crate) struct Form {
    instance: usize,
    factory: usize,
    times: [u64; 3],
    error: usize,
}

impl State {
    fn form(&mut self, form: *mut TRITONBACKEND_ModelInstanceResponseStatistics) -> Outcome<&mut Form> {
        self.response_statistics.get(handle(form))
    }

    fn report(&mut self, form: *mut TRITONBACKEND_ModelInstanceResponseStatistics) -> Outcome {
        let Form { instance, factory, times: [start, output_start, end], error } = *self.form(form)?;
        let model = self.instances.get(instance)?.model;
        let factory = self.factories.get(factory)?;
        if factory.common.model != model {
            let what = "the instance and the response factory are of different models".to_owned();
            return Err(Refusal::Violation(what));
        }
        let request = factory.request;
        let output_start = (output_start > 0).then_some(output_start);
        check_times(&[start, output_start.unwrap_or(start), end, end], 1)?;
        let error = self.peek_error(pointer(error))?;
        let answer = self.answer(request);
        let sent_before = answer.responses.len();
        answer.response_statistics.push(ResponseStatistics { start, output_start, end, error, sent_before });
        Ok(())
    }
}

late_symbols! {
    fn TRITONBACKEND_ModelInstanceResponseStatisticsNew: TRITONBACKEND_ModelInstanceResponseStatisticsNew_late(
        statistics: *mut *mut TRITONBACKEND_ModelInstanceResponseStatistics
    ) |state| {
        put(statistics, pointer(state.response_statistics.insert(Form::default())))
    }

    fn TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance:
        TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance_late(
        statistics: *mut TRITONBACKEND_ModelInstanceResponseStatistics,
        instance: *mut TRITONBACKEND_ModelInstance
    ) |state| {
        state.form(statistics)?.instance = handle(instance);
        Ok(())
    }

    fn TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory:
        TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory_late(
        statistics: *mut TRITONBACKEND_ModelInstanceResponseStatistics,
        factory: *mut TRITONBACKEND_ResponseFactory
    ) |state| {
        state.form(statistics)?.factory = handle(factory);
        Ok(())
    }

    fn TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart:
        TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart_late(
        statistics: *mut TRITONBACKEND_ModelInstanceResponseStatistics, start: u64
    ) |state| {
        state.form(statistics)?.times[0] = start;
        Ok(())
    }

    fn TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart:
        TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart_late(
        statistics: *mut TRITONBACKEND_ModelInstanceResponseStatistics, output_start: u64
    ) |state| {
        state.form(statistics)?.times[1] = output_start;
        Ok(())
    }

    fn TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd:
        TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd_late(
        statistics: *mut TRITONBACKEND_ModelInstanceResponseStatistics, end: u64
    ) |state| {
        state.form(statistics)?.times[2] = end;
        Ok(())
    }

    fn TRITONBACKEND_ModelInstanceResponseStatisticsSetError:
        TRITONBACKEND_ModelInstanceResponseStatisticsSetError_late(
        statistics: *mut TRITONBACKEND_ModelInstanceResponseStatistics, error: *mut TRITONSERVER_Error
    ) |state| {
        state.form(statistics)?.error = handle(error);
        Ok(())
    }

    fn TRITONBACKEND_ModelInstanceReportResponseStatistics:
        TRITONBACKEND_ModelInstanceReportResponseStatistics_late(
        statistics: *mut TRITONBACKEND_ModelInstanceResponseStatistics
    ) |state| {
        state.report(statistics)
    }
    also TRITONBACKEND_ModelInstanceResponseStatisticsDelete:
        TRITONBACKEND_ModelInstanceResponseStatisticsDelete_late
}

/// See the ABI. Its object is taken also where it is made to fail.
///
/// # Safety
/// None is needed: handles are checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceResponseStatisticsDelete(
    statistics: *mut TRITONBACKEND_ModelInstanceResponseStatistics,
) -> *mut TRITONSERVER_Error {
    let delete =
        |state: &mut State, _| state.response_statistics.end(handle(statistics), "deleted").map(|_| ());
    consume("TRITONBACKEND_ModelInstanceResponseStatisticsDelete", delete, drop)
}
