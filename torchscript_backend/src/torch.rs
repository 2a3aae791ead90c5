//! A loaded network, and libtorch's switches.

use std::fmt::Display;
use std::path::Path;
use std::sync::OnceLock;

use tch::{Cuda, Device, Kind, TchError, Tensor, jit};
use triton_backend_api::Result;

use crate::config::{MemoryFormat, Settings};
use crate::device;
use crate::libtorch::{Autocast, Content, Lent, Module, Value, set_interop_threads};
use crate::torch_error::{torch_error, traceback};

/// A module loaded on a device.
pub struct Network {
    module: Module,
    device: Device,
    memory_format: MemoryFormat,
    autocast: Option<Kind>,
}

impl Network {
    /// Loads the file at `path` to `device`, and gives its 5-D parameters the strides of the memory format.
    pub fn load(path: &Path, settings: &Settings, device: Device) -> Result<Self> {
        let &Settings { memory_format, autocast, .. } = settings;
        let _no_grad = tch::no_grad_guard();
        let load = || {
            let module = Module::load(path, device)?;
            if memory_format == MemoryFormat::ChannelsLast3d {
                for mut parameter in module.parameters()? {
                    if let Some(reordered) = channels_last(&parameter)? {
                        parameter.f_set_data(&reordered)?;
                    }
                }
            }
            device::settle(device)?;
            Ok(Self { module, device, memory_format, autocast })
        };
        load().map_err(|error| {
            torch_error(error)
                .context(format!("libtorch cannot load the TorchScript file {}", path.display()))
        })
    }

    /// Where its weights lie.
    pub fn device(&self) -> Device {
        self.device
    }

    /// `input` as the module should get it. A single channel is channels-last already, with other strides.
    pub fn prepare<'a>(&self, input: Lent<'a>) -> Result<Lent<'a>> {
        match (self.memory_format, &input.tensor().size()[..]) {
            (MemoryFormat::ChannelsLast3d, &[_, 1, depth, height, width]) => {
                let strides = channels_last_strides(1, [depth, height, width]);
                input.restrided(&strides).map_err(torch_error)
            }
            _ => Ok(input),
        }
    }

    /// Calls `forward()`, and waits until the results are there. The error is libtorch's message; `trace` hears where in
    /// the model's code it arose.
    pub fn forward(&self, arguments: &[Value], trace: impl FnOnce(&str)) -> Result<Content> {
        let _no_grad = tch::no_grad_guard();
        let autocast = self.autocast.map(|kind| Autocast::new(kind, self.device));
        let returned = self.module.forward(arguments);
        drop(autocast);
        let settled = device::settle(self.device);
        let returned = returned.map_err(|error| {
            trace(&traceback(&error));
            torch_error(error)
        })?;
        settled.map(|()| returned).map_err(torch_error)
    }

    /// Whether a result of the type `found` can stand for an output of the type `wanted`. What autocast left in half
    /// precision is converted.
    pub fn converts(&self, found: Kind, wanted: Kind) -> bool {
        let floating = |kind| matches!(kind, Kind::Float | Kind::Double | Kind::Half | Kind::BFloat16);
        found == wanted || (self.autocast == Some(found) && floating(wanted))
    }
}

/// Strides of a shape whose channels vary fastest in memory.
fn channels_last_strides(channels: i64, [depth, height, width]: [i64; 3]) -> [i64; 5] {
    let row = channels * width;
    [row * height * depth, 1, row * height, row, channels]
}

/// The 5-D tensor with the same values and shape, channels varying fastest in memory; `None` for other tensors.
fn channels_last(tensor: &Tensor) -> Result<Option<Tensor>, TchError> {
    let shape = tensor.size();
    let &[_, channels, depth, height, width] = &shape[..] else { return Ok(None) };
    let strides = channels_last_strides(channels, [depth, height, width]);
    let mut reordered = Tensor::f_empty_strided(&shape[..], strides, (tensor.f_kind()?, tensor.device()))?;
    reordered.f_copy_(tensor)?;
    Ok(Some(reordered))
}

