//! A network without a server, loaded and called as the backend does it: what `spleenseg-cli` runs.

use std::path::Path;

use tch::{Device, Kind};
use triton_backend_api::{Error, HostMemory, Result};

use crate::config::Settings;
use crate::libtorch::{Content, Lent, Value, copy_out};
use crate::torch::{Network, set_process_options, set_thread_options};
use crate::torch_error::torch_error;

/// A TorchScript network from `[1,1,D,H,W]` to scores `[1,C,D,H,W]`. It runs on the thread that loaded it.
pub struct SegmentationNetwork(Network);

/// The scores of one volume: a volume for each class, in C order and native byte order.
pub struct Scores {
    /// Their bytes.
    pub bytes: HostMemory,
    /// How many classes there are.
    pub classes: usize,
    /// FP16 instead of FP32.
    pub half: bool,
}

impl SegmentationNetwork {
    /// Loads a TorchScript file. `parameters` are those of the network's `config.pbtxt`, such as `MEMORY_FORMAT`.
    pub fn load<'a>(path: &Path, parameters: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self> {
        let (settings, _) = Settings::parse(parameters)?;
        set_thread_options(&settings)?;
        if let Some(refused) = set_process_options(&settings).into_iter().next() {
            return Err(Error::invalid_arg(refused));
        }
        Network::load(path, &settings, Device::Cpu).map(Self)
    }

    /// The scores of one volume, FP32 in C order and native byte order.
    pub fn segment(&self, volume: &[u8], size: [usize; 3]) -> Result<Scores> {
        let [depth, height, width] = size.map(|n| n as i64);
        let shape = [1, 1, depth, height, width];
        let input = Lent::over(volume, &shape, Kind::Float).map_err(torch_error)?;
        let input = self.0.prepare(input)?;
        let argument = Value::tensor(input.tensor()).map_err(torch_error)?;
        let mut content = self.0.forward(&[argument], |_| ())?;
        if let Content::Sequence(values) = content {
            content = values.into_iter().next().unwrap_or(Content::Other("an empty sequence"));
        }
        let Content::Tensor(scores) = content else {
            return Err(Error::unsupported(format!(
                "the network answered {content:?}; accepted is a tensor, or a sequence that begins with one"
            )));
        };
        let half = match scores.f_kind().map_err(torch_error)? {
            Kind::Float => false,
            Kind::Half => true,
            other if self.0.converts(other, Kind::Float) => false,
            other => {
                return Err(Error::unsupported(format!(
                    "the network's scores are {other:?}; accepted are FP32 and FP16"
                )));
            }
        };
        let found = scores.size();
        let classes = match found[..] {
            [1, classes, d, h, w] if [d, h, w] == [depth, height, width] && classes > 0 => classes as usize,
            _ => {
                return Err(Error::internal(format!(
                    "the network's scores have the shape {found:?}; needed is [1,C,{depth},{height},{width}]"
                )));
            }
        };
        let kind = if half { Kind::Half } else { Kind::Float };
        let mut bytes = HostMemory::zeroed(scores.numel() * kind.elt_size_in_bytes())?;
        copy_out(&scores, kind, bytes.as_mut_slice()).map_err(torch_error)?;
        Ok(Scores { bytes, classes, half })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::write_module;

    fn segment(forward: &str) -> Result<Scores> {
        segment_with(forward, [])
    }

    fn segment_with<const N: usize>(forward: &str, parameters: [(&str, &str); N]) -> Result<Scores> {
        let folder = tempfile::tempdir().unwrap();
        write_module(folder.path(), forward, &[]);
        let network = SegmentationNetwork::load(&folder.path().join("model.pt"), parameters)?;
        let volume: Vec<u8> = (0..24u8).flat_map(|v| f32::from(v).to_le_bytes()).collect();
        network.segment(&volume, [2, 3, 4])
    }

    #[test]
    fn scores_are_the_networks_in_c_order() {
        let scores = segment("x: Tensor) -> Tensor:\n    return torch.cat([torch.mul(x, 2), x], 1)").unwrap();
        assert_eq!((scores.classes, scores.half), (2, false));
        let expected: Vec<f32> =
            (0..24u8).map(|v| 2.0 * f32::from(v)).chain((0..24u8).map(f32::from)).collect();
        assert_eq!(scores.bytes.elements::<f32>(), expected);
        let half = segment("x: Tensor) -> Tensor:\n    return x.to(5)").unwrap();
        assert!(half.half && half.bytes.as_slice().len() == 48);
    }

    #[test]
    fn autocast_leaves_scores_that_the_pipeline_takes() {
        let matmul = "x: Tensor) -> Tensor:\n    return torch.matmul(x, torch.ones([4, 4]))";
        for (value, half) in [("off", false), ("bfloat16", false), ("float16", true)] {
            let scores = segment_with(matmul, [("AUTOCAST", value)]).unwrap();
            let size = if half { 48 } else { 96 };
            assert_eq!((scores.half, scores.bytes.as_slice().len()), (half, size), "{value}");
        }
    }

    #[test]
    fn what_is_no_segmentation_is_refused() {
        for (forward, words) in [
            ("x: Tensor) -> Tensor:\n    return torch.reshape(x, [1, 1, 4, 3, 2])", "needed is [1,C,2,3,4]"),
            ("x: Tensor) -> Tensor:\n    return torch.gt(x, 1)", "accepted are FP32 and FP16"),
            ("x: Tensor) -> int:\n    return 3", "accepted is a tensor"),
        ] {
            let error = segment(forward).err().unwrap();
            assert!(error.message().contains(words), "{error}");
        }
        let wrong = SegmentationNetwork::load(Path::new("nowhere.pt"), [("MEMORY_FORMAT", "odd")]);
        assert!(wrong.err().unwrap().message().contains("channels_last_3d"));
    }
}
