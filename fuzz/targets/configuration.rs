//! A model's configuration: any JSON, and any text of a parameter, is accepted or refused with what is wrong.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use spleenseg_fuzz as _;
use triton_backend_api::{Error, ModelConfig};
use triton_spleenseg::config::{DEFAULTS, PipelineConfig};
use triton_spleenseg::volume::Shape3;

// The check of the declared tensors and the completion of what is not declared: the backend's own, no public part.
#[path = "../../src/interface.rs"]
#[allow(dead_code)]
mod interface;
use interface::{Interface, auto_complete};
use triton_spleenseg::{config, pipeline, volume};

fn says_what_is_wrong(error: &Error) {
    assert!(error.message().len() > 10, "{error:?}");
}

/// What holds for all that is accepted.
fn accepted(pipeline: &PipelineConfig) {
    let scale = pipeline.intensity.in_float32();
    assert!(scale.a_min.is_finite() && scale.a_span > 0.0 && scale.a_span.is_finite());
    assert!(scale.b.is_none_or(|(span, low)| span > 0.0 && span.is_finite() && low.is_finite()));
    assert!(!pipeline.intensity.clip || scale.lowest.is_some() || scale.highest.is_some());
    assert!(pipeline.crop.margin.iter().all(|&margin| margin >= 0));
    assert!(pipeline.resize.spatial_size.iter().flatten().all(|&size| size > 0));
    assert!(pipeline.max_in_flight > 0 && pipeline.limits.voxels > 0 && pipeline.limits.volumes > 0);
    assert!(!pipeline.segmentation.timeout.is_zero() && pipeline.segmentation.version != 0);
    assert!(!pipeline.segmentation.model.is_empty());
    if let Ok(crop) = Shape3::new([3, 4, 5])
        && let Err(error) = pipeline.resize.target(crop)
    {
        says_what_is_wrong(&error);
    }
    assert_eq!(pipeline.hash().len(), 16);
    // What identifies a configuration is itself a configuration, and identifies the same one.
    let written = pipeline.canonical();
    let model = &pipeline.segmentation;
    if ![&model.model, &model.input, &model.output].iter().any(|name| name.contains([';', '='])) {
        let again = written.split(';').filter_map(|entry| entry.split_once('='));
        let again: BTreeMap<_, _> = again.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        match PipelineConfig::from_parameters(&again) {
            Ok(again) => assert_eq!(again.canonical(), written),
            Err(error) => panic!("{written} is refused: {error}"),
        }
    }
}

fn parameters(given: &BTreeMap<String, String>) -> Option<PipelineConfig> {
    match PipelineConfig::from_parameters(given) {
        Ok(pipeline) => {
            accepted(&pipeline);
            Some(pipeline)
        }
        Err(error) => {
            says_what_is_wrong(&error);
            // One of the keys is to blame, and what is accepted is said.
            assert!(given.keys().any(|key| error.message().contains(key)), "{given:?}: {error}");
            None
        }
    }
}

fn whole(config: &ModelConfig) {
    let pipeline = parameters(&config.parameters());
    if let Err(error) = config.instance_groups() {
        says_what_is_wrong(&error);
    }
    if let Some(pipeline) = &pipeline
        && let Err(error) = Interface::new(config, pipeline)
    {
        says_what_is_wrong(&error);
    }
    match auto_complete(config) {
        Ok(Some(completed)) => {
            let completed = ModelConfig::from(completed);
            assert_eq!(auto_complete(&completed), Ok(None), "completing twice");
        }
        Ok(None) => {}
        Err(error) => says_what_is_wrong(&error),
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&form, rest)) = data.split_first() else { return };
    let Ok(text) = str::from_utf8(rest) else { return };
    match form % 4 {
        // A whole configuration, as the server hands it over.
        0 => match ModelConfig::from_json(text) {
            Ok(config) => whole(&config),
            Err(error) => says_what_is_wrong(&error),
        },
        // The shipped one with other parameters.
        1 => {
            let entries: serde_json::Map<_, _> =
                pairs(text).map(|(key, value)| (key.to_owned(), json!({"string_value": value}))).collect();
            let dims = [-1, -1, -1];
            let mask = json!({"name": "MASK", "data_type": "TYPE_UINT8", "dims": [1, 224, 224, 224]});
            let input = json!({"name": "INPUT0", "data_type": "TYPE_FP32", "dims": dims});
            let config = json!({"max_batch_size": 1, "input": [input], "output": [mask], "parameters": Value::Object(entries)});
            whole(&ModelConfig::from(config));
        }
        // Parameters alone: `key=value`, one a line.
        2 => drop(parameters(&pairs(text).map(|(key, value)| (key.to_owned(), value.to_owned())).collect())),
        // One parameter, chosen by a byte, of any text.
        _ => {
            let Some((&key, value)) = text.as_bytes().split_first() else { return };
            let (key, _) = DEFAULTS[usize::from(key) % DEFAULTS.len()];
            let value = String::from_utf8_lossy(value).into_owned();
            drop(parameters(&BTreeMap::from([(key.to_owned(), value)])));
        }
    }
});

fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| line.split_once('='))
}
