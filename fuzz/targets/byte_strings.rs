//! BYTES tensors: any bytes are refused with INVALID_ARG, or are exactly what their elements encode to.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spleenseg_fuzz as _;
use triton_backend_api::{ByteStrings, ErrorCode};

/// The format once more, as plainly as it can be said: what each element holds, or nothing where the bytes do not fit.
fn plainly(mut data: &[u8], count: usize) -> Option<Vec<Vec<u8>>> {
    let mut elements = Vec::new();
    while elements.len() < count {
        if data.len() < 4 {
            return None;
        }
        let length = (0..4).map(|at| usize::from(data[at]) << (8 * at)).sum::<usize>();
        data = &data[4..];
        if data.len() < length {
            return None;
        }
        elements.push(data[..length].to_vec());
        data = &data[length..];
    }
    data.is_empty().then_some(elements)
}

fuzz_target!(|input: (u8, usize, &[u8])| {
    let (few, many, data) = input;
    // Mostly a count that may be right; now and then any that 64 bits hold.
    let count = if few == u8::MAX { many } else { usize::from(few) % 16 };
    match (ByteStrings::decode(data, count), plainly(data, count)) {
        (Ok(found), Some(expected)) => {
            assert!(found.iter().eq(expected.iter().map(Vec::as_slice)));
            assert_eq!(found.len(), count);
            assert_eq!(ByteStrings::encode(&expected).as_deref(), Ok(data));
            for (index, element) in expected.iter().enumerate() {
                assert_eq!(found.get(index), Some(element.as_slice()));
                assert_eq!(found.text(index).is_ok(), str::from_utf8(element).is_ok());
            }
            assert!(found.get(count).is_none() && found.text(count).is_err());
        }
        (Err(error), None) => {
            assert_eq!(error.code(), ErrorCode::InvalidArg);
            assert!(error.message().starts_with(&format!("BYTES tensor of {count} elements: ")), "{error}");
        }
        (found, expected) => panic!("{found:?}, plainly {expected:?}"),
    }
});
