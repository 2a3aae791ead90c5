//! The model configuration's `parameters`: the keys of Triton's own PyTorch backend, MEMORY_FORMAT and AUTOCAST.

use tch::Kind;
use triton_backend_api::{Error, Result};

/// Order in which 5-D tensors lie in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryFormat {
    #[default]
    Contiguous,
    /// Channels vary fastest; convolutions on CPU run faster so.
    ChannelsLast3d,
}

/// Typed parameters. `None` leaves libtorch's own default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub intra_op_threads: Option<i32>,
    pub inter_op_threads: Option<i32>,
    pub optimized_execution: bool,
    pub jit_profiling: Option<bool>,
    pub tensor_fuser: Option<bool>,
    pub weight_sharing: bool,
    pub memory_format: MemoryFormat,
    /// The type in which operators compute that gain by half precision.
    pub autocast: Option<Kind>,
    pub disable_cudnn: Option<bool>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            intra_op_threads: None,
            inter_op_threads: None,
            optimized_execution: true,
            jit_profiling: None,
            tensor_fuser: None,
            weight_sharing: false,
            memory_format: MemoryFormat::Contiguous,
            autocast: None,
            disable_cudnn: None,
        }
    }
}

/// A line for the log about the configuration.
#[derive(Debug, PartialEq, Eq)]
pub enum Note {
    /// Worth knowing, such as a parameter that changes nothing here.
    Information(String),
    /// What was asked for is probably not what happens.
    Warning(String),
}

/// More threads than any machine has cores is a slip of the pen, and libtorch would start them all.
const MAX_THREADS: i32 = 1024;

impl Settings {
    /// Reads the parameters; a wrong value is an error, what has no effect becomes a note.
    pub fn parse<'a>(parameters: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<(Self, Vec<Note>)> {
        let mut settings = Self::default();
        let mut notes = Vec::new();
        for (key, value) in parameters {
            let mut no_effect = |why: &str| {
                boolean(key, value)
                    .map(|_| notes.push(Note::Information(format!("parameter {key} has no effect: {why}"))))
            };
            match key {
                "INTRA_OP_THREAD_COUNT" => settings.intra_op_threads = Some(threads(key, value)?),
                "INTER_OP_THREAD_COUNT" => settings.inter_op_threads = Some(threads(key, value)?),
                "DISABLE_OPTIMIZED_EXECUTION" => settings.optimized_execution = !boolean(key, value)?,
                "ENABLE_JIT_PROFILING" => settings.jit_profiling = Some(boolean(key, value)?),
                "ENABLE_TENSOR_FUSER" => settings.tensor_fuser = Some(boolean(key, value)?),
                "ENABLE_WEIGHT_SHARING" => settings.weight_sharing = boolean(key, value)?,
                "MEMORY_FORMAT" => settings.memory_format = memory_format(key, value)?,
                "AUTOCAST" => settings.autocast = autocast(key, value)?,
                "DISABLE_CUDNN" => settings.disable_cudnn = Some(boolean(key, value)?),
                "INFERENCE_MODE" => {
                    no_effect("every model runs without gradients (no_grad), tch has no inference mode")?
                }
                "ENABLE_JIT_EXECUTOR" => no_effect("tch does not offer the choice of executor")?,
                "ENABLE_CACHE_CLEANING" => no_effect("tch cannot empty the cache of GPU memory")?,
                _ => notes
                    .push(Note::Warning(format!("parameter {key} is unknown to this backend and ignored"))),
            }
        }
        Ok((settings, notes))
    }
}

fn wrong(key: &str, value: &str, accepted: &str) -> Error {
    Error::invalid_arg(format!("parameter {key} is \"{value}\"; accepted: {accepted}"))
}

fn boolean(key: &str, value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => Err(wrong(key, value, "true, on, 1, false, off, 0")),
    }
}

