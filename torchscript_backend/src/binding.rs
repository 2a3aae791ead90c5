//! Which argument of `forward()` each configured input is, and which of its results each output is.
//!
//! Names are read as Triton's own PyTorch backend reads them: an argument's name, or any text with `__` and the
//! position, such as INPUT__0; where a name is neither, the order of the configuration counts.

use triton_backend_api::{Error, Result};

use crate::signature::{Argument, ArgumentType, Results, Signature};

/// How `forward()` is called.
#[derive(Debug, PartialEq, Eq)]
pub enum Arguments {
    /// For each argument the index of the configured input; `None` passes the value None.
    Positional(Vec<Option<usize>>),
    /// The one argument is a dictionary: the inputs' names are its keys.
    Dictionary,
}

/// Where an output is found in what `forward()` returned.
#[derive(Debug, PartialEq, Eq)]
pub struct ResultAt {
    /// The key, where a dictionary is returned.
    pub key: String,
    /// The position; `None` where a dictionary is returned and the name has no number.
    pub index: Option<usize>,
}

/// One input of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct ConfigInput<'a> {
    pub name: &'a str,
    /// Requests may leave it out.
    pub optional: bool,
}

/// The number after `__` in names such as INPUT__0.
fn numbered(name: &str) -> Option<usize> {
    let (_, digits) = name.split_once("__")?;
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if all_digits { digits.parse().ok() } else { None }
}

/// Positions from names, or the order of the configuration when a name gives none. The flag says that it was the order.
fn positions(names: &[&str], position: impl Fn(&str) -> Option<usize>) -> (Vec<usize>, bool) {
    match names.iter().map(|name| position(name)).collect() {
        Some(positions) => (positions, false),
        None => ((0..names.len()).collect(), true),
    }
}

fn order_warning(what: &str, names: &[&str]) -> String {
    format!(
        "the {what} {} are not all named as in forward() or as {}__<position>: their order in the configuration counts",
        names.join(", "),
        what.trim_end_matches('s').to_ascii_uppercase()
    )
}

