//! Whether a network may write to its input, or keep it beyond the call, told from the code in its file.
//!
//! Such a network needs a copy: the input's memory is the client's, and gone after the call. TorchScript writes its
//! code as one statement a line, with operators as `torch.name(..)`; those that write have names that end in `_`.
//! Where the input goes is not followed, so a network may get a copy in vain, unless its statement is one of three
//! that common layers have and that cannot matter: see [`Function::is_harmless`].

use std::collections::HashSet;

use crate::signature::closing_bracket;

/// Operators that put a value into a list or a dictionary, which may be an attribute.
const STORING: [&str; 6] = ["append", "extend", "insert", "_set_item", "update", "setdefault"];

/// Operators of libtorch 2.13 that change an argument by their schema, and whose names do not say so. (Left out: what only
/// takes from a list, and optimisers.)
const UNMARKED: [&str; 11] = [
    "set_data",
    "rrelu_with_noise",
    "fused_moving_avg_obs_fake_quant",
    "_fused_moving_avg_obs_fq_helper",
    "_cummax_helper",
    "_cummin_helper",
    "_batch_norm_with_update",
    "_native_batch_norm_legit",
    "_flash_attention_forward_no_dropout_inplace",
    "fbgemm_linear_fp16_weight",
    "fbgemm_linear_fp16_weight_fp32_activation",
];

/// Named arguments that hold no tensor; others may be the place for a result, such as `out`.
const NO_TENSORS: [&str; 3] = ["dtype", "device", "layout"];

/// The first statement in `files` after which the input could be another or still be in use, if there is one.
pub fn reason_to_copy(files: &[String]) -> Option<String> {
    // Objects of C++ classes can do with a tensor as they please.
    let custom = |line: &&str| line.contains("__torch__.torch.classes.");
    let found = files.iter().flat_map(|file| file.lines()).find(custom).map(str::trim);
    let functions: Vec<_> = files.iter().flat_map(|file| Function::all(file)).collect();
    // Functions that write if told to, such as torch.nn.functional.dropout; harmless if nobody tells them to.
    let switched: HashSet<_> = functions.iter().filter_map(Function::with_inplace_switch).collect();
    let found = found.or_else(|| functions.iter().find_map(|function| function.finding(&switched)));
    found.map(str::to_owned)
}

/// The text of a function or method.
struct Function<'c> {
    /// From `def` to the line with the type of the result.
    header: Vec<&'c str>,
    body: Vec<&'c str>,
}

impl<'c> Function<'c> {
    fn all(code: &'c str) -> Vec<Self> {
        let mut functions: Vec<Self> = Vec::new();
        let (mut in_header, mut in_body) = (false, false);
        for line in code.lines() {
            // Deeper ones belong to the function around them.
            if line.starts_with("def ") || line.starts_with("  def ") {
                functions.push(Self { header: Vec::new(), body: Vec::new() });
                in_header = true;
            } else if line.starts_with("class ") {
                in_body = false;
            }
            if let (true, Some(function)) = (in_header || in_body, functions.last_mut()) {
                if in_header { &mut function.header } else { &mut function.body }.push(line);
            }
            if in_header && line.contains("->") && line.ends_with(':') {
                (in_header, in_body) = (false, true);
            }
        }
        functions
    }

    /// Its name, if it is no method and its last argument is the switch `inplace`.
    fn with_inplace_switch(&self) -> Option<&'c str> {
        let name = self.header.first()?.strip_prefix("def ")?.split('(').next()?;
        self.header.last()?.trim_start().starts_with("inplace: bool").then_some(name)
    }

    fn finding(&self, switched: &HashSet<&str>) -> Option<&'c str> {
        let at = (0..self.body.len()).find(|&at| {
            let line = self.body[at];
            assigns_attribute(line)
                || names_a_place(line)
                || calls(line).any(|call| call.changes() && !self.is_harmless(&call, at))
                || self.switches_on(line, switched)
        })?;
        Some(self.body[at].trim())
    }

    /// What common layers do without harm:
    /// - a list made here is added to: to be kept, it would have to go into an attribute;
    /// - a counter of the module's own is counted up (batch normalisation);
    /// - the switch `inplace` decides. Whether it is on, is told where the function is called.
    fn is_harmless(&self, call: &Call<'_>, at: usize) -> bool {
        let end = call.arguments.find([',', ')']).unwrap_or(0);
        let (receiver, rest) = call.arguments.split_at(end);
        let one_value = self.only_value(receiver);
        if STORING.contains(&call.name()) {
            return one_value.is_some_and(|value| {
                value.starts_with("annotate(") && (value.ends_with(", [])") || value.ends_with(", {})"))
            });
        }
        let counter = call.path == "torch.add_"
            && rest == ", 1)"
            && one_value.and_then(|value| value.strip_prefix("self.")) == Some(receiver);
        let switch = at.checked_sub(1).is_some_and(|before| self.body[before].trim() == "if inplace:");
        counter || switch && self.with_inplace_switch().is_some()
    }

    /// What the one assignment to a local variable assigns; `None` if there are more, or if it is an argument.
    fn only_value(&self, name: &str) -> Option<&'c str> {
        let mut definitions = self.body.iter().filter(|line| words(target(line)).any(|word| word == name));
        let value = definitions.next()?.trim().strip_prefix(name)?.strip_prefix(" = ")?;
        let argument = self.header.iter().any(|line| words(line).any(|word| word == name));
        (definitions.next().is_none() && !argument).then_some(value)
    }

    /// Whether `line` calls one of the `switched` functions, or gives it a name under which it is called, and the last
    /// argument is not plainly False.
    fn switches_on(&self, line: &str, switched: &HashSet<&str>) -> bool {
        let off = |call: &Call<'_>| {
            closing_bracket(call.arguments).is_some_and(|end| call.arguments[..end].ends_with(", False, "))
        };
        paths(line)
            .filter(|(path, _)| {
                path.starts_with("__torch__.")
                    && switched.contains(path.rsplit('.').next().unwrap_or_default())
            })
            .any(|(path, after)| match after.strip_prefix('(') {
                Some(arguments) => !off(&Call { path, arguments }),
                None => {
                    let alias = line.trim().strip_suffix(path).and_then(|line| line.strip_suffix(" = "));
                    alias.is_none_or(|alias| {
                        let mut all = self.body.iter().flat_map(|line| calls(line));
                        all.any(|call| call.path == alias && !off(&call))
                    })
                }
            })
    }
}

