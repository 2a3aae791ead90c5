//! The text of one parameter to a value, with errors that name the key, the value and what is accepted.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use triton_backend_api::{Error, Result};

use super::{DEFAULTS, IGNORED};

/// The largest integer accepted per axis: products of two still fit 64 bits.
const LARGEST: i64 = i32::MAX as i64;

/// The given parameters, all of them known.
pub(super) struct Parameters<'a> {
    given: &'a BTreeMap<String, String>,
}

impl<'a> Parameters<'a> {
    pub(super) fn new(given: &'a BTreeMap<String, String>) -> Result<Self> {
        let known = || DEFAULTS.iter().map(|&(key, _)| key).chain(IGNORED);
        for (key, value) in given {
            if !known().any(|known| known == key) {
                let hint = closest(key, known())
                    .map_or(String::new(), |near| format!(" (did you mean \"{near}\"?)"));
                let all = known().collect::<Vec<_>>().join(", ");
                return Err(Error::invalid_arg(format!(
                    "unknown parameter \"{key}\" = \"{value}\"{hint}; accepted are {all}"
                )));
            }
        }
        Ok(Self { given })
    }

    pub(super) fn ignored(&self) -> Vec<String> {
        IGNORED.iter().filter(|&&key| self.given.contains_key(key)).map(|&key| key.to_owned()).collect()
    }

    /// The error for a value that is not accepted.
    pub(super) fn refuse(&self, key: &str, accepted: &str) -> Error {
        Error::invalid_arg(format!("parameter \"{key}\" is \"{}\"; accepted: {accepted}", self.raw(key)))
    }

    pub(super) fn text(&self, key: &str) -> Result<&str> {
        Ok(self.raw(key).trim())
    }

    pub(super) fn text_or_none(&self, key: &str) -> Option<&str> {
        (!self.is_none(key)).then(|| self.raw(key).trim())
    }

    pub(super) fn name(&self, key: &str) -> Result<String> {
        let text = self.text(key)?;
        if text.is_empty() {
            Err(self.refuse(key, "a name of one character or more"))
        } else {
            Ok(text.to_owned())
        }
    }

    pub(super) fn boolean(&self, key: &str) -> Result<bool> {
        self.parse_boolean(key).ok_or_else(|| self.refuse(key, "true or false"))
    }

    pub(super) fn boolean_or_none(&self, key: &str) -> Result<Option<bool>> {
        if self.is_none(key) {
            return Ok(None);
        }
        self.parse_boolean(key).map(Some).ok_or_else(|| self.refuse(key, "true, false or \"\" (None)"))
    }

    pub(super) fn integer(&self, key: &str, range: RangeInclusive<i64>) -> Result<i64> {
        self.parse_integer(key)
            .filter(|value| range.contains(value))
            .ok_or_else(|| self.refuse(key, &describe(&range)))
    }

    pub(super) fn integer_or_none(&self, key: &str, range: RangeInclusive<i64>) -> Result<Option<i64>> {
        if self.is_none(key) {
            return Ok(None);
        }
        self.parse_integer(key)
            .filter(|value| range.contains(value))
            .map(Some)
            .ok_or_else(|| self.refuse(key, &format!("{}, or \"\" (None)", describe(&range))))
    }

    pub(super) fn integers_or_none(&self, key: &str, lowest: i64) -> Result<Option<Vec<i64>>> {
        if self.is_none(key) {
            return Ok(None);
        }
        self.parse_integers(key)
            .filter(|values| values.iter().all(|&value| value >= lowest))
            .map(Some)
            .ok_or_else(|| {
                let each = describe(&(lowest..=i64::MAX));
                self.refuse(key, &format!("{each}, a list of such as in \"[1, 2]\", or \"\" (None)"))
            })
    }

    /// One integer for all axes, or three.
    pub(super) fn three_integers(&self, key: &str, lowest: i64) -> Result<[i64; 3]> {
        let fits = |value: &i64| (lowest..=LARGEST).contains(value);
        let values = self.parse_integers(key).filter(|values| values.iter().all(fits));
        match values.as_deref() {
            Some(&[all]) => Ok([all; 3]),
            Some(&[h, w, d]) => Ok([h, w, d]),
            _ => {
                let each = describe(&(lowest..=LARGEST));
                Err(self.refuse(key, &format!("{each}, or three such as in \"[224, 224, 224]\"")))
            }
        }
    }

    /// A model's version.
    pub(super) fn version(&self, key: &str) -> Result<i64> {
        match self.integer(key, -1..=i64::MAX)? {
            0 => Err(self.refuse(key, "-1 (the server chooses) or 1 and above")),
            version => Ok(version),
        }
    }

