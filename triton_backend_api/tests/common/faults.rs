//! Every call that can fail is made to fail once in each place where a life makes it.

use std::collections::BTreeMap;

use super::*;

/// What one life came to.
pub struct Life {
    pub calls: BTreeMap<&'static str, usize>,
    /// Every error that anybody got, and every line of the log.
    pub texts: Vec<String>,
    pub violations: Vec<String>,
    pub script: Script,
}

impl Life {
    /// What came of a life on this host that ended with these errors.
    pub fn ended(host: &FakeHost, script: Script, errors: Vec<HostError>) -> Self {
        let violations = host.violations();
        let errors = errors.into_iter().map(|e| e.message);
        let texts = errors.chain(host.log().into_iter().map(|line| line.message)).collect();
        Self { calls: host.calls(), texts, violations, script }
    }
}

/// Lives once for every call that `live` makes when all is well, with that call failing.
///
/// Nothing may leak, be freed twice, hang or panic. The failure must come to light, unless `tolerated` says that it
/// costs nobody anything; where `either` says so it may or may not.
pub fn fail_each_call_once(
    what: &str,
    live: impl Fn(Option<(&'static str, usize)>) -> Life,
    tolerated: impl Fn(&str) -> bool,
    either: impl Fn(&str) -> bool,
) -> usize {
    let healthy = live(None);
    assert_eq!(healthy.violations, Vec::<String>::new(), "{what}");
    healthy.script.assert_freed();
    let mut failed = 0;
    for (symbol, count) in healthy.calls.into_iter().filter(|(symbol, _)| symbol.starts_with("TRITON")) {
        for nth in 1..=count {
            let what = format!("{what}: call {nth} of {count} of {symbol}");
            let life = live(Some((symbol, nth)));
            failed += 1;
            let texts = life.texts.join("\n  ");
            assert!(!texts.contains("fault in"), "{what} panicked:\n  {texts}");
            let told = texts.contains(&format!("{symbol} was made to fail"));
            let right = either(symbol) || told != tolerated(symbol);
            assert!(right, "{what} did not come to light as it should:\n  {texts}");
            // A server that does not say where the state is cannot have it freed.
            let lost =
                symbol.ends_with("State") && !symbol.ends_with("SetState") && texts.contains("finalizing");
            if !lost {
                assert!(life.violations.is_empty(), "{what}:\n  {}", life.violations.join("\n  "));
                life.script.assert_freed();
            }
        }
    }
    failed
}
