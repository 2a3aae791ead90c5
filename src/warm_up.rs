//! Which requests are the model's own warm-up.
//!
//! Triton does not mark them. It sends `model_warmup` to an instance while it makes it, before anybody else's request can
//! reach that instance: so they are the first ones that it gets, as many as the configuration says.

use std::sync::atomic::{AtomicU64, Ordering};

use triton_backend_api::ModelConfig;

/// How many warm-up requests each instance of a model gets: each sample `count` times, which is at least once, and
/// `batch_size` requests each time.
pub fn requests(config: &ModelConfig) -> u64 {
    let samples = config.json()["model_warmup"].as_array().map_or(&[][..], Vec::as_slice);
    let number = |sample: &serde_json::Value, key: &str| sample[key].as_u64().unwrap_or_default();
    samples
        .iter()
        .map(|sample| number(sample, "count").max(1).saturating_mul(number(sample, "batch_size")))
        .fold(0, u64::saturating_add)
}

/// The warm-up requests that an instance has still to get.
pub struct WarmUp {
    left: AtomicU64,
}

impl WarmUp {
    /// Of an instance that gets so many.
    pub fn new(requests: u64) -> Self {
        Self { left: AtomicU64::new(requests) }
    }

    /// Whether the request that just came is one of them. To be asked once for each request.
    pub fn is_next(&self) -> bool {
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(warm_ups: &str) -> u64 {
        requests(&ModelConfig::from_json(&format!(r#"{{ "name": "m"{warm_ups} }}"#)).unwrap())
    }

    #[test]
    fn an_instance_gets_each_sample_as_often_as_it_says_and_none_without() {
        assert_eq!(count(""), 0);
        assert_eq!(count(r#", "model_warmup": []"#), 0);
        assert_eq!(count(r#", "model_warmup": [{ "batch_size": 1, "count": 0 }]"#), 1);
        assert_eq!(
            count(
                r#", "model_warmup": [{ "batch_size": 2, "count": 3 }, { "batch_size": 0 }, { "batch_size": 1 }]"#
            ),
            7
        );
    }

    #[test]
    fn only_the_first_requests_are_warm_up() {
        let warm_up = WarmUp::new(2);
        assert_eq!([(); 4].map(|()| warm_up.is_next()), [true, true, false, false]);
        assert!(!WarmUp::new(0).is_next());
    }
}
