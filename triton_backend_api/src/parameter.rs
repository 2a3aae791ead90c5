//! Parameters of requests and responses.

use std::ffi::{CStr, c_char, c_void};

use crate::error::{Error, Result};
use crate::{c_string, raw, sys};

/// The value of a parameter, `TRITONSERVER_ParameterType`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Parameter {
    /// A string.
    String(String),
    /// An integer.
    Int(i64),
    /// A truth value.
    Bool(bool),
    /// A floating-point number. Servers have it from backend API 1.18 on.
    Double(f64),
    /// A value of a type that this crate does not know, which the server gives this number.
    Unknown(u32),
}

impl Parameter {
    /// The string, where it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(value) => Some(value),
            _ => None,
        }
    }

    /// The integer, where it is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The truth value, where it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The number, where it is a double. An integer is none: see [`Parameter::as_int`].
    pub fn as_double(&self) -> Option<f64> {
        match self {
            Self::Double(value) => Some(*value),
            _ => None,
        }
    }

    /// # Safety
    /// `value` is what the server gives for a parameter of type `kind`, live and unchanged during the call.
    pub(crate) unsafe fn read(kind: u32, value: *const c_void) -> Self {
        if value.is_null() {
            return Self::Unknown(kind);
        }
        // SAFETY: the ABI says what the pointer points to for each type.
        unsafe {
            match kind {
                sys::TRITONSERVER_PARAMETER_STRING => Self::String(raw::text(value.cast())),
                sys::TRITONSERVER_PARAMETER_INT => Self::Int(value.cast::<i64>().read_unaligned()),
                // As a byte: a C bool that is neither 0 nor 1 must not become a Rust one.
                sys::TRITONSERVER_PARAMETER_BOOL => Self::Bool(value.cast::<u8>().read() != 0),
                sys::TRITONSERVER_PARAMETER_DOUBLE if raw::has_doubles() => {
                    Self::Double(value.cast::<f64>().read_unaligned())
                }
                other => Self::Unknown(other),
            }
        }
    }

    /// Sets it through the setter of its type.
    pub(crate) fn set(&self, name: &str, setters: &impl Setters) -> Result<()> {
        let c_name = c_string(name)?;
        let set = match self {
            Self::String(value) => {
                let value = c_string(value).map_err(|e| e.context(format!("parameter '{name}'")))?;
                setters.string(&c_name, &value)
            }
            Self::Int(value) => setters.int(&c_name, *value),
            Self::Bool(value) => setters.bool(&c_name, *value),
            Self::Double(value) => setters.double(&c_name, *value),
            Self::Unknown(kind) => {
                Err(Error::unsupported(format!("a value of the unknown type {kind} cannot be set")))
            }
        };
        set.map_err(|e| e.context(format!("parameter '{name}'")))
    }
}

/// The four calls that set a parameter of something.
pub(crate) trait Setters {
    fn string(&self, name: &CStr, value: &CStr) -> Result<()>;
    fn int(&self, name: &CStr, value: i64) -> Result<()>;
    fn bool(&self, name: &CStr, value: bool) -> Result<()>;
    fn double(&self, name: &CStr, value: f64) -> Result<()>;
}

/// One parameter as the server describes it: name, type and value belong to what it was asked of.
pub(crate) type RawParameter = (*const c_char, sys::TRITONSERVER_ParameterType, *const c_void);

/// # Safety
/// The parameter's owner lives and does not change during the call.
pub(crate) unsafe fn read(parameter: RawParameter) -> (String, Parameter) {
    let (name, kind, value) = parameter;
    // SAFETY: see above.
    unsafe { (raw::text(name), Parameter::read(kind, value)) }
}

impl From<&str> for Parameter {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}
impl From<String> for Parameter {
    fn from(value: String) -> Self {
        Self::String(value)
    }
}
impl From<i64> for Parameter {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}
impl From<bool> for Parameter {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}
impl From<f64> for Parameter {
    fn from(value: f64) -> Self {
        Self::Double(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_value_is_only_what_it_is() {
        let all = [Parameter::from("s"), Parameter::from(7), Parameter::from(true), Parameter::from(0.5)];
        let kinds = all.each_ref().map(|value| {
            [
                value.as_str().is_some(),
                value.as_int().is_some(),
                value.as_bool().is_some(),
                value.as_double().is_some(),
            ]
        });
        let wanted = [0, 1, 2, 3].map(|which| [0, 1, 2, 3].map(|kind| kind == which));
        assert_eq!(kinds, wanted);
        assert_eq!(Parameter::Unknown(9).as_int(), None);
    }

    #[test]
    fn a_value_of_unknown_type_or_without_a_place_is_kept_apart() {
        let value = 7i64;
        // SAFETY: live values; the types say what they are.
        unsafe {
            assert_eq!(Parameter::read(77, (&raw const value).cast()), Parameter::Unknown(77));
            assert_eq!(
                Parameter::read(sys::TRITONSERVER_PARAMETER_INT, std::ptr::null()),
                Parameter::Unknown(1)
            );
            let odd = 2u8;
            let read = Parameter::read(sys::TRITONSERVER_PARAMETER_BOOL, (&raw const odd).cast());
            assert_eq!(read, Parameter::Bool(true));
        }
    }
}
