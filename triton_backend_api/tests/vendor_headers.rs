//! Our ABI header says what the vendor's headers say. They are not part of this project: name a folder that holds
//! `triton/core/tritonserver.h` and `tritonbackend.h` in TRITON_INCLUDE_DIR (an installation has
//! /opt/tritonserver/include), or the comparison is skipped.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests fail the test

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const OURS: &str = include_str!("../include/triton_abi.h");

/// What a header declares: functions and callback types as their types in order, constants as their values.
type Declarations = BTreeMap<String, String>;

fn declarations(header: &str) -> Declarations {
    let mut found = Declarations::new();
    let mut statement = Vec::new();
    let mut depth = 0;
    for token in tokens(header) {
        match token.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            ";" if depth == 0 => {
                declare(&statement, &mut found);
                statement.clear();
                continue;
            }
            _ => (),
        }
        statement.push(token);
    }
    found
}

/// The words and signs of a header, without comments, preprocessor lines, and what does not change a type.
fn tokens(header: &str) -> Vec<String> {
    let mut code = String::new();
    let mut rest = header;
    while let Some(start) = rest.find("/*") {
        code.push_str(&rest[..start]);
        rest = rest[start..].split_once("*/").map_or("", |(_, after)| after);
    }
    code.push_str(rest);
    let mut text = String::new();
    let mut directive = false;
    for line in code.lines() {
        let line = line.split("//").next().unwrap();
        directive |= line.trim_start().starts_with('#');
        if !directive {
            text.push_str(line);
            text.push(' ');
        }
        directive &= line.trim_end().ends_with('\\');
    }
    let text = text.replace("extern \"C\" {", " ");
    let mut tokens: Vec<String> = Vec::new();
    let mut word = String::new();
    for c in text.chars().chain([' ']) {
        if c.is_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            tokens.push(std::mem::take(&mut word));
        }
        if !c.is_whitespace() {
            tokens.push(c.to_string());
        }
    }
    tokens.retain(|token| token != "struct" && !token.ends_with("_DECLSPEC") && !token.ends_with("_ISPEC"));
    tokens
}

fn declare(statement: &[String], found: &mut Declarations) {
    let word = |index: usize| statement.get(index).map_or("", String::as_str);
    let open = |sign: &str| statement.iter().position(|token| token == sign);
    if (word(0), word(1)) == ("typedef", "enum") {
        let (Some(from), Some(to)) = (open("{"), open("}")) else { return };
        let mut next = 0;
        for constant in statement[from + 1..to].split(|token| token == ",").filter(|one| !one.is_empty()) {
            if let Some(value) = constant.get(2) {
                let hex = value.strip_prefix("0x").map(|digits| i64::from_str_radix(digits, 16));
                next = hex.unwrap_or_else(|| value.parse()).unwrap();
            }
            found.insert(constant[0].clone(), next.to_string());
            next += 1;
        }
        return;
    }
    let Some(parameters) = statement.iter().rposition(|token| token == "(") else { return };
    let (result, name) = match word(0) {
        // typedef RESULT ( * NAME ) ( PARAMETERS )
        "typedef" if parameters > 4 => (&statement[1..parameters - 4], &statement[parameters - 2]),
        "typedef" => return,
        _ => (&statement[..parameters - 1], &statement[parameters - 1]),
    };
    let types: Vec<_> =
        statement[parameters + 1..statement.len() - 1].split(|token| token == ",").map(type_of).collect();
    found.insert(name.clone(), format!("({}) -> {}", types.join(", "), type_of_result(result)));
}

fn type_of_result(tokens: &[String]) -> String {
    tokens.join(" ")
}

/// The type of a parameter, without its name and without a `const` that is only the callee's business.
fn type_of(parameter: &[String]) -> String {
    let mut tokens = parameter.to_vec();
    let is_word = |token: &String| token != "const" && token != "*";
    if tokens.iter().filter(|token| is_word(token)).count() > 1 {
        tokens.pop();
    }
    if !tokens.iter().any(|token| token == "*") {
        tokens.retain(|token| token != "const");
    }
    tokens.join(" ")
}

/// Everything that we declare and that the vendor does not, or otherwise. A call that is younger than the floor is
/// declared as NAME_late, and need not be there.
fn differences(ours: &Declarations, vendors: &Declarations) -> Vec<String> {
    let differs = |name: &str, declaration: &String| match name.strip_suffix("_late") {
        Some(name) => vendors.get(name).is_some_and(|theirs| theirs != declaration),
        None => vendors.get(name) != Some(declaration),
    };
    ours.iter()
        .filter(|(name, declaration)| differs(name, declaration))
        .map(|(name, declaration)| format!("{name}: ours is {declaration}, theirs {:?}", vendors.get(name)))
        .collect()
}

fn defined(header: &str, name: &str) -> Option<u32> {
    let line = header.lines().find_map(|line| line.strip_prefix("#define ")?.strip_prefix(name))?;
    line.trim().parse().ok()
}

