//! BYTES tensors: elements of any length, each behind its length in 32 bits, little endian.

use std::borrow::Cow;
use std::ops::Range;

use crate::error::{Error, Result};

/// Size of an element's length.
const PREFIX: usize = size_of::<u32>();

/// The elements of a BYTES tensor, in C order. They are byte strings; UTF-8 where both sides agree on it.
///
/// ```
/// use triton_backend_api::ByteStrings;
///
/// let encoded = ByteStrings::encode(&["spleen", ""])?;
/// assert_eq!(encoded, b"\x06\0\0\0spleen\0\0\0\0");
/// let strings = ByteStrings::decode(encoded, 2)?;
/// assert_eq!(strings.text(0)?, "spleen");
/// assert_eq!(strings.get(1), Some(&b""[..]));
/// # Ok::<_, triton_backend_api::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteStrings<'a> {
    data: Cow<'a, [u8]>,
    places: Vec<Range<usize>>,
}

impl<'a> ByteStrings<'a> {
    /// Takes the bytes of a tensor of `count` elements apart. It is INVALID_ARG, naming the element and its offset,
    /// where they end inside a length or an element, or go on after the last element.
    pub fn decode(data: impl Into<Cow<'a, [u8]>>, count: usize) -> Result<Self> {
        let data = data.into();
        let wrong =
            |what: String| Err(Error::invalid_arg(format!("BYTES tensor of {count} elements: {what}")));
        // Checked first: the count comes from a client's shape and may be anything.
        if count > data.len() / PREFIX {
            return wrong(format!("its {} bytes are too few for {PREFIX} bytes of length each", data.len()));
        }
        let mut places = Vec::with_capacity(count);
        let mut rest = &data[..];
        for element in 0..count {
            let at = data.len() - rest.len();
            let Some((prefix, after)) = rest.split_first_chunk::<PREFIX>() else {
                let left = rest.len();
                return wrong(format!(
                    "element {element} at byte {at} has {left} of {PREFIX} bytes of its length"
                ));
            };
            let length = u32::from_le_bytes(*prefix) as usize;
            let Some((_, after)) = after.split_at_checked(length) else {
                let left = after.len();
                return wrong(format!(
                    "element {element} at byte {at} is {length} bytes long, but {left} are left"
                ));
            };
            places.push(at + PREFIX..at + PREFIX + length);
            rest = after;
        }
        match rest.len() {
            0 => Ok(Self { data, places }),
            left => wrong(format!("{left} bytes come after the last element")),
        }
    }

    /// How many bytes [`ByteStrings::encode`] makes of these elements.
    pub fn encoded_size(elements: &[impl AsRef<[u8]>]) -> Result<usize> {
        elements.iter().enumerate().try_fold(0usize, |size, (index, element)| {
            let length = length(index, element.as_ref())? as usize;
            size.checked_add(PREFIX + length).ok_or_else(|| {
                Error::invalid_arg("the elements of a BYTES tensor take more than an address space holds")
            })
        })
    }