/// A call in a line of code: the name, and the text from behind the opening bracket.
struct Call<'c> {
    path: &'c str,
    arguments: &'c str,
}

impl Call<'_> {
    fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
    }

    /// Whether it may change or keep an argument. What the code in the file defines itself is looked at there.
    fn changes(&self) -> bool {
        let name = self.name();
        let operator = match name.strip_prefix("__i") {
            // Such as __iand__.
            Some(rest) => !matches!(rest, "s__" | "snot__" | "nit__"),
            None => name.ends_with('_') && !name.starts_with("__"),
        };
        let stores = self.path.starts_with("torch.") && (STORING.contains(&name) || UNMARKED.contains(&name));
        // These may run on when the call is over.
        let later = matches!(self.path, "fork" | "awaitable");
        let custom = self.path.starts_with("ops.") && !self.path.starts_with("ops.prim.");
        operator || stores || later || custom
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_word(c))
}

/// The names in `line`, with dots, and what follows each.
fn paths(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let text = &rest[rest.find(|c| is_word(c) || c == '.')?..];
        let end = text.find(|c| !is_word(c) && c != '.').unwrap_or(text.len());
        rest = &text[end..];
        Some((&text[..end], rest))
    })
}

fn calls(line: &str) -> impl Iterator<Item = Call<'_>> {
    paths(line).filter_map(|(path, after)| Some(Call { path, arguments: after.strip_prefix('(')? }))
}

/// What a line assigns to; empty if it does not assign.
fn target(line: &str) -> &str {
    let line = line.trim_start();
    match line.strip_prefix("for ") {
        Some(rest) => rest.split_once(" in ").map_or("", |(target, _)| target),
        None => line.split_once(" = ").map_or("", |(target, _)| target),
    }
}

/// `object.attribute = value`; not `variable: some.type = value`.
fn assigns_attribute(line: &str) -> bool {
    target(line).split(": ").next().is_some_and(|place| place.contains('.'))
}

