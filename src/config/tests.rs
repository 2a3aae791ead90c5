use super::*;

fn parse(given: &[(&str, &str)]) -> Result<PipelineConfig> {
    let given = given.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    PipelineConfig::from_parameters(&given)
}

/// The message of the error that this parameter causes.
fn refusal(given: &[(&str, &str)]) -> String {
    match parse(given) {
        Ok(config) => panic!("{given:?} was accepted: {config:?}"),
        Err(error) => {
            assert_eq!(error.code(), triton_backend_api::ErrorCode::InvalidArg);
            error.message().to_owned()
        }
    }
}

#[test]
fn no_parameters_give_the_contract() {
    let config = parse(&[]).unwrap();
    let intensity =
        ScaleIntensity { a_min: -57.0, a_max: 164.0, b_min: Some(0.0), b_max: Some(1.0), clip: true };
    assert_eq!(config.intensity, intensity);
    assert_eq!(config.crop, CropForeground { margin: [0; 3], allow_smaller: true, k_divisible: [1; 3] });
    assert_eq!(config.resize, Resize { spatial_size: [Some(224); 3], mode: ResizeMode::Area });
    let keep = KeepLargest {
        applied_labels: Some(vec![1]),
        independent: true,
        connectivity: Connectivity::Corners,
        num_components: 1,
    };
    assert_eq!(config.keep, keep);
    assert_eq!(config.segmentation.model, "segmentation_3d");
    assert_eq!(config.segmentation.version, -1);
    assert_eq!(config.segmentation.input, "INPUT__0");
    assert_eq!(config.segmentation.output, "OUTPUT__0");
    assert_eq!(config.segmentation.timeout, Duration::from_secs(300));
    assert_eq!(config.max_in_flight, 2);
    assert!(config.ignored.is_empty());
}

#[test]
fn defaults_written_out_are_the_defaults() {
    assert_eq!(parse(&DEFAULTS).unwrap(), parse(&[]).unwrap());
}

#[test]
fn lists_are_taken_with_and_without_brackets() {
    for text in ["96,-1,160", "[96, -1, 160]", "(96,0,160)", " [ 96 , -1 , 160 ] "] {
        assert_eq!(
            parse(&[("spatial_size", text)]).unwrap().resize.spatial_size,
            [Some(96), None, Some(160)]
        );
    }
    assert_eq!(parse(&[("spatial_size", "-1")]).unwrap().resize.spatial_size, [None; 3]);
    assert_eq!(parse(&[("margin", "4")]).unwrap().crop.margin, [4; 3]);
    assert_eq!(parse(&[("k_divisible", "[16,0,-1]")]).unwrap().crop.k_divisible, [16, 0, -1]);
    for (text, labels) in
        [("2", Some(vec![2])), ("[1, 2]", Some(vec![1, 2])), ("[]", Some(vec![])), ("", None), ("None", None)]
    {
        assert_eq!(parse(&[("applied_labels", text)]).unwrap().keep.applied_labels, labels);
    }
}

#[test]
fn values_of_every_other_kind() {
    let config = parse(&[
        ("b_min", ""),
        ("b_max", "None"),
        ("clip", "False"),
        ("mode", "trilinear"),
        ("align_corners", "True"),
        ("is_onehot", "false"),
        ("connectivity", "2"),
        ("segmentation_version", "3"),
        ("segmentation_timeout_s", "0.5"),
        ("EXECUTION_ENV_PATH", "/opt/env.tar.gz"),
        ("FORCE_CPU_ONLY_INPUT_TENSORS", "no"),
    ])
    .unwrap();
    assert_eq!((config.intensity.b_min, config.intensity.b_max, config.intensity.clip), (None, None, false));
    assert_eq!(config.resize.mode, ResizeMode::Trilinear { align_corners: true });
    assert_eq!(config.keep.connectivity, Connectivity::Edges);
    assert_eq!(config.segmentation.version, 3);
    assert_eq!(config.segmentation.timeout, Duration::from_millis(500));
    assert_eq!(config.ignored, ["EXECUTION_ENV_PATH", "FORCE_CPU_ONLY_INPUT_TENSORS"]);
    let plain = parse(&[("mode", "trilinear")]).unwrap();
    assert_eq!(plain.resize.mode, ResizeMode::Trilinear { align_corners: false });
}