    /// A time to wait.
    pub(super) fn seconds(&self, key: &str) -> Result<Duration> {
        Some(self.number(key)?)
            .filter(|&seconds| seconds > 0.0 && seconds <= 31_536_000.0)
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .filter(|time| !time.is_zero())
            .ok_or_else(|| self.refuse(key, "seconds above 0, up to 31536000 (one year)"))
    }

    pub(super) fn number(&self, key: &str) -> Result<f64> {
        self.parse_number(key).ok_or_else(|| self.refuse_number(key, "a finite number"))
    }

    pub(super) fn number_or_none(&self, key: &str) -> Result<Option<f64>> {
        if self.is_none(key) {
            return Ok(None);
        }
        self.parse_number(key)
            .map(Some)
            .ok_or_else(|| self.refuse_number(key, "a finite number or \"\" (None)"))
    }

    /// Refuses a range that is reversed, empty, or without a width in float32.
    pub(super) fn check_range(&self, low: &str, high: &str, low_value: f64, high_value: f64) -> Result<()> {
        let span = (high_value - low_value) as f32;
        if span > 0.0 && span.is_finite() {
            return Ok(());
        }
        Err(Error::invalid_arg(format!(
            "parameters \"{low}\" = \"{}\" and \"{high}\" = \"{}\"; accepted: {low} below {high}, their difference a \
             float32 above 0",
            self.raw(low),
            self.raw(high)
        )))
    }

    /// What was given for a key, or its default.
    fn raw(&self, key: &str) -> &str {
        let default =
            || DEFAULTS.iter().find(|&&(known, _)| known == key).map_or("", |&(_, default)| default);
        self.given.get(key).map_or_else(default, String::as_str)
    }

    fn is_none(&self, key: &str) -> bool {
        let text = self.raw(key).trim();
        text.is_empty() || text.eq_ignore_ascii_case("none")
    }

    fn parse_boolean(&self, key: &str) -> Option<bool> {
        let text = self.raw(key).trim();
        let is = |word: &str| text.eq_ignore_ascii_case(word);
        if is("true") {
            Some(true)
        } else if is("false") {
            Some(false)
        } else {
            None
        }
    }

    fn parse_integer(&self, key: &str) -> Option<i64> {
        self.raw(key).trim().parse().ok()
    }

    /// `1,2` or `[1, 2]` or `(1, 2)`; `[]` is the empty list.
    fn parse_integers(&self, key: &str) -> Option<Vec<i64>> {
        let text = self.raw(key).trim();
        let bracketed = [('[', ']'), ('(', ')')]
            .into_iter()
            .find_map(|(open, close)| text.strip_prefix(open)?.strip_suffix(close));
        match bracketed.map(str::trim) {
            Some("") => Some(Vec::new()),
            inner => inner.unwrap_or(text).split(',').map(|item| item.trim().parse().ok()).collect(),
        }
    }

    /// A number that is finite in float32 too.
    fn parse_number(&self, key: &str) -> Option<f64> {
        self.raw(key).trim().parse().ok().filter(|&value: &f64| (value as f32).is_finite())
    }

    /// A bad end of a range is shown together with the other end.
    fn refuse_number(&self, key: &str, accepted: &str) -> Error {
        let partner = match key {
            "a_min" => "a_max",
            "a_max" => "a_min",
            "b_min" => "b_max",
            "b_max" => "b_min",
            _ => return self.refuse(key, accepted),
        };
        Error::invalid_arg(format!(
            "parameter \"{key}\" is \"{}\" (and \"{partner}\" is \"{}\"); accepted: {accepted}",
            self.raw(key),
            self.raw(partner)
        ))
    }
}

fn describe(range: &RangeInclusive<i64>) -> String {
    match (*range.start(), *range.end()) {
        (i64::MIN, high) => format!("an integer up to {high}"),
        (low, i64::MAX) => format!("an integer from {low}"),
        (low, high) => format!("an integer from {low} to {high}"),
    }
}

/// The known key that looks most like `key`, if one looks like it at all.
fn closest<'k>(key: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let lower = key.to_lowercase();
    known
        .map(|candidate| (edit_distance(&lower, &candidate.to_lowercase()), candidate))
        .min()
        .filter(|&(distance, candidate)| distance <= candidate.len() / 3)
        .map(|(_, candidate)| candidate)
}

/// How many single characters must be added, removed or changed to turn `a` into `b`.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &to) in b.iter().enumerate() {
            let changed = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