/// Whether a named argument may be a tensor: where an operator has one, it is most often the place for its result.
fn names_a_place(line: &str) -> bool {
    paths(line).any(|(name, after)| {
        let value = after.strip_prefix('=').filter(|value| value.starts_with(|c| is_word(c) || c == '('));
        value.is_some_and(|value| {
            let word = words(value).next().unwrap_or_default();
            let constant = word.starts_with(|c: char| c.is_ascii_digit())
                || matches!(word, "None" | "True" | "False" | "inf" | "nan");
            !constant && !NO_TENSORS.contains(&name)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "  def forward(self: __torch__.Net,\n    x: Tensor,\n    given: List[int]) -> Tensor:\n";
    const DROPOUT: &str = "def dropout(input: Tensor,\n    p: float=0.5,\n    training: bool=True,\n    \
        inplace: bool=False) -> Tensor:\n  if inplace:\n    _8 = torch.dropout_(input, p, training)\n  else:\n    \
        _8 = torch.dropout(input, p, training)\n  return _8\n";

    fn method(body: &str) -> String {
        format!(
            "class Net(Module):\n  stride : Final[float] = 1.5\n  __annotations__[\"0\"] = __torch__.torch.nn.Conv3d\n\
             {HEADER}    {body}\n    return x\nclass Pair(NamedTuple):\n  a : Tensor\n"
        )
    }

    fn reason(body: &str) -> Option<String> {
        reason_to_copy(&[method(body)])
    }

    #[test]
    fn writes_and_keepers_are_found() {
        for line in [
            "_0 = torch.clamp_(x, 0., 1.)",
            "return torch.add_(x, 1)",
            "_0 = torch.relu(torch.add_(torch.select(x, 0, 0), 1))",
            "_0 = torch.__ior__(x, x)",
            "_0 = torch.rrelu_with_noise(y, x, 0.5, 0.5, True)",
            "_0 = torch.add(x, 1, out=x)",
            "_0 = torch.add(x, last, alpha=2, out=torch.select(x, 0, 0))",
            "_0, _1 = torch.sort(x, 0, values=x, indices=x)",
            "_0 = torch.append((t)[0], x)",
            "_0 = torch.append(given, 1)",
            "self.last = torch.view(x, [-1])",
            "_0.last = x",
            "getattr(subs, \"0\").last = x",
            "f = fork(__forked_function)",
            "_0 = ops.mine.store(x)",
            "object = __torch__.torch.classes.mine.Store.__new__()",
        ] {
            assert_eq!(reason(line).as_deref(), Some(line));
        }
        let free = "def keep(model: __torch__.Net,\n    x: Tensor) -> NoneType:\n  model.last = x\n";
        assert_eq!(reason_to_copy(&[method("pass"), free.to_owned()]).as_deref(), Some("model.last = x"));
    }

    #[test]
    fn stores_to_attributes_are_found_wherever_the_container_comes_from() {
        for store in [
            "_1 = torch.append(cache, torch.select(x, 0, 0))",
            "torch.extend(cache, [x])",
            "torch.insert(cache, 0, x)",
            "_1 = torch._set_item(cache, 0, x)",
            "torch.update(cache, {\"k\": x})",
            "_1 = torch.setdefault(cache, \"k\", x)",
        ] {
            let body = |value: &str| format!("{value}\n    {store}");
            assert_eq!(reason(&body("cache = self.cache")).as_deref(), Some(store));
            assert_eq!(reason(&body("cache = [self.cache][0]")).as_deref(), Some(store));
            let either =
                "if y:\n      cache = annotate(List[Tensor], [])\n    else:\n      cache = self.cache";
            assert_eq!(reason(&body(either)).as_deref(), Some(store));
            let each = "cache = annotate(List[Tensor], [])\n    for cache in lists:";
            assert_eq!(reason(&body(each)).as_deref(), Some(store));
            assert_eq!(reason(&body("cache = annotate(List[Tensor], [])")), None);
            assert_eq!(reason(&body("cache = annotate(Dict[str, Tensor], {})")), None);
        }
    }

    #[test]
    fn reading_is_no_reason() {
        for line in [
            "last = self.last",
            "y = torch.add(x, 1, alpha=2)",
            "y = torch.clamp(x, min=-1.5, max=None)",
            "y = torch.zeros([1], dtype=ops.prim.dtype(x), device=ops.prim.device(x))",
            "y: Optional[__torch__.Pair] = None",
            "ops.prim.RaiseException(torch.format(_1, x), \"builtins.ValueError\")",
            "if torch.__isnot__(x, None):",
            "return (model).forward(x, )",
            "_0 = (model).update(x, )",
        ] {
            assert_eq!(reason(line), None, "{line}");
        }
    }

    #[test]
    fn a_counter_of_the_modules_own_is_no_reason() {
        let count = "_2 = torch.add_(steps, 1)";
        for (value, harmless) in [
            ("steps = self.steps", true),
            ("steps = x", false),
            ("steps = torch.select(x, 0, 0)", false),
            ("steps = self.steps\n    steps = x", false),
            ("steps, y = self.steps, x", false),
        ] {
            let found = reason(&format!("{value}\n    {count}"));
            assert_eq!(found.as_deref(), (!harmless).then_some(count), "{value}");
        }
    }

    #[test]
    fn a_switch_for_writes_in_place_matters_only_where_it_is_on() {
        let function = "__torch__.torch.nn.functional.___torch_mangle_3.dropout";
        for (last, harmless) in [("False", true), ("True", false), ("inplace", false)] {
            let direct = format!("y = {function}(x, 0.5, training, {last}, )");
            let alias = format!("_0 = {function}\n    return _0(x, 0.5, training, {last}, )");
            let nested = format!("y = {function}(f(x, False, ), 0.5, training, {last}, )");
            for body in [direct, alias, nested] {
                let found = reason_to_copy(&[method(&body), DROPOUT.to_owned()]);
                assert_eq!(found.is_none(), harmless, "{body}: {found:?}");
            }
        }
        // Without the switch, or outside its branch, the same statement counts.
        let always = DROPOUT.replace("if inplace:", "if training:");
        assert_eq!(reason_to_copy(&[always]).as_deref(), Some("_8 = torch.dropout_(input, p, training)"));
    }
}