#[test]
fn every_bad_value_names_key_value_and_what_is_accepted() {
    for (key, value) in [
        ("a_min", "low"),
        ("a_max", ""),
        ("a_min", "1e39"),
        ("b_min", "inf"),
        ("clip", "yes"),
        ("clip", "1"),
        ("margin", "-1"),
        ("margin", "1,2"),
        ("margin", "1.5"),
        ("margin", ""),
        ("margin", "2147483648"),
        ("allow_smaller", "None"),
        ("k_divisible", "[1,2,3,4]"),
        ("k_divisible", "two"),
        ("spatial_size", "224x224x224"),
        ("spatial_size", "[224, 224, 224"),
        ("spatial_size", "99999999999999999999"),
        ("mode", "bicubic"),
        ("mode", "AREA"),
        ("align_corners", "true"),
        ("align_corners", "false"),
        ("align_corners", "maybe"),
        ("applied_labels", "-1"),
        ("applied_labels", "spleen"),
        ("is_onehot", "true"),
        ("independent", ""),
        ("connectivity", "0"),
        ("connectivity", "4"),
        ("num_components", "-1"),
        ("num_components", "all"),
        ("segmentation_model", " "),
        ("segmentation_version", "0"),
        ("segmentation_version", "-2"),
        ("segmentation_input", ""),
        ("segmentation_output", ""),
        ("shadow_version", "0"),
        ("shadow_every", "0"),
        ("shadow_every", "-1"),
        ("shadow_timeout_s", "0"),
        ("segmentation_timeout_s", "0"),
        ("segmentation_timeout_s", "-3"),
        ("segmentation_timeout_s", "1e300"),
        ("segmentation_timeout_s", "1e-12"),
        ("max_in_flight", "0"),
        ("max_in_flight", "1025"),
    ] {
        let message = refusal(&[(key, value)]);
        for part in [&format!("\"{key}\""), &format!("\"{value}\""), "accepted"] {
            assert!(message.contains(part), "{message} lacks {part}");
        }
    }
}

#[test]
fn degenerate_ranges_show_both_values() {
    for (low, low_value, high, high_value) in [
        ("a_min", "10", "a_max", "10"),
        ("a_min", "20", "a_max", "10"),
        ("a_min", "NaN", "a_max", "10"),
        ("a_min", "-5", "a_max", "nan"),
        ("a_min", "0", "a_max", "1e-60"),
        ("a_min", "-3e38", "a_max", "3e38"),
        ("b_min", "1", "b_max", "0"),
        ("b_min", "1", "b_max", "1"),
        ("b_min", "NaN", "b_max", "1"),
    ] {
        let message = refusal(&[(low, low_value), (high, high_value)]);
        for part in [low, low_value, high, high_value, "accepted"] {
            assert!(message.contains(part), "{message} lacks {part}");
        }
    }
    let message = refusal(&[("b_min", ""), ("b_max", "")]);
    assert!(message.contains("\"clip\" is \"true\"") && message.contains("b_min"), "{message}");
}

#[test]
fn a_volume_too_large_to_address_is_refused_at_once() {
    let message = refusal(&[("spatial_size", "2147483647")]);
    assert!(message.contains("spatial_size") && message.contains("2147483647"), "{message}");
}

#[test]
fn unknown_keys_are_refused_with_all_known_ones_and_the_nearest() {
    let message = refusal(&[("a_mim", "1")]);
    assert!(message.contains("\"a_mim\"") && message.contains("did you mean \"a_min\"?"), "{message}");
    for (key, _) in DEFAULTS {
        assert!(message.contains(key), "{message} lacks {key}");
    }
    assert!(refusal(&[("Spatial_Size", "1")]).contains("did you mean \"spatial_size\"?"));
    assert!(!refusal(&[("temperature", "1")]).contains("did you mean"));
}

