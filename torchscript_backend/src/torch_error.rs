//! libtorch's error texts, made fit for a client.

use tch::TchError;
use triton_backend_api::Error;

/// The longest message passed on; libtorch's can run to thousands of lines of dispatcher tables.
const MAX_CHARS: usize = 1000;

/// An error of libtorch as an error of Triton. Where a GPU's memory does not suffice, the same request may succeed later.
pub fn torch_error(error: TchError) -> Error {
    let message = summary(&text(&error));
    // The interpreter puts its own word before the message.
    match message.strip_prefix("RuntimeError: ").unwrap_or(&message).starts_with("CUDA out of memory") {
        true => Error::unavailable(message),
        false => Error::internal(message),
    }
}

fn text(error: &TchError) -> String {
    match error {
        TchError::Torch(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The model's own traceback and the message, without the C++ stack: for the log.
pub fn traceback(error: &TchError) -> String {
    without_stack(&text(error)).to_owned()
}

/// What went wrong, without any traceback.
fn summary(text: &str) -> String {
    let text = without_stack(text);
    let message = match text.contains("Traceback of TorchScript") {
        true => after_traceback(text),
        false => text,
    };
    match message.char_indices().nth(MAX_CHARS) {
        Some((cut, _)) => format!("{}...", &message[..cut]),
        None => message.to_owned(),
    }
}

fn without_stack(text: &str) -> &str {
    let end = ["\nException raised from ", "\nframe #"].iter().filter_map(|mark| text.find(mark)).min();
    text[..end.unwrap_or(text.len())].trim()
}

/// The interpreter ends its tracebacks with a line such as `RuntimeError: message`, at the margin; every line of a
/// traceback itself is indented or a heading.
fn after_traceback(text: &str) -> &str {
    let mut start = 0;
    let mut after_frames = false;
    for line in text.split_inclusive('\n') {
        let frame =
            line.starts_with(' ') || line.trim().is_empty() || line.starts_with("Traceback of TorchScript");
        if frame {
            after_frames = true;
        } else if after_frames {
            return text[start..].trim();
        }
        start += line.len();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use triton_backend_api::ErrorCode;

    fn message(text: &str) -> String {
        torch_error(TchError::Torch(text.to_owned())).message().to_owned()
    }

    #[test]
    fn the_stack_is_cut() {
        let text = "Expected x\nbut got y\nException raised from f at g.cpp:1 (most recent call first):\nframe #0: f() + 0x1\n";
        assert_eq!(message(text), "Expected x\nbut got y");
        assert_eq!(message("short\nframe #0: f()"), "short");
    }

    #[test]
    fn the_message_is_found_behind_the_tracebacks() {
        let text = "The following operation failed in the TorchScript interpreter.\n\
            Traceback of TorchScript, serialized code (most recent call last):\n  File \"code/a.py\", line 5, in forward\n\
            \x20   x: Tensor) -> Tensor:\n    ~~~ <--- HERE\n\nTraceback of TorchScript, original code (most recent call last):\n  \
            File \"a.py\", line 1\n    ~~~ <--- HERE\nRuntimeError: first line\nsecond line\n";
        assert_eq!(message(text), "RuntimeError: first line\nsecond line");
        assert!(traceback(&TchError::Torch(text.to_owned())).contains("code/a.py"));
    }

    #[test]
    fn only_a_gpu_without_memory_is_unavailable() {
        let interpreter = "The following operation failed in the TorchScript interpreter.\n\
            Traceback of TorchScript (most recent call last):\n  File \"a.py\", line 1\n    ~~~ <--- HERE\n";
        let oom = "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 1.00 GiB";
        for (text, code) in [
            (oom.to_owned(), ErrorCode::Unavailable),
            (format!("{interpreter}RuntimeError: {oom}\n"), ErrorCode::Unavailable),
            (format!("{interpreter}RuntimeError: said the model: {oom}\n"), ErrorCode::Internal),
            ("CUDA error: an illegal memory access was encountered".to_owned(), ErrorCode::Internal),
        ] {
            assert_eq!(torch_error(TchError::Torch(text.clone())).code(), code, "{text}");
        }
    }

    #[test]
    fn a_long_text_is_shortened() {
        let long = message(&"ü".repeat(5000));
        assert_eq!(long.chars().count(), MAX_CHARS + 3);
    }
}
