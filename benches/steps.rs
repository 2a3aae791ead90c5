//! Each step of the pipeline on the CPU beside its floor: the bytes that must move, at the speed of a copy.
//!
//! `cargo bench --bench steps`. Throughput is in those bytes, so it is to be read against `floor/memcpy`, which copies
//! INPUT0 on two threads. Every result is compared with the reference before it is timed.

// A benchmark that cannot set itself up has nothing to time.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use criterion::{
    BatchSize, BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use triton_fake_host as _; // defines the server's symbols, so that the executable links
use triton_spleenseg::config::PipelineConfig;
use triton_spleenseg::cpu::reference::Reference;
use triton_spleenseg::cpu::{Cpu, Input, Labels, Logits, Output, Threads};
use triton_spleenseg::native::Placement;
use triton_spleenseg::pipeline::{Device, Pipeline};
use triton_spleenseg::volume::{BoundingBox, LabelType, LogitType, Shape3, VoxelType};

const INPUT: [i64; 3] = [512, 512, 114];
const RESIZED: [i64; 3] = [224, 224, 224];

fn steps(criterion: &mut Criterion) {
    let (input_shape, shape) = (Shape3::new(INPUT).unwrap(), Shape3::new(RESIZED).unwrap());
    let (voxels, labels) = (input_shape.count() as u64, shape.count() as u64);
    let config = PipelineConfig::from_parameters(&BTreeMap::new()).unwrap();
    let (cpu, reference) = (Cpu::new(Threads::new(0).unwrap(), 1), Reference::default());

    let mut group = criterion.benchmark_group("floor");
    group.sample_size(20).throughput(Throughput::Bytes(2 * 4 * voxels));
    let volume = body(input_shape);
    let mut copy = vec![0; volume.len()];
    group.bench_function("memcpy", |bench| bench.iter(|| copy_on_two_threads(&volume, &mut copy)));
    group.finish();

    let input = Input::new(&volume, VoxelType::Fp32, input_shape).unwrap();
    let scale = config.intensity.in_float32();
    let mut group = criterion.benchmark_group("pre");
    group.sample_size(20).measurement_time(Duration::from_secs(5));
    let found = cpu.find_foreground(&input, &scale).unwrap();
    assert_eq!(found, reference.find_foreground(&input, &scale).unwrap());
    group.throughput(Throughput::Bytes(4 * voxels));
    group.bench_function("foreground", |bench| bench.iter(|| cpu.find_foreground(black_box(&input), &scale)));

    let pipeline = Pipeline::new(&config);
    let inputs = std::slice::from_ref(&input);
    let expected = pipeline.prepare(&reference, inputs).unwrap();
    let prepared = pipeline.prepare(&cpu, inputs).unwrap();
    let pairs = prepared[0].tensor.data().iter().zip(expected[0].tensor.data());
    assert!(pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) <= 1e-5);
    drop((prepared, expected));
    group.throughput(Throughput::Bytes(2 * 4 * voxels + 4 * labels));
    group.bench_function("foreground and resize", |bench| {
        bench.iter(|| pipeline.prepare(&cpu, inputs).unwrap())
    });
    group.finish();

    for (name, scores) in [("organ", organ(shape)), ("noise", noise(shape))] {
        let logits = Logits::new(&scores, LogitType::Fp32, 2, shape).unwrap();
        let mut group = criterion.benchmark_group(format!("post/{name}"));
        group.sample_size(20).measurement_time(Duration::from_secs(5));
        post(&mut group, &cpu, &reference, &config, &logits, input_shape);
        group.finish();
    }
}

