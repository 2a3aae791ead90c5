//! Volume-sized memory. Where there is none, a request fails and the server lives.

use triton_backend_api::{Error, Result};

/// `count` copies of `value`; `what` names their use in the error.
pub(super) fn filled<T: Clone>(count: usize, value: T, what: &str) -> Result<Vec<T>> {
    let mut data = Vec::new();
    reserve(&mut data, count, what)?;
    data.resize(count, value);
    Ok(data)
}

/// Room for `more` further elements.
pub(super) fn reserve<T>(data: &mut Vec<T>, more: usize, what: &str) -> Result<()> {
    data.try_reserve(more).map_err(|_| {
        let bytes = (data.len() as u128 + more as u128) * size_of::<T>() as u128;
        Error::unavailable(format!("out of host memory: {bytes} bytes wanted for {what}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_size_is_an_error_that_names_bytes_and_use() {
        let error = filled::<u64>(1 << 61, 0, "the label map").unwrap_err();
        assert_eq!(error.code(), triton_backend_api::ErrorCode::Unavailable);
        assert!(error.message().contains("18446744073709551616 bytes wanted for the label map"), "{error}");
    }
}
