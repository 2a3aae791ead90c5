//! With the feature `bindgen`: regenerates the declarations of the ABI header into OUT_DIR, for the test that
//! compares them with the committed ones and for whoever changes the header.

fn main() {
    println!("cargo:rerun-if-changed=include/triton_abi.h");
    #[cfg(feature = "bindgen")]
    generate();
}

#[cfg(feature = "bindgen")]
fn generate() {
    let bindings = bindgen::Builder::default()
        .header("include/triton_abi.h")
        .allowlist_item("TRITON.*")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .use_core()
        .layout_tests(false)
        .generate_comments(false)
        .formatter(bindgen::Formatter::Prettyplease)
        .generate()
        .unwrap_or_else(|e| panic!("bindgen could not read include/triton_abi.h: {e}"));
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default()).join("bindings.rs");
    std::fs::write(&out, bindings.to_string()).unwrap_or_else(|e| panic!("{}: {e}", out.display()));
}
