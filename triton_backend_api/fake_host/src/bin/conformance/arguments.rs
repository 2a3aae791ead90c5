//! The command line.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

pub const USAGE: &str = "\
Loads a backend's library without a server, sends it requests, makes its calls fail, and reports what it leaks, sends
twice, forgets, or writes out of place.

Usage: conformance LIBRARY --config FILE [OPTION..]
  LIBRARY               libtriton_NAME.so, in whatever language it is written
  --config FILE         the model's configuration as JSON: what GET /v2/models/NAME/config of a server answers
  --model FOLDER        the model's folder in the repository (default: that of FILE)
  --version N           the model's version (default 1)
  --shape INPUT:D,D..   an input's shape, the batch axis included (default: what the configuration says, 1 for -1)
  --api MAJOR.MINOR     the backend API that the server claims (default 1.19, that of Triton 2.51.0)
  --patience SECONDS    how long an answer is waited for (default 10)
  --no-faults           does not make calls fail
  --list                lists the checks and ends
  --only CHECK          runs one check in this process: for a debugger, valgrind, a sanitizer
Requests are zeros. Exit code 0: no rule was broken; 1: one was; 2: the checks could not be run.";

#[derive(Debug, Default)]
pub struct Arguments {
    pub library: PathBuf,
    pub config: PathBuf,
    pub model: Option<PathBuf>,
    pub version: u64,
    pub shapes: HashMap<String, Vec<i64>>,
    pub api: (u32, u32),
    pub patience: Duration,
    pub faults: bool,
    pub list: bool,
    pub only: Option<String>,
    /// With `only`: the report goes to the process that started this one.
    pub for_parent: bool,
    pub help: bool,
}

impl Arguments {
    pub fn parse(given: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut parsed = Self {
            version: 1,
            api: (1, 19),
            patience: Duration::from_secs(10),
            faults: true,
            ..Self::default()
        };
        let mut given = given.into_iter();
        while let Some(argument) = given.next() {
            let mut value = || given.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--config" => parsed.config = value()?.into(),
                "--model" => parsed.model = Some(value()?.into()),
                "--version" => parsed.version = number(&argument, &value()?)?,
                "--shape" => parsed.shapes.extend([shape(&value()?)?]),
                "--api" => parsed.api = api(&value()?)?,
                "--patience" => parsed.patience = Duration::from_secs(number(&argument, &value()?)?),
                "--no-faults" => parsed.faults = false,
                "--list" => parsed.list = true,
                "--only" => parsed.only = Some(value()?),
                "--for-parent" => parsed.for_parent = true,
                "-h" | "--help" => parsed.help = true,
                option if option.starts_with('-') => return Err(format!("unknown option {option}")),
                library if parsed.library.as_os_str().is_empty() => parsed.library = library.into(),
                other => return Err(format!("one LIBRARY is accepted; '{other}' is a second one")),
            }
        }
        match () {
            () if parsed.help => Ok(parsed),
            () if parsed.library.as_os_str().is_empty() => Err("LIBRARY is missing".to_owned()),
            () if parsed.config.as_os_str().is_empty() => Err("--config is missing".to_owned()),
            () => Ok(parsed),
        }
    }
}

fn number(option: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{option} is '{text}'; a whole number is accepted"))
}

fn api(text: &str) -> Result<(u32, u32), String> {
    let numbers = text.split_once('.').and_then(|(major, minor)| major.parse().ok().zip(minor.parse().ok()));
    numbers.ok_or(format!("--api is '{text}'; MAJOR.MINOR is accepted, such as 1.17"))
}

fn shape(text: &str) -> Result<(String, Vec<i64>), String> {
    let wrong = || format!("--shape is '{text}'; INPUT:D,D.. is accepted, such as INPUT0:1,16");
    let (name, dims) = text.rsplit_once(':').ok_or_else(wrong)?;
    let dims: Result<_, _> = dims.split(',').map(str::parse).collect();
    Ok((name.to_owned(), dims.map_err(|_| wrong())?))
}
