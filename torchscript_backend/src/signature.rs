//! `forward()`'s arguments and results, read from the TorchScript file.
//!
//! libtorch knows the schema of a loaded module, but tch does not offer it. The file holds it too: it is a zip
//! whose `data.pkl` begins with the name of the root module's class, and whose `code/` folder has that class as text.

use std::io::{Read, Seek};
use std::path::Path;

use triton_backend_api::{Error, Result};
use zip::ZipArchive;

use crate::input_use::reason_to_copy;

/// Type of an argument of `forward()`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgumentType {
    Tensor,
    OptionalTensor,
    TensorDict,
    /// Anything else, as TorchScript writes it.
    Other(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    pub name: String,
    pub kind: ArgumentType,
    pub has_default: bool,
}

/// What `forward()` returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Results {
    Tensor,
    /// The types of the elements, as TorchScript writes them.
    Tuple(Vec<String>),
    TensorList,
    TensorDict,
    /// A type that only a call can tell more about, such as a NamedTuple.
    Other(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    pub arguments: Vec<Argument>,
    pub results: Results,
    /// A statement by which the module may write to its input or keep it beyond the call, if there is one.
    pub reason_to_copy: Option<String>,
}

impl Signature {
    /// Reads the signature from the TorchScript file at `path`.
    pub fn read(path: &Path) -> Result<Self> {
        let file = std::fs::File::open(path)
            .map_err(|e| Error::not_found(format!("cannot open the model file {}: {e}", path.display())))?;
        Self::from_archive(std::io::BufReader::new(file)).map_err(|why| {
            Error::invalid_arg(format!(
                "{} is not a TorchScript file ({why}); accepted is what torch.jit.save writes",
                path.display()
            ))
        })
    }

    fn from_archive(reader: impl Read + Seek) -> Result<Self, String> {
        let mut archive = ZipArchive::new(reader).map_err(|e| e.to_string())?;
        // The archive's one top folder is named after the file it was first saved to.
        let folder = archive
            .file_names()
            .filter_map(|name| {
                Some(name.ok()?.split_once('/').filter(|(_, rest)| *rest == "data.pkl")?.0.to_owned())
            })
            .next()
            .ok_or("it has no data.pkl")?;
        let data = entry(&mut archive, &format!("{folder}/data.pkl"))?;
        let (module, class) = root_class(&data).ok_or("data.pkl names no module class")?;
        let code_path = format!("{folder}/code/{}.py", module.replace('.', "/"));
        let (mut class_code, mut files) = (String::new(), Vec::new());
        let names: Vec<String> =
            archive.file_names().filter_map(|name| Some(name.ok()?.into_owned())).collect();
        for name in
            names.iter().filter(|name| name.starts_with(&format!("{folder}/code/")) && name.ends_with(".py"))
        {
            let code =
                String::from_utf8(entry(&mut archive, name)?).map_err(|_| format!("{name} is not UTF-8"))?;
            if *name == code_path {
                class_code.clone_from(&code);
            }
            files.push(code);
        }
        let (arguments, results) = parse_class(&class_code, &class)
            .ok_or_else(|| format!("{code_path} has no {class}.forward()"))?;
        Ok(Self { arguments, results, reason_to_copy: reason_to_copy(&files) })
    }
}

fn entry(archive: &mut ZipArchive<impl Read + Seek>, name: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut file = archive.by_name(name).map_err(|e| format!("{name}: {e}"))?;
    file.read_to_end(&mut bytes).map_err(|e| format!("{name}: {e}"))?;
    Ok(bytes)
}

/// Module and name of the pickled root object's class: the first operation after the protocol number is
/// `GLOBAL "module\nname\n"`.
fn root_class(pickle: &[u8]) -> Option<(String, String)> {
    let rest = pickle.strip_prefix(b"\x80\x02c")?;
    let mut lines = rest.split(|&byte| byte == b'\n');
    let mut line = || String::from_utf8(lines.next()?.to_vec()).ok();
    Some((line()?, line()?))
}

fn parse_class(code: &str, class: &str) -> Option<(Vec<Argument>, Results)> {
    let start = code
        .match_indices("class ")
        .map(|(at, keyword)| (at, &code[at + keyword.len()..]))
        .find(|(at, rest)| {
            (*at == 0 || code[..*at].ends_with('\n'))
                && rest.strip_prefix(class).is_some_and(|rest| rest.starts_with('('))
        })?
        .0;
    let body = &code[start..];
    let end = body.match_indices("\nclass ").next().map_or(body.len(), |(at, _)| at);
    let forward = &body[..end];
    let parameters = &forward[forward.find("def forward(")? + "def forward(".len()..];
    let close = closing_bracket(parameters)?;
    let arguments = split_top_level(&parameters[..close], ',')
        .into_iter()
        .map(str::trim)
        .filter(|argument| !argument.is_empty())
        .skip(1) // self
        .map(parse_argument)
        .collect();
    let returned = parameters[close + 1..].trim_start().strip_prefix("->")?;
    let returned = returned[..returned.find(":\n")?].trim();
    Some((arguments, parse_results(returned)))
}

