//! The command line.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use lexopt::prelude::*;

use crate::axes::Axes;

/// What `--help` prints.
pub const USAGE: &str = "\
Usage: spleenseg-cli SCAN.nii.gz MASK.nii.gz --model MODEL.pt [OPTION..]
Segments the spleen in a CT scan without a server, as the models spleen_seg_native and segmentation_3d would.

  --model FILE            the network: TorchScript from [1,1,D,H,W] to scores [1,C,D,H,W]
  --contour FILE          also writes the contour of the mask
  --axes RAS              the axis order that the network was trained with
  --set KEY=VALUE         a parameter of spleen_seg's config.pbtxt, such as a_min=-57; may be given again
  --network-set KEY=VALUE a parameter of segmentation_3d's config.pbtxt (default: MEMORY_FORMAT=channels_last_3d)
  -h, --help  -V, --version

Exit code: 0 done, also where no spleen was found; 1 this scan could not be segmented; 2 wrong arguments.";

/// What was asked for.
#[derive(Debug)]
pub enum Asked {
    Help,
    Version,
    Run(Arguments),
}

/// One scan to segment.
#[derive(Debug)]
pub struct Arguments {
    pub input: PathBuf,
    pub output: PathBuf,
    pub contour: Option<PathBuf>,
    pub model: PathBuf,
    pub axes: Axes,
    pub pipeline: BTreeMap<String, String>,
    pub network: BTreeMap<String, String>,
}

impl Arguments {
    /// Reads the arguments after the program's name.
    pub fn parse(given: impl IntoIterator<Item = OsString>) -> Result<Asked, String> {
        let mut parser = lexopt::Parser::from_args(given);
        let (mut files, mut model, mut contour) = (Vec::new(), None, None);
        let mut axes = Axes::RAS;
        let mut pipeline = BTreeMap::new();
        let mut network = BTreeMap::from([("MEMORY_FORMAT".to_owned(), "channels_last_3d".to_owned())]);
        while let Some(argument) = parser.next().map_err(said)? {
            match argument {
                Short('h') | Long("help") => return Ok(Asked::Help),
                Short('V') | Long("version") => return Ok(Asked::Version),
                Long("model") => model = Some(parser.value().map_err(said)?.into()),
                Long("contour") => contour = Some(nifti(parser.value().map_err(said)?)?),
                Long("axes") => axes = parser.value().map_err(said)?.parse_with(Axes::parse).map_err(said)?,
                Long("set") => put(&mut pipeline, &parser.value().map_err(said)?)?,
                Long("network-set") => put(&mut network, &parser.value().map_err(said)?)?,
                Value(file) => files.push(file),
                other => return Err(said(other.unexpected())),
            }
        }
        let [input, output] = <[OsString; 2]>::try_from(files).map_err(|found| {
            format!("found {} files, needed are a scan and a mask to write\n{USAGE}", found.len())
        })?;
        let model = model.ok_or_else(|| format!("--model is missing\n{USAGE}"))?;
        let (input, output) = (input.into(), nifti(output)?);
        Ok(Asked::Run(Self { input, output, contour, model, axes, pipeline, network }))
    }
}

fn said(error: lexopt::Error) -> String {
    error.to_string()
}

fn nifti(path: OsString) -> Result<PathBuf, String> {
    let path = PathBuf::from(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    match name.ends_with(".nii") || name.ends_with(".nii.gz") {
        true => Ok(path),
        false => Err(format!("{}: accepted for results are .nii and .nii.gz", path.display())),
    }
}

fn put(into: &mut BTreeMap<String, String>, given: &OsString) -> Result<(), String> {
    let text = given.to_string_lossy();
    let (key, value) = text.split_once('=').ok_or_else(|| format!("'{text}': needed is KEY=VALUE"))?;
    into.insert(key.to_owned(), value.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Asked, String> {
        Arguments::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn what_is_given_arrives() {
        let line = "ct.nii m.nii.gz --model n.pt --axes lps --set a_min=-100 --set mode=area --network-set INTRA_OP_THREAD_COUNT=2";
        let Ok(Asked::Run(found)) = parse(line) else { panic!() };
        assert_eq!(
            (found.input, found.output, found.model),
            ("ct.nii".into(), "m.nii.gz".into(), "n.pt".into())
        );
        assert_eq!(found.axes, Axes::parse("LPS").unwrap());
        assert_eq!(found.pipeline.get("a_min").map(String::as_str), Some("-100"));
        assert_eq!(found.network.len(), 2);
        assert!(matches!(parse("--help"), Ok(Asked::Help)) && matches!(parse("a b -V"), Ok(Asked::Version)));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, words) in [
            ("ct.nii", "found 1 files"),
            ("ct.nii m.nii", "--model is missing"),
            ("ct.nii m.png --model n.pt", "accepted for results are .nii and .nii.gz"),
            ("ct.nii m.nii --model n.pt --axes RAL", "RAL"),
            ("ct.nii m.nii --model n.pt --set a_min", "KEY=VALUE"),
            ("ct.nii m.nii --fast", "--fast"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }
}
