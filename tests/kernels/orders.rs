//! Masks that are hard for a search for components, in several block shapes and orders.

use triton_spleenseg::config::{Connectivity, KeepLargest};
use triton_spleenseg::volume::Shape3;

use crate::cases::{Case, Map, components_of_every_pattern, contours_of_every_pattern};
use crate::on_host::{check, hosts};
use crate::patterns::{all, mask};

/// Shapes around the 32 voxels of a word.
fn shapes() -> [Shape3; 4] {
    [[13, 13, 37], [9, 9, 64], [5, 7, 97], [24, 24, 3]].map(|dims| Shape3::new(dims).unwrap())
}

#[test]
fn components_of_every_pattern_in_every_order() {
    let mut hosts = hosts().cycle();
    for case in shapes().into_iter().flat_map(components_of_every_pattern) {
        check(&hosts.next().unwrap(), &case);
    }
}

#[test]
fn noise_and_spirals_in_all_orders() {
    let shape = Shape3::new([11, 13, 45]).unwrap();
    for (name, pattern) in all(shape) {
        if !["noise at 50 %", "noise at 15 %", "spirals", "serpentine of planes"].contains(&name) {
            continue;
        }
        let map = Map { data: mask(shape, 11, pattern), shape };
        for host in hosts() {
            for num_components in [1, 4] {
                let connectivity = Connectivity::Corners;
                let keep =
                    KeepLargest { applied_labels: None, independent: true, connectivity, num_components };
                check(&host, &Case::KeepLargest { map: map.clone(), keep });
            }
        }
    }
}

#[test]
fn contours_of_every_pattern_in_several_orders() {
    for (shape, host) in shapes().into_iter().zip(hosts()) {
        contours_of_every_pattern(shape).for_each(|case| check(&host, &case));
    }
}