fn parse_argument(text: &str) -> Argument {
    let (name, rest) = text.split_once(':').unwrap_or((text, "Tensor"));
    let parts = split_top_level(rest, '=');
    let kind = match parts[0].trim() {
        "Tensor" => ArgumentType::Tensor,
        "Optional[Tensor]" => ArgumentType::OptionalTensor,
        "Dict[str, Tensor]" => ArgumentType::TensorDict,
        other => ArgumentType::Other(other.to_owned()),
    };
    Argument { name: name.trim().to_owned(), kind, has_default: parts.len() > 1 }
}

fn parse_results(text: &str) -> Results {
    if let Some(elements) = text.strip_prefix("Tuple[").and_then(|rest| rest.strip_suffix(']')) {
        let elements = split_top_level(elements, ',');
        return Results::Tuple(elements.into_iter().map(|element| element.trim().to_owned()).collect());
    }
    match text {
        "Tensor" => Results::Tensor,
        "List[Tensor]" => Results::TensorList,
        "Dict[str, Tensor]" => Results::TensorDict,
        other => Results::Other(other.to_owned()),
    }
}

/// Byte offset of the bracket that closes the one before `text`.
pub fn closing_bracket(text: &str) -> Option<usize> {
    let mut scan = Scan::default();
    text.char_indices().find(|&(_, c)| scan.step(c) < 0).map(|(at, _)| at)
}

/// Splits at `separator` where no bracket and no string literal is open.
fn split_top_level(text: &str, separator: char) -> Vec<&str> {
    let mut scan = Scan::default();
    text.split(|c| scan.step(c) == 0 && scan.quote.is_none() && c == separator).collect()
}

/// Follows brackets and string literals through Python text.
#[derive(Default)]
struct Scan {
    depth: i32,
    quote: Option<char>,
    escaped: bool,
}

impl Scan {
    /// Depth of brackets after `c`.
    fn step(&mut self, c: char) -> i32 {
        match self.quote {
            Some(_) if self.escaped => self.escaped = false,
            Some(_) if c == '\\' => self.escaped = true,
            Some(open) if c == open => self.quote = None,
            Some(_) => {}
            None => match c {
                '"' | '\'' => self.quote = Some(c),
                '(' | '[' | '{' => self.depth += 1,
                ')' | ']' | '}' => self.depth -= 1,
                _ => {}
            },
        }
        self.depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argument(name: &str, kind: ArgumentType, has_default: bool) -> Argument {
        Argument { name: name.to_owned(), kind, has_default }
    }

    #[test]
    fn arguments_with_types_and_defaults() {
        let code = "class Other(Module):\n  def forward(self: __torch__.Other,\n    wrong: Tensor) -> Tensor:\n    return wrong\n\
            class Two(Module):\n  training : bool\n  def forward_features(self: __torch__.Two,\n    y: Tensor) -> Tensor:\n    return y\n  \
            def forward(self: __torch__.Two,\n    image: Tensor,\n    bias: Optional[Tensor]=None,\n    \
            pads: List[int]=[1, 2],\n    mode: str=\"a,)b\",\n    more: Dict[str, Tensor]) -> Tuple[Tensor, List[Tensor]]:\n    return image\n\
            class TwoMore(Module):\n  def forward(self: __torch__.TwoMore,\n    wrong: Tensor) -> Tensor:\n    return wrong\n";
        let (arguments, results) = parse_class(code, "Two").unwrap();
        assert_eq!(
            arguments,
            [
                argument("image", ArgumentType::Tensor, false),
                argument("bias", ArgumentType::OptionalTensor, true),
                argument("pads", ArgumentType::Other("List[int]".into()), true),
                argument("mode", ArgumentType::Other("str".into()), true),
                argument("more", ArgumentType::TensorDict, false),
            ]
        );
        assert_eq!(results, Results::Tuple(vec!["Tensor".into(), "List[Tensor]".into()]));
        assert!(parse_class(code, "Tw").is_none());
    }

    #[test]
    fn a_class_without_forward_is_not_read_from_the_next() {
        let code = "class A(Module):\n  training : bool\nclass B(Module):\n  def forward(self: __torch__.B,\n    x: Tensor) -> Tensor:\n    return x\n";
        assert!(parse_class(code, "A").is_none());
    }

    #[test]
    fn result_types() {
        assert_eq!(parse_results("Tensor"), Results::Tensor);
        assert_eq!(parse_results("List[Tensor]"), Results::TensorList);
        assert_eq!(parse_results("Dict[str, Tensor]"), Results::TensorDict);
        assert_eq!(parse_results("__torch__.Pair"), Results::Other("__torch__.Pair".into()));
    }

    #[test]
    fn what_is_no_torchscript_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = Signature::read(&folder.path().join("1/model.pt")).unwrap_err();
        assert!(missing.message().contains("1/model.pt"), "{missing}");
        let text = folder.path().join("model.pt");
        std::fs::write(&text, "not a zip").unwrap();
        let error = Signature::read(&text).unwrap_err();
        assert!(error.message().contains("model.pt is not a TorchScript file"), "{error}");
    }
}