fn vendors_header(folder: &Path, name: &str) -> String {
    let places: Vec<PathBuf> =
        ["triton/core", "core", ""].iter().map(|place| folder.join(place).join(name)).collect();
    let found = places.iter().find_map(|path| std::fs::read_to_string(path).ok());
    found.unwrap_or_else(|| panic!("TRITON_INCLUDE_DIR has none of {places:?}"))
}

#[test]
fn our_header_agrees_with_the_vendors() {
    let Some(folder) = std::env::var_os("TRITON_INCLUDE_DIR") else {
        println!("skipped: TRITON_INCLUDE_DIR names no folder with the vendor's headers");
        return;
    };
    let [server, backend] =
        ["tritonserver.h", "tritonbackend.h"].map(|name| vendors_header(Path::new(&folder), name));
    let mut vendors = declarations(&server);
    vendors.extend(declarations(&backend));
    let different = differences(&declarations(OURS), &vendors);
    assert!(different.is_empty(), "our header is not theirs:\n  {}", different.join("\n  "));
    assert_eq!(
        defined(&backend, "TRITONBACKEND_API_VERSION_MAJOR"),
        defined(OURS, "TRITON_ABI_BACKEND_MAJOR")
    );
    assert!(
        defined(&backend, "TRITONBACKEND_API_VERSION_MINOR") >= defined(OURS, "TRITON_ABI_BACKEND_MINOR")
    );
}

#[test]
fn the_comparison_reads_every_declaration_of_our_header() {
    let ours = declarations(OURS);
    let bindings = include_str!("../src/sys/bindings.rs");
    let functions = bindings.split("pub fn ").skip(1).map(|rest| rest.split('(').next().unwrap());
    let constants =
        bindings.split("pub const TRITONSERVER_").skip(1).map(|rest| rest.split(':').next().unwrap());
    let constants = constants.map(|name| format!("TRITONSERVER_{name}"));
    let missing: Vec<_> =
        functions.map(str::to_owned).chain(constants).filter(|name| !ours.contains_key(name)).collect();
    assert_eq!(missing, Vec::<String>::new());
    assert_eq!(
        ours["TRITONBACKEND_RequestFlags"],
        "(TRITONBACKEND_Request *, uint32_t *) -> TRITONSERVER_Error *"
    );
    let callback = "(TRITONSERVER_ResponseAllocator *, void *) -> TRITONSERVER_Error *";
    assert_eq!(ours["TRITONSERVER_ResponseAllocatorStartFn_t"], callback);
    assert_eq!(ours["TRITONSERVER_TYPE_BF16"], "14");
}

#[test]
fn the_comparison_sees_other_types_values_and_names() {
    let ours = declarations(OURS);
    for (is, other, name) in [
        ("TRITONSERVER_TYPE_BF16 = 14", "TRITONSERVER_TYPE_BF16 = 15", "TRITONSERVER_TYPE_BF16"),
        (
            "const uint64_t count",
            "const uint32_t count",
            "TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup",
        ),
        ("const char** id", "char** id", "TRITONBACKEND_RequestId"),
        ("void TRITONSERVER_ErrorDelete(", "bool TRITONSERVER_ErrorDelete(", "TRITONSERVER_ErrorDelete"),
        ("TRITONBACKEND_RequestTrace", "TRITONBACKEND_RequestTracing", "TRITONBACKEND_RequestTrace"),
    ] {
        assert!(OURS.contains(is), "{is}");
        let different = differences(&ours, &declarations(&OURS.replace(is, other)));
        assert!(different.iter().any(|line| line.starts_with(&format!("{name}:"))), "{different:?}");
    }
    let late = |declaration: &str| {
        declarations(&format!("typedef E* (*F_late)(X* x, double y);E* F({declaration});"))
    };
    let ours = BTreeMap::from([("F_late".to_owned(), late("")["F_late"].clone())]);
    assert_eq!(differences(&ours, &late("X* x, double y")), Vec::<String>::new());
    assert_eq!(differences(&ours, &late("X* x, float y")).len(), 1);
    assert_eq!(differences(&ours, &Declarations::new()), Vec::<String>::new(), "an older server");
    // The vendor's style: implicit values, tags, export macros, struct in front, comments, C++ guards.
    let theirs = "#ifdef __cplusplus\nextern \"C\" {\n#endif\n#define X(a) \\\n  f(a);\n\
        typedef enum tag_enum { A, /* b; */ B, C = 0x8, D } E; // f(int x);\n\
        SOME_DECLSPEC struct TRITONSERVER_Error* f(\n    struct T* t, const uint32_t n);\n#ifdef __cplusplus\n}\n#endif\n";
    let found = declarations(theirs);
    let wanted =
        [("A", "0"), ("B", "1"), ("C", "8"), ("D", "9"), ("f", "(T *, uint32_t) -> TRITONSERVER_Error *")];
    assert!(found.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(wanted), "{found:?}");
}
