//! The targets of the fuzzer, run on text out of hostile pieces: they hold, and they go on compiling.

#[path = "../../src/chart/tests/hostile.rs"]
mod hostile;
#[path = "../fuzz/targets.rs"]
mod targets;

use proptest::prelude::*;

use hostile::hostile;

const KEYS: [&str; 8] =
    ["name", "imageRegistry", "priorityClassName", "nodeSelector", "extraArgs", "cluster", "replicas", "tolerations"];

/// Keys of values, so that more than errors about keys is met.
fn entry() -> impl Strategy<Value = String> {
    (prop::sample::select(&KEYS[..]), hostile(), any::<bool>()).prop_map(|(key, text, quoted)| {
        format!("{key}: {}\n", if quoted { serde_json::json!(text).to_string() } else { text })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn values_give_errors_or_objects(entries in prop::collection::vec(entry(), 0..4)) {
        targets::values(entries.concat().as_bytes());
    }

    #[test]
    fn arguments_give_errors_or_values(kind in 0_u8..4, path in "[a-c.\\[\\]0-9]{0,6}", text in hostile()) {
        let mut data = vec![kind];
        data.extend(format!("{path}={text}").bytes());
        targets::set(&data);
    }
}
