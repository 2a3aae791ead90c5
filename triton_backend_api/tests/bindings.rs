//! The committed declarations are what bindgen makes of the header. Needs libclang:
//! `cargo test -p triton_backend_api --features bindgen --test bindings`.

#![cfg(feature = "bindgen")]

/// Writes nothing: to renew, copy the regenerated file over the committed one.
#[test]
fn bindings_are_current() {
    let (committed, regenerated) = ("src/sys/bindings.rs", concat!(env!("OUT_DIR"), "/bindings.rs"));
    let old = include_str!("../src/sys/bindings.rs");
    let new = include_str!(concat!(env!("OUT_DIR"), "/bindings.rs"));
    let difference = old.lines().zip(new.lines()).enumerate().find(|(_, (old, new))| old != new);
    if let Some((line, (old, new))) = difference {
        panic!("line {}: {committed} has {old:?}, {regenerated} has {new:?}: copy the latter", line + 1);
    }
    assert_eq!(old.lines().count(), new.lines().count(), "{committed} is not {regenerated}: copy the latter");
}
