//! The C ABI as bindgen reads it from `include/triton_abi.h`. Nothing here is written by hand but this line.
//!
//! To change it: edit the header, build with `--features bindgen`, copy the result over `bindings.rs`
//! (the test `bindings_are_current` says from where).

#![allow(non_camel_case_types, non_upper_case_globals, missing_docs, clippy::all)]

include!("bindings.rs");