/// Keys and defaults as the tables of the documentation give them, row by row and in their order.
#[test]
fn the_tables_in_the_documentation_have_every_key_with_its_default() {
    let page = include_str!("../../docs/configuration.md");
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let mut documented = Vec::new();
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = row.split('|').collect();
        let (keys, defaults) = (quoted(cells[1]), quoted(cells[3]));
        if DEFAULTS.iter().any(|&(key, _)| keys[0] == key) {
            let none = defaults.is_empty() && cells[3].trim() == "None";
            let defaults = if none { vec![String::new()] } else { defaults };
            assert_eq!(keys.len(), defaults.len(), "{row}");
            documented.extend(keys.into_iter().zip(defaults));
        }
    }
    assert_eq!(documented, DEFAULTS.map(|(key, default)| (key.to_owned(), default.to_owned())));
}

#[test]
fn scaling_in_float32_rounds_differences_once() {
    let config = parse(&[("a_min", "0.1"), ("a_max", "0.3"), ("b_min", "-1"), ("clip", "false")]).unwrap();
    let scale = config.intensity.in_float32();
    assert_eq!((scale.a_min, scale.a_span), (0.1, (0.3_f64 - 0.1_f64) as f32));
    assert_eq!((scale.b, scale.lowest, scale.highest), (Some((2.0, -1.0)), None, None));
    let one_sided = parse(&[("b_max", "")]).unwrap().intensity.in_float32();
    assert_eq!((one_sided.b, one_sided.lowest, one_sided.highest), (None, Some(0.0), None));
}

#[test]
fn the_shipped_model_lists_every_key_with_its_default() {
    let shipped = include_str!("../../models/spleen_seg/config.pbtxt");
    let quoted = |line: &str| line.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let listed: Vec<_> =
        shipped.lines().filter(|line| line.starts_with("parameters {")).map(quoted).collect();
    assert_eq!(listed, DEFAULTS.map(|(key, default)| vec![key.to_owned(), default.to_owned()]));
}

#[test]
fn the_hash_is_that_of_the_values_that_decide_the_result() {
    let hash = |given: &[(&str, &str)]| parse(given).unwrap().hash();
    let shipped = hash(&[]);
    assert!(shipped.len() == 16 && shipped.bytes().all(|digit| digit.is_ascii_hexdigit()), "{shipped}");
    for same in [
        &DEFAULTS[..],
        &[("a_min", "-57.0"), ("spatial_size", "[224, 224, 224]"), ("connectivity", "3")],
        &[("threads", "7"), ("max_in_flight", "1"), ("segmentation_timeout_s", "2"), ("shadow_model", "old")],
    ] {
        assert_eq!(hash(same), shipped, "{same:?}");
    }
    let different = [
        ("a_min", "-56"),
        ("a_max", "165"),
        ("b_min", "0.1"),
        ("b_max", "2"),
        ("clip", "false"),
        ("margin", "0,0,1"),
        ("allow_smaller", "false"),
        ("k_divisible", "2"),
        ("spatial_size", "-1"),
        ("mode", "nearest"),
        ("applied_labels", ""),
        ("independent", "false"),
        ("connectivity", "1"),
        ("num_components", "2"),
        ("segmentation_model", "other"),
        ("segmentation_version", "2"),
        ("segmentation_input", "x"),
        ("segmentation_output", "y"),
    ];
    let mut hashes: Vec<_> = different.iter().map(|&parameter| hash(&[parameter])).collect();
    hashes
        .extend(["true", "false"].map(|corners| hash(&[("mode", "trilinear"), ("align_corners", corners)])));
    hashes.push(shipped);
    let count = hashes.len();
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), count, "two of them have the same hash");
}

#[test]
fn a_shadow_model_is_one_that_is_named() {
    assert_eq!(parse(&[]).unwrap().shadow, None);
    for none in ["", " ", "None"] {
        assert_eq!(parse(&[("shadow_model", none), ("shadow_every", "7")]).unwrap().shadow, None);
    }
    let shadow =
        ShadowModel { model: "old".to_owned(), version: -1, every: 100, timeout: Duration::from_secs(300) };
    assert_eq!(parse(&[("shadow_model", "old")]).unwrap().shadow, Some(shadow.clone()));
    let given = [
        ("shadow_model", "old"),
        ("shadow_version", "2"),
        ("shadow_every", "1"),
        ("shadow_timeout_s", "0.5"),
    ];
    let timeout = Duration::from_millis(500);
    assert_eq!(parse(&given).unwrap().shadow, Some(ShadowModel { version: 2, every: 1, timeout, ..shadow }));
}