    /// The bytes of a tensor of these elements. An element of 4 GiB or more is INVALID_ARG.
    pub fn encode(elements: &[impl AsRef<[u8]>]) -> Result<Vec<u8>> {
        let size = Self::encoded_size(elements)?;
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(size)
            .map_err(|_| Error::unavailable(format!("out of memory: {size} bytes for a BYTES tensor")))?;
        bytes.resize(size, 0);
        Self::encode_into(elements, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes the bytes of a tensor of these elements to memory of exactly [`ByteStrings::encoded_size`].
    pub fn encode_into(elements: &[impl AsRef<[u8]>], target: &mut [u8]) -> Result<()> {
        let size = Self::encoded_size(elements)?;
        if size != target.len() {
            let room = target.len();
            return Err(Error::internal(format!("a BYTES tensor of {size} bytes does not fit {room} bytes")));
        }
        let mut rest = target;
        for (index, element) in elements.iter().enumerate() {
            let element = element.as_ref();
            let (prefix, after) = rest.split_at_mut(PREFIX);
            prefix.copy_from_slice(&length(index, element)?.to_le_bytes());
            let (place, after) = after.split_at_mut(element.len());
            place.copy_from_slice(element);
            rest = after;
        }
        Ok(())
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The element at that position.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        self.places.get(index).map(|place| &self.data[place.clone()])
    }

    /// The element at that position as text: INVALID_ARG where there is none or it is no UTF-8.
    pub fn text(&self, index: usize) -> Result<&str> {
        let count = self.len();
        let element = self
            .get(index)
            .ok_or_else(|| Error::invalid_arg(format!("there is no element {index}: there are {count}")))?;
        str::from_utf8(element).map_err(|e| Error::invalid_arg(format!("element {index} is no UTF-8: {e}")))
    }

    /// All elements, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.places.iter().map(|place| &self.data[place.clone()])
    }
}

fn length(index: usize, element: &[u8]) -> Result<u32> {
    u32::try_from(element.len()).map_err(|_| {
        let size = element.len();
        Error::invalid_arg(format!(
            "element {index} of a BYTES tensor has {size} bytes; at most {} are accepted",
            u32::MAX
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn refusal(data: &[u8], count: usize) -> String {
        let refusal = ByteStrings::decode(data, count).unwrap_err();
        assert_eq!(refusal.code(), crate::ErrorCode::InvalidArg);
        refusal.message().to_owned()
    }

    #[test]
    fn every_malformed_form_is_named() {
        let two = b"\x01\0\0\0a\x02\0\0\0bc";
        assert!(ByteStrings::decode(&two[..], 2).is_ok());
        for (data, count, what) in [
            (&two[..], 3, "its 11 bytes are too few for 4 bytes of length each"),
            (&two[..], usize::MAX, "its 11 bytes are too few"),
            (&two[..8], 2, "element 1 at byte 5 has 3 of 4 bytes of its length"),
            (&two[..10], 2, "element 1 at byte 5 is 2 bytes long, but 1 are left"),
            (&two[..], 1, "6 bytes come after the last element"),
            (&two[..], 0, "11 bytes come after the last element"),
            (b"\xff\xff\xff\xff", 1, "element 0 at byte 0 is 4294967295 bytes long, but 0 are left"),
            (b"\0\0\0", 1, "its 3 bytes are too few"),
        ] {
            let found = refusal(data, count);
            assert!(
                found.starts_with(&format!("BYTES tensor of {count} elements")) && found.contains(what),
                "{found}"
            );
        }
    }

    #[test]
    fn a_big_endian_length_is_too_long_rather_than_right() {
        assert!(refusal(b"\0\0\0\x01a", 1).contains("16777216 bytes long"));
    }

    #[test]
    fn elements_can_be_text_or_not() {
        let strings =
            ByteStrings::decode(ByteStrings::encode(&[&b"\xff"[..], "ü".as_bytes()]).unwrap(), 2).unwrap();
        assert_eq!(strings.text(1), Ok("ü"));
        assert!(strings.text(0).unwrap_err().message().starts_with("element 0 is no UTF-8"));
        assert_eq!(strings.text(2).unwrap_err().message(), "there is no element 2: there are 2");
        assert_eq!((strings.len(), strings.is_empty(), strings.get(2)), (2, false, None));
    }

    #[test]
    fn memory_of_another_size_is_refused() {
        let mut room = [0; 6];
        assert!(ByteStrings::encode_into(&["a"], &mut room).is_err());
        assert!(ByteStrings::encode_into(&["ab"], &mut room).is_ok());
    }

    #[test]
    fn decoding_borrows_what_is_borrowed() {
        let data = ByteStrings::encode(&["abc"]).unwrap();
        let strings = ByteStrings::decode(&data[..], 1).unwrap();
        assert_eq!(strings.get(0).unwrap().as_ptr(), data[4..].as_ptr());
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(elements in vec(vec(any::<u8>(), 0..40), 0..20)) {
            let encoded = ByteStrings::encode(&elements).unwrap();
            prop_assert_eq!(encoded.len(), ByteStrings::encoded_size(&elements).unwrap());
            let decoded = ByteStrings::decode(encoded, elements.len()).unwrap();
            prop_assert!(decoded.iter().eq(elements.iter().map(Vec::as_slice)));
        }

        #[test]
        fn any_bytes_are_either_refused_or_encode_back(data in vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..64), count in 0usize..9) {
            if let Ok(decoded) = ByteStrings::decode(&data[..], count) {
                let elements: Vec<_> = decoded.iter().collect();
                prop_assert_eq!(elements.len(), count);
                prop_assert_eq!(ByteStrings::encode(&elements).unwrap(), data);
            }
        }
    }
}