fn threads(key: &str, value: &str) -> Result<i32> {
    let number = value.trim().parse().ok().filter(|number| (1..=MAX_THREADS).contains(number));
    number.ok_or_else(|| wrong(key, value, &format!("a whole number from 1 to {MAX_THREADS}")))
}

fn memory_format(key: &str, value: &str) -> Result<MemoryFormat> {
    match value {
        "contiguous" => Ok(MemoryFormat::Contiguous),
        "channels_last_3d" => Ok(MemoryFormat::ChannelsLast3d),
        _ => Err(wrong(key, value, "contiguous, channels_last_3d")),
    }
}

fn autocast(key: &str, value: &str) -> Result<Option<Kind>> {
    match value {
        "off" => Ok(None),
        "bfloat16" => Ok(Some(Kind::BFloat16)),
        "float16" => Ok(Some(Kind::Half)),
        _ => Err(wrong(key, value, "off, bfloat16, float16")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_given_is_the_default() {
        assert_eq!(Settings::parse([]).unwrap(), (Settings::default(), vec![]));
    }

    #[test]
    fn every_effective_parameter_reaches_its_field() {
        let (settings, notes) = Settings::parse([
            ("INTRA_OP_THREAD_COUNT", "3"),
            ("INTER_OP_THREAD_COUNT", "2"),
            ("DISABLE_OPTIMIZED_EXECUTION", "True"),
            ("ENABLE_JIT_PROFILING", "false"),
            ("ENABLE_TENSOR_FUSER", "1"),
            ("ENABLE_WEIGHT_SHARING", "on"),
            ("MEMORY_FORMAT", "channels_last_3d"),
            ("AUTOCAST", "bfloat16"),
            ("DISABLE_CUDNN", "true"),
        ])
        .unwrap();
        let expected = Settings {
            intra_op_threads: Some(3),
            inter_op_threads: Some(2),
            optimized_execution: false,
            jit_profiling: Some(false),
            tensor_fuser: Some(true),
            weight_sharing: true,
            memory_format: MemoryFormat::ChannelsLast3d,
            autocast: Some(Kind::BFloat16),
            disable_cudnn: Some(true),
        };
        assert_eq!((settings, notes), (expected, vec![]));
    }

    #[test]
    fn without_effect_is_one_note_each_and_still_checked() {
        for key in ["INFERENCE_MODE", "ENABLE_JIT_EXECUTOR", "ENABLE_CACHE_CLEANING"] {
            let (settings, notes) = Settings::parse([(key, "true")]).unwrap();
            assert_eq!(settings, Settings::default());
            assert!(matches!(&notes[..], [Note::Information(text)] if text.contains(key)), "{notes:?}");
            assert!(Settings::parse([(key, "yes")]).is_err(), "{key}");
        }
        let (_, notes) = Settings::parse([("MEMORY_FROMAT", "contiguous")]).unwrap();
        assert!(matches!(&notes[..], [Note::Warning(text)] if text.contains("MEMORY_FROMAT")), "{notes:?}");
    }

    #[test]
    fn a_wrong_value_names_key_value_and_what_is_accepted() {
        for (key, value, accepted) in [
            ("INTRA_OP_THREAD_COUNT", "0", "from 1"),
            ("INTRA_OP_THREAD_COUNT", "-1", "from 1"),
            ("INTER_OP_THREAD_COUNT", "many", "from 1"),
            ("INTER_OP_THREAD_COUNT", "99999999999", "from 1"),
            ("DISABLE_OPTIMIZED_EXECUTION", "yes", "true"),
            ("ENABLE_WEIGHT_SHARING", "", "true"),
            ("MEMORY_FORMAT", "channels_last", "channels_last_3d"),
            ("AUTOCAST", "fp16", "bfloat16, float16"),
            ("DISABLE_CUDNN", "never", "true"),
        ] {
            let error = Settings::parse([(key, value)]).unwrap_err();
            for part in [key, value, accepted] {
                assert!(error.message().contains(part), "{key}={value}: {error}");
            }
        }
    }
}
