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

type Target = fn(&[u8]);

#[test]
fn the_seeds_hold() {
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds");
    let all: [(&str, Target); 4] = [
        ("answers", targets::answers),
        ("kubeconfig", targets::kubeconfig),
        ("set", targets::set),
        ("values", targets::values),
    ];
    for (name, target) in all {
        let files = std::fs::read_dir(seeds.join(name)).unwrap().map(|file| file.unwrap().path());
        assert!(files.map(|file| target(&std::fs::read(file).unwrap())).count() > 1, "{name}");
    }
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

    #[test]
    fn kubeconfigs_give_errors_or_clients(
        cluster in "(https?://|host|\\[::1|://)?[a-z:/@%*.0-9]{0,12}",
        user in "(token: |username: |client-key-data: |auth-provider: |exec: )?[a-z{}\\[\\]\"\\\\]{0,8}",
        text in hostile(),
    ) {
        let text = serde_json::json!([cluster, text]);
        let config = format!(
            "current-context: c\ncontexts:\n- {{name: c, context: {{cluster: c, user: u}}}}\nclusters:\n\
             - {{name: c, cluster: {{server: {}, proxy-url: {}}}}}\nusers:\n- {{name: u, user: {{{user}}}}}\n",
            text[0], text[1],
        );
        targets::kubeconfig(config.as_bytes());
        targets::kubeconfig(format!("users:\n- name: {}\n  user: {{token: {}}}\n", text[0], text[1]).as_bytes());
    }

    #[test]
    fn answers_give_errors_or_something_understood(
        statuses in prop::collection::vec(0_u8..8, 1..5),
        kind in prop::sample::select(&["Secret", "PodList", "Status", "EventList", "ClusterList", "StatefulSet"][..]),
        text in hostile(),
        number in any::<i64>(),
    ) {
        let quoted = serde_json::json!(text);
        let bodies = [
            format!(r#"{{"kind": "{kind}", "reason": {quoted}, "message": {quoted}, "details": {{"causes": [{{"message": {quoted}}}]}}}}"#),
            format!(r#"{{"kind": "{kind}", "items": [{{"metadata": {{"name": {quoted}, "generation": {number}}}, "status":
                {{"observedGeneration": {number}, "replicas": {number}, "containerStatuses": [{{"name": {quoted},
                "restartCount": {number}, "state": {{"waiting": {{"reason": {quoted}}}}}}}]}}}}]}}"#),
            format!(r#"{{"format": 1, "release": {{"name": {quoted}}}}}"#),
            text,
        ];
        let parts: Vec<Vec<u8>> = statuses.iter().zip(bodies.iter().cycle())
            .map(|(status, body)| [&[*status], body.as_bytes()].concat()).collect();
        targets::answers(&parts.join(&b"\n---\n"[..]));
    }
}
