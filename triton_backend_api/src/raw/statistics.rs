//! The statistics of one response.

use std::ptr::null_mut;

use super::{check, late::late, out};
use crate::error::Result;
use crate::sys::*;

type Statistics = *mut TRITONBACKEND_ModelInstanceResponseStatistics;

late! {
    /// An empty form, which the caller owns; null from a server that was built without statistics.
    response_statistics_new = TRITONBACKEND_ModelInstanceResponseStatisticsNew:
        TRITONBACKEND_ModelInstanceResponseStatisticsNew_late, since "backend API 1.19"
        () -> Statistics = null_mut();
    /// Deletes the form, and nothing that was set in it.
    response_statistics_delete = TRITONBACKEND_ModelInstanceResponseStatisticsDelete:
        TRITONBACKEND_ModelInstanceResponseStatisticsDelete_late, since "backend API 1.19"
        (statistics: Statistics);
    /// Whose response it was. The server follows this pointer when the form is reported.
    response_statistics_set_instance = TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance:
        TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance_late, since "backend API 1.19"
        (statistics: Statistics, instance: *mut TRITONBACKEND_ModelInstance);
    /// What counts the responses to the request. The server follows this pointer when the form is reported.
    response_statistics_set_factory = TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory:
        TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory_late, since "backend API 1.19"
        (statistics: Statistics, factory: *mut TRITONBACKEND_ResponseFactory);
    /// When work on it began.
    response_statistics_set_start = TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart:
        TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart_late, since "backend API 1.19"
        (statistics: Statistics, start: u64);
    /// When its outputs began to be written; not set for an empty response.
    response_statistics_set_output_start = TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart:
        TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart_late, since "backend API 1.19"
        (statistics: Statistics, output_start: u64);
    /// When it was done.
    response_statistics_set_end = TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd:
        TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd_late, since "backend API 1.19"
        (statistics: Statistics, end: u64);
    /// The error that it carries, which stays the caller's and is looked at when the form is reported.
    response_statistics_set_error = TRITONBACKEND_ModelInstanceResponseStatisticsSetError:
        TRITONBACKEND_ModelInstanceResponseStatisticsSetError_late, since "backend API 1.19"
        (statistics: Statistics, error: *mut TRITONSERVER_Error);
    /// Counts the response, as a success, an empty one, a failure or a cancellation.
    report_response_statistics = TRITONBACKEND_ModelInstanceReportResponseStatistics:
        TRITONBACKEND_ModelInstanceReportResponseStatistics_late, since "backend API 1.19"
        (statistics: Statistics);
}
