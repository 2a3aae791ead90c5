//! Properties that hold for any input: the kernels, compiled for the host, give what the CPU gives.

use proptest::prelude::*;

use crate::cases::{self, Case};
use crate::host::Host;
use crate::on_host::{OnHost, any_host, check};

fn all_hold(host: &OnHost, cases: &[Case]) {
    cases.iter().for_each(|case| check(host, case));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn foreground(host in any_host(), cases in cases::foreground()) {
        all_hold(&host, &cases);
    }

    #[test]
    fn resize(host in any_host(), cases in cases::resize()) {
        all_hold(&host, &cases);
    }

    #[test]
    fn argmax(host in any_host(), cases in cases::argmax()) {
        all_hold(&host, &cases);
    }

    #[test]
    fn components_of_a_mask(host in any_host(), cases in cases::components_of_a_mask()) {
        all_hold(&host, &cases);
    }

    #[test]
    fn components_of_labels(host in any_host(), cases in cases::components_of_labels()) {
        all_hold(&host, &cases);
    }

    #[test]
    fn contours(host in any_host(), cases in cases::contours()) {
        all_hold(&host, &cases);
    }

    #[test]
    fn native(host in any_host(), cases in cases::native()) {
        all_hold(&host, &cases);
    }

    #[test]
    fn outputs(host in any_host(), cases in cases::outputs()) {
        all_hold(&host, &cases);
    }
}

#[test]
fn large_windows_are_summed_in_the_order_of_the_reference() {
    all_hold(&OnHost { host: Host::default(), skew: 0 }, &cases::large_windows());
}