/// Binds the inputs; also a warning, if there is one to give.
pub fn bind_inputs(inputs: &[ConfigInput<'_>], signature: &Signature) -> Result<(Arguments, Option<String>)> {
    let arguments = &signature.arguments;
    if let [Argument { kind: ArgumentType::TensorDict, .. }] = &arguments[..] {
        return Ok((Arguments::Dictionary, None));
    }
    let names: Vec<&str> = inputs.iter().map(|input| input.name).collect();
    let by_name = |name: &str| arguments.iter().position(|argument| argument.name == name);
    let (bound, warning) = match names.iter().map(|name| by_name(name)).collect::<Option<Vec<_>>>() {
        Some(bound) => (bound, None),
        None => {
            let (bound, by_order) = positions(&names, numbered);
            (bound, by_order.then(|| order_warning("inputs", &names)))
        }
    };
    let accepted = || {
        let names: Vec<&str> = arguments.iter().map(|argument| argument.name.as_str()).collect();
        format!("forward({}) takes {} argument(s)", names.join(", "), names.len())
    };
    let mut slots = vec![None; bound.iter().max().map_or(0, |last| last + 1).min(arguments.len())];
    for (index, (input, position)) in inputs.iter().zip(bound).enumerate() {
        let Some(argument) = arguments.get(position) else {
            return Err(Error::invalid_arg(format!(
                "input {} stands for argument {position}, but {}",
                input.name,
                accepted()
            )));
        };
        if let ArgumentType::TensorDict | ArgumentType::Other(_) = &argument.kind {
            return Err(Error::unsupported(format!(
                "input {} stands for argument {} of forward(), which is no Tensor; accepted: Tensor, Optional[Tensor], or \
                 one Dict[str, Tensor] as the only argument",
                input.name, argument.name
            )));
        }
        if input.optional && argument.kind != ArgumentType::OptionalTensor {
            return Err(Error::invalid_arg(format!(
                "input {} is optional, but argument {} of forward() is not; accepted: Optional[Tensor]",
                input.name, argument.name
            )));
        }
        if slots[position].replace(index).is_some() {
            return Err(Error::invalid_arg(format!(
                "two inputs stand for argument {position} ({}) of forward(), the second is {}",
                argument.name, input.name
            )));
        }
    }
    for (position, argument) in arguments.iter().enumerate() {
        let unbound = slots.get(position).is_none_or(Option::is_none);
        // libtorch fills in defaults at the end of the list only.
        let may_stay_out = argument.kind == ArgumentType::OptionalTensor
            || (argument.has_default && position >= slots.len());
        if unbound && !may_stay_out {
            return Err(Error::invalid_arg(format!(
                "no input stands for argument {position} ({}) of forward(): name one {} or INPUT__{position}",
                argument.name, argument.name
            )));
        }
        // An Optional without a default has to be passed as None.
        if unbound && position >= slots.len() && !argument.has_default {
            slots.resize(position + 1, None);
        }
    }
    Ok((Arguments::Positional(slots), warning))
}

/// Binds the outputs; also a warning, if there is one to give.
pub fn bind_outputs(names: &[&str], signature: &Signature) -> Result<(Vec<ResultAt>, Option<String>)> {
    let at = |(name, index): (&&str, Option<usize>)| ResultAt { key: (*name).to_owned(), index };
    let elements = match &signature.results {
        Results::TensorDict => {
            return Ok((names.iter().map(|name| (name, numbered(name))).map(at).collect(), None));
        }
        Results::Tensor => Some(&["Tensor".to_owned()][..]),
        Results::Tuple(elements) => Some(&elements[..]),
        // How many there are only a call can tell.
        Results::TensorList | Results::Other(_) => None,
    };
    let (bound, by_order) = positions(names, numbered);
    for (name, &index) in names.iter().zip(&bound) {
        match elements.map(|elements| elements.get(index).map(String::as_str).ok_or(elements.len())) {
            None | Some(Ok("Tensor")) => {}
            Some(Ok(other)) => {
                return Err(Error::unsupported(format!(
                    "output {name} stands for result {index} of forward(), which is {other}; accepted: Tensor"
                )));
            }
            Some(Err(count)) => {
                return Err(Error::invalid_arg(format!(
                    "output {name} stands for result {index}, but forward() returns {count}"
                )));
            }
        }
    }
    let results = names.iter().zip(bound.into_iter().map(Some)).map(at).collect();
    Ok((results, by_order.then(|| order_warning("outputs", names))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(arguments: &[(&str, ArgumentType, bool)], results: Results) -> Signature {
        let arguments = arguments
            .iter()
            .map(|(name, kind, has_default)| Argument {
                name: (*name).into(),
                kind: kind.clone(),
                has_default: *has_default,
            })
            .collect();
        Signature { arguments, results, reason_to_copy: None }
    }

    fn two() -> Signature {
        signature(
            &[("image", ArgumentType::Tensor, false), ("scale", ArgumentType::Tensor, false)],
            Results::Tensor,
        )
    }

    fn inputs<'a>(names: &[&'a str]) -> Vec<ConfigInput<'a>> {
        names.iter().map(|name| ConfigInput { name, optional: false }).collect()
    }

    fn bound(names: &[&str], signature: &Signature) -> Vec<Option<usize>> {
        match bind_inputs(&inputs(names), signature).unwrap() {
            (Arguments::Positional(slots), _) => slots,
            (other, _) => panic!("{other:?}"),
        }
    }

    #[test]
    fn inputs_by_argument_name_by_number_and_by_order() {
        assert_eq!(bound(&["scale", "image"], &two()), [Some(1), Some(0)]);
        assert_eq!(bound(&["INPUT__1", "INPUT__0"], &two()), [Some(1), Some(0)]);
        assert_eq!(bound(&["first", "second"], &two()), [Some(0), Some(1)]);
        assert!(bind_inputs(&inputs(&["first", "second"]), &two()).unwrap().1.is_some());
        assert!(bind_inputs(&inputs(&["INPUT__0", "INPUT__1"]), &two()).unwrap().1.is_none());
    }

    #[test]
    fn inputs_that_do_not_fit_are_refused() {
        for (names, part) in [
            (&["image"][..], "scale"),
            (&["INPUT__0", "INPUT__2"], "INPUT__2"),
            (&["INPUT__0", "IN__0"], "IN__0"),
            (&["a", "b", "c"], "takes 2"),
            (&[], "image"),
            (&["INPUT__0", "INPUT__99999999999999999999999"], ""),
        ] {
            match bind_inputs(&inputs(names), &two()) {
                Err(error) => assert!(error.message().contains(part), "{names:?}: {error}"),
                Ok((slots, warning)) => assert!(part.is_empty() && warning.is_some(), "{names:?}: {slots:?}"),
            }
        }
        let list = signature(&[("xs", ArgumentType::Other("List[Tensor]".into()), false)], Results::Tensor);
        assert!(bind_inputs(&inputs(&["INPUT__0"]), &list).unwrap_err().message().contains("xs"));
    }

    #[test]
    fn optional_arguments_may_stay_unbound() {
        let optional = |has_default| {
            signature(
                &[
                    ("bias", ArgumentType::OptionalTensor, has_default),
                    ("x", ArgumentType::Tensor, false),
                    ("mask", ArgumentType::OptionalTensor, has_default),
                    ("k", ArgumentType::Other("float".into()), true),
                ],
                Results::Tensor,
            )
        };
        assert_eq!(bound(&["x"], &optional(true)), [None, Some(0)]);
        assert_eq!(bound(&["x"], &optional(false)), [None, Some(0), None]);
        assert_eq!(bound(&["mask", "x"], &optional(true)), [None, Some(1), Some(0)]);
        let may_be_missing = [ConfigInput { name: "x", optional: true }];
        assert!(bind_inputs(&may_be_missing, &optional(true)).unwrap_err().message().contains("optional"));
    }

    #[test]
    fn a_dictionary_takes_the_inputs_names() {
        let dictionary = signature(&[("features", ArgumentType::TensorDict, false)], Results::TensorDict);
        assert_eq!(bind_inputs(&inputs(&["a", "b"]), &dictionary).unwrap(), (Arguments::Dictionary, None));
    }

    #[test]
    fn outputs_by_number_by_order_and_by_key() {
        let tuple = signature(&[], Results::Tuple(vec!["Tensor".into(), "Tensor".into(), "int".into()]));
        let indices = |names: &[&str], signature: &Signature| {
            bind_outputs(names, signature)
                .map(|(bound, _)| bound.iter().map(|at| at.index.unwrap()).collect::<Vec<_>>())
        };
        assert_eq!(indices(&["OUTPUT__1", "OUTPUT__0"], &tuple).unwrap(), [1, 0]);
        assert_eq!(indices(&["OUTPUT__1"], &tuple).unwrap(), [1]);
        assert_eq!(indices(&["probability", "volume"], &tuple).unwrap(), [0, 1]);
        assert!(bind_outputs(&["probability", "volume"], &tuple).unwrap().1.is_some());
        assert!(indices(&["OUTPUT__2"], &tuple).unwrap_err().message().contains("int"));
        assert!(indices(&["OUTPUT__3"], &tuple).unwrap_err().message().contains("returns 3"));
        assert!(indices(&["OUTPUT__1"], &two()).unwrap_err().message().contains("returns 1"));
        let dictionary = signature(&[], Results::TensorDict);
        let (bound, warning) = bind_outputs(&["probability", "OUTPUT__1"], &dictionary).unwrap();
        let at = |key: &str, index| ResultAt { key: key.into(), index };
        assert_eq!((bound, warning), (vec![at("probability", None), at("OUTPUT__1", Some(1))], None));
    }
}
