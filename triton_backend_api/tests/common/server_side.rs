//! The calls that are made when a backend and its models are loaded, and by what they keep; requests make the others.

/// Those that `faults_server.rs` makes fail, each in each place.
pub const CALLS: [&str; 14] = [
    "TRITONSERVER_MetricArgsDelete",
    "TRITONSERVER_MetricArgsNew",
    "TRITONSERVER_MetricArgsSetHistogram",
    "TRITONSERVER_MetricDelete",
    "TRITONSERVER_MetricFamilyDelete",
    "TRITONSERVER_MetricFamilyNew",
    "TRITONSERVER_MetricIncrement",
    "TRITONSERVER_MetricNew",
    "TRITONSERVER_MetricNewWithArgs",
    "TRITONSERVER_MetricObserve",
    "TRITONSERVER_MetricSet",
    "TRITONSERVER_MetricValue",
    "TRITONSERVER_ParameterDelete",
    "TRITONSERVER_ParameterNew",
];