fn post(
    group: &mut BenchmarkGroup<'_, WallTime>,
    cpu: &Cpu,
    reference: &Reference,
    config: &PipelineConfig,
    logits: &Logits<'_>,
    input_shape: Shape3,
) {
    let labels = logits.shape().count() as u64;
    let same = |a: &Labels, b: &Labels| assert!(a.data() == b.data(), "equal to the reference");
    let copy = |labels: &Labels| Labels::new(labels.data(), labels.shape()).unwrap();

    let classes = cpu.argmax(logits).unwrap().labels;
    same(&classes, &reference.argmax(logits).unwrap().labels);
    group.throughput(Throughput::Bytes(9 * labels));
    group.bench_function("argmax", |bench| bench.iter(|| cpu.argmax(black_box(logits)).unwrap()));

    let mask = cpu.keep_largest(copy(&classes), &config.keep).unwrap();
    same(&mask, &reference.keep_largest(copy(&classes), &config.keep).unwrap());
    group.throughput(Throughput::Bytes(labels));
    group.bench_function("components", |bench| {
        let run = |labels| cpu.keep_largest(labels, &config.keep).unwrap();
        bench.iter_batched(|| copy(&classes), run, BatchSize::PerIteration);
    });

    let whole = BoundingBox { start: [0; 3], end: INPUT };
    let placement = Placement { crop: whole, input_shape, align_corners: false };
    assert_eq!(cpu.count(&mask, &placement).unwrap(), reference.count(&mask, &placement).unwrap());
    group.throughput(Throughput::Bytes(labels));
    group.bench_function("count", |bench| bench.iter(|| cpu.count(black_box(&mask), &placement).unwrap()));

    let contour = cpu.contour(&mask).unwrap();
    same(&contour, &reference.contour(&mask).unwrap());
    group.throughput(Throughput::Bytes(2 * labels));
    group.bench_function("contour", |bench| bench.iter(|| cpu.contour(black_box(&mask)).unwrap()));

    let mut bytes = vec![0; mask.data().len() * LabelType::Fp32.size()];
    cpu.write(&mask, Output::new(&mut bytes, LabelType::Fp32)).unwrap();
    let written = bytes.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes));
    assert!(written.eq(mask.data().iter().map(|label| f32::from(*label))));
    group.throughput(Throughput::Bytes(5 * labels));
    group.bench_function("write", |bench| {
        bench.iter(|| cpu.write(black_box(&mask), Output::new(&mut bytes, LabelType::Fp32)).unwrap());
    });
}

fn copy_on_two_threads(from: &[u8], to: &mut [u8]) {
    let half = from.len() / 2;
    let (first, second) = to.split_at_mut(half);
    std::thread::scope(|scope| {
        scope.spawn(|| first.copy_from_slice(&from[..half]));
        second.copy_from_slice(&from[half..]);
    });
}

fn bytes(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(f32::to_ne_bytes).collect()
}

/// Air around an ellipse of soft tissue, in every slice.
fn body(shape: Shape3) -> Vec<u8> {
    let [h, w, d] = shape.dims();
    bytes((0..shape.count()).map(|at| {
        let (i, j) = ((at / (w * d)) as f32 / h as f32 - 0.5, (at / d % w) as f32 / w as f32 - 0.5);
        if (i / 0.35).powi(2) + (j / 0.45).powi(2) < 1.0 { 40.0 + (at % 7) as f32 } else { -1000.0 }
    }))
}

/// Scores of one ball.
fn organ(shape: Shape3) -> Vec<u8> {
    let [_, w, d] = shape.dims();
    let inside = move |at: usize| {
        let place = [at / (w * d), at / d % w, at % d];
        place.iter().zip([90.0, 130.0, 110.0]).map(|(at, centre)| (*at as f32 - centre).powi(2)).sum::<f32>()
            < 1600.0
    };
    bytes(
        (0..2).flat_map(|class| {
            (0..shape.count()).map(move |at| f32::from(u8::from(inside(at) == (class == 1))))
        }),
    )
}

/// Scores that say nothing: half of the voxels win, in very many pieces.
fn noise(shape: Shape3) -> Vec<u8> {
    let mut state = 1u64;
    bytes((0..2 * shape.count()).map(move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f32
    }))
}

criterion_group!(benches, steps);
criterion_main!(benches);