/// Sets what libtorch keeps for each thread; called on the thread that will call `forward()`.
pub fn set_thread_options(settings: &Settings) -> Result<()> {
    static DEFAULT_THREADS: OnceLock<i32> = OnceLock::new();
    let default = *DEFAULT_THREADS.get_or_init(tch::get_num_threads);
    let wanted = settings.intra_op_threads.unwrap_or(default);
    if tch::get_num_threads() != wanted {
        tch::set_num_threads(wanted);
    }
    jit::f_set_graph_executor_optimize(settings.optimized_execution).map_err(torch_error)
}

/// Sets what libtorch keeps once for the whole process: the first model to name a value decides. Returns a line for
/// each value that came too late or that libtorch refused.
pub fn set_process_options(settings: &Settings) -> Vec<String> {
    static INTER_OP: OnceLock<(i32, Result<()>)> = OnceLock::new();
    static PROFILING: OnceLock<(bool, Result<()>)> = OnceLock::new();
    static FUSER: OnceLock<(bool, Result<()>)> = OnceLock::new();
    static CUDNN: OnceLock<(bool, Result<()>)> = OnceLock::new();
    let disable_cudnn = |off: bool| {
        Cuda::set_user_enabled_cudnn(!off);
        Ok(())
    };
    [
        once("INTER_OP_THREAD_COUNT", settings.inter_op_threads, &INTER_OP, set_interop_threads),
        once("ENABLE_JIT_PROFILING", settings.jit_profiling, &PROFILING, jit::f_set_profiling_mode),
        once("ENABLE_TENSOR_FUSER", settings.tensor_fuser, &FUSER, jit::f_set_tensor_expr_fuser_enabled),
        once("DISABLE_CUDNN", settings.disable_cudnn, &CUDNN, disable_cudnn),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn once<T: Copy + PartialEq + Display>(
    key: &str,
    wanted: Option<T>,
    first: &OnceLock<(T, Result<()>)>,
    set: impl FnOnce(T) -> Result<(), TchError>,
) -> Option<String> {
    let wanted = wanted?;
    match first.get_or_init(|| (wanted, set(wanted).map_err(torch_error))) {
        (_, Err(error)) => Some(format!("parameter {key} has no effect: {error}")),
        (set, Ok(())) if *set != wanted => Some(format!(
            "parameter {key} is {wanted}, but holds for the whole process and is {set} since an earlier load"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{noise, write_module};
    use tch::Kind;

    fn network(forward: &str) -> Network {
        let folder = tempfile::tempdir().unwrap();
        write_module(folder.path(), forward, &[]);
        Network::load(&folder.path().join("model.pt"), &Settings::default(), Device::Cpu).unwrap()
    }

    fn call(forward: &str, input: &[f32]) -> Result<Content> {
        network(forward).forward(&[Value::tensor(&Tensor::from_slice(input)).unwrap()], |_| ())
    }

    fn values(tensor: &Tensor) -> Vec<f32> {
        tensor.to_kind(Kind::Float).reshape([-1]).try_into().unwrap()
    }

    #[test]
    fn tensor_tuple_list_and_dictionary_are_unpacked() {
        let first = |content: &Content| match content {
            Content::Tensor(tensor) => values(tensor)[0],
            other => panic!("{other:?}"),
        };
        assert_eq!(first(&call("x: Tensor) -> Tensor:\n    return torch.mul(x, 2)", &[1.0]).unwrap()), 2.0);
        for (body, expected) in [
            ("x: Tensor) -> Tuple[Tensor, Tensor]:\n    return (torch.mul(x, 2), x)", &[2.0, 1.0][..]),
            ("x: Tensor) -> List[Tensor]:\n    return [torch.mul(x, 2), x, x]", &[2.0, 1.0, 1.0]),
        ] {
            match call(body, &[1.0]).unwrap() {
                Content::Sequence(values) => {
                    assert_eq!(values.iter().map(first).collect::<Vec<_>>(), expected)
                }
                other => panic!("{other:?}"),
            }
        }
        let dictionary =
            "x: Tensor) -> Dict[str, Tensor]:\n    return {\"twice\": torch.mul(x, 2), \"same\": x}";
        match call(dictionary, &[3.0]).unwrap() {
            Content::Dictionary(entries) => {
                let found: Vec<_> = entries.iter().map(|(key, value)| (key.as_str(), first(value))).collect();
                assert_eq!(found, [("twice", 6.0), ("same", 3.0)]);
            }
            other => panic!("{other:?}"),
        }
        for (body, name) in [
            ("int:\n    return 3", "int"),
            ("float:\n    return 0.5", "float"),
            ("str:\n    return \"text\"", "str"),
            ("List[int]:\n    return [1]", "another type"),
            ("Dict[int, Tensor]:\n    return {1: x}", "keys other than str"),
            ("Device:\n    return ops.prim.device(x)", "another type"),
        ] {
            match call(&format!("x: Tensor) -> {body}"), &[1.0]).unwrap() {
                Content::Other(found) => assert!(found.contains(name), "{body}: {found}"),
                other => panic!("{body}: {other:?}"),
            }
        }
    }

    #[test]
    fn an_exception_is_an_error_with_its_message_alone() {
        let error = call("x: Tensor) -> Tensor:\n    return torch.matmul(x, torch.zeros([7]))", &[1.0, 2.0])
            .unwrap_err();
        assert!(error.message().contains("2") && error.message().contains("7"), "{error}");
        assert!(!error.message().contains("Traceback") && !error.message().contains("frame #"), "{error}");
        let raised = "x: Tensor) -> Tensor:\n    ops.prim.RaiseException(\"too small\", \"builtins.ValueError\")\n    return x";
        let error = call(raised, &[1.0]).unwrap_err();
        assert!(error.message().ends_with("too small") && !error.message().contains("Traceback"), "{error}");
    }

    #[test]
    fn a_file_that_libtorch_refuses_is_named() {
        let path = std::env::temp_dir().join("no-such-folder/model.pt");
        let error = Network::load(&path, &Settings::default(), Device::Cpu).err().unwrap();
        assert!(
            error.message().contains("no-such-folder") && !error.message().contains("frame #"),
            "{error}"
        );
    }

    #[test]
    fn channels_last_changes_strides_and_no_result() {
        let folder = tempfile::tempdir().unwrap();
        let conv = "x: Tensor) -> Tensor:\n    weight = self.weight\n    bias = self.bias\n    \
            return torch.conv3d(x, weight, bias, [1, 1, 1], [1, 1, 1])";
        let parameters: [(&str, &[i64], _); 2] =
            [("weight", &[6, 1, 3, 3, 3], noise(6 * 27)), ("bias", &[6], noise(6))];
        write_module(folder.path(), conv, &parameters);
        let shape = [2, 1, 5, 6, 7];
        let bytes: Vec<u8> = noise(420).into_iter().flat_map(f32::to_le_bytes).collect();
        let results: Vec<Vec<f32>> = [MemoryFormat::Contiguous, MemoryFormat::ChannelsLast3d]
            .into_iter()
            .map(|format| {
                let settings = Settings { memory_format: format, ..Settings::default() };
                let network = Network::load(&folder.path().join("model.pt"), &settings, Device::Cpu).unwrap();
                let weight = &network.module.parameters().unwrap()[0];
                assert_eq!(weight.stride()[1], if format == MemoryFormat::Contiguous { 27 } else { 1 });
                let input = network.prepare(Lent::over(&bytes, &shape, Kind::Float).unwrap()).unwrap();
                assert_eq!(
                    input.tensor().data_ptr() as usize,
                    bytes.as_ptr() as usize,
                    "the input was copied"
                );
                match network.forward(&[Value::tensor(input.tensor()).unwrap()], |_| ()).unwrap() {
                    Content::Tensor(tensor) => {
                        assert_eq!(tensor.size(), [2, 6, 5, 6, 7]);
                        assert_eq!(tensor.stride()[1] == 1, format == MemoryFormat::ChannelsLast3d);
                        values(&tensor)
                    }
                    other => panic!("{other:?}"),
                }
            })
            .collect();
        let worst =
            results[0].iter().zip(&results[1]).map(|(one, two)| (one - two).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-5, "{worst}");
    }

    #[test]
    fn autocast_is_for_one_call_and_for_what_gains_by_it() {
        let folder = tempfile::tempdir().unwrap();
        let conv = "x: Tensor) -> Tuple[Tensor, Tensor]:\n    weight = self.weight\n    \
            y = torch.conv3d(x, weight, None, [1, 1, 1], [1, 1, 1])\n    return (y, torch.mul(x, 2))";
        write_module(folder.path(), conv, &[("weight", &[2, 1, 3, 3, 3], noise(54))]);
        let input = Tensor::from_slice(&noise(120)).reshape([1, 1, 4, 5, 6]);
        let call = |autocast| {
            let settings = Settings { autocast, ..Settings::default() };
            let network = Network::load(&folder.path().join("model.pt"), &settings, Device::Cpu).unwrap();
            match network.forward(&[Value::tensor(&input).unwrap()], |_| ()).unwrap() {
                Content::Sequence(results) => match &results[..] {
                    [Content::Tensor(conv), Content::Tensor(twice)] => {
                        ((conv.kind(), twice.kind()), values(conv))
                    }
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            }
        };
        let (kinds, exact) = call(None);
        assert_eq!(kinds, (Kind::Float, Kind::Float));
        for (kind, epsilon) in [(Kind::BFloat16, 1.0 / 256.0), (Kind::Half, 1.0 / 2048.0)] {
            let (kinds, rounded) = call(Some(kind));
            assert_eq!(kinds, (kind, Kind::Float));
            let worst = exact.iter().zip(&rounded).map(|(one, two)| (one - two).abs()).fold(0.0, f32::max);
            assert!(worst > 0.0 && worst < 27.0 * 3.0 * epsilon, "{kind:?}: {worst}");
            assert_eq!(call(None), ((Kind::Float, Kind::Float), exact.clone()), "after {kind:?}");
        }
    }

    #[test]
    fn only_autocast_converts_results() {
        let folder = tempfile::tempdir().unwrap();
        write_module(folder.path(), "x: Tensor) -> Tensor:\n    return x", &[]);
        let network = |autocast| {
            let settings = Settings { autocast, ..Settings::default() };
            Network::load(&folder.path().join("model.pt"), &settings, Device::Cpu).unwrap()
        };
        let (off, on) = (network(None), network(Some(Kind::BFloat16)));
        for (found, wanted, converts) in [
            (Kind::Float, Kind::Float, [true, true]),
            (Kind::BFloat16, Kind::Float, [false, true]),
            (Kind::Half, Kind::Float, [false, false]),
            (Kind::BFloat16, Kind::Int, [false, false]),
        ] {
            let found = [&off, &on].map(|network| network.converts(found, wanted));
            assert_eq!(found, converts, "{wanted:?}");
        }
    }

    #[test]
    fn threads_are_the_models_own() {
        let with = |threads| Settings { intra_op_threads: threads, ..Settings::default() };
        set_thread_options(&with(None)).unwrap();
        let default = tch::get_num_threads();
        set_thread_options(&with(Some(default + 1))).unwrap();
        assert_eq!(tch::get_num_threads(), default + 1);
        set_thread_options(&with(None)).unwrap();
        assert_eq!(tch::get_num_threads(), default);
    }

    #[test]
    fn the_first_value_for_the_process_stands() {
        let with = |threads| Settings { inter_op_threads: Some(threads), ..Settings::default() };
        let before = tch::get_num_interop_threads();
        assert_eq!(set_process_options(&with(before + 1)), [""; 0]);
        assert_eq!(tch::get_num_interop_threads(), before + 1);
        let lines = set_process_options(&with(before + 2));
        assert!(matches!(&lines[..], [line] if line.contains("INTER_OP_THREAD_COUNT")), "{lines:?}");
        assert_eq!(tch::get_num_interop_threads(), before + 1);
        assert!(set_interop_threads(before + 3).is_err(), "libtorch allows it once");
    }
}
