//! Everything that a user can get wrong in values, and how it is said. None of it panics, takes long, or shows a secret.

use std::time::Duration;

use super::*;
use crate::api::util::thread_cpu_time::thread_cpu_time;

/// Builds the test chart's values with what a test adds.
fn build(add: impl FnOnce(ValuesBuilder) -> ValuesBuilder) -> Result<ValuesTree, Diagnostics> {
    add(chart("v0.6").values_builder()).build(schema)
}

fn from_file(text: &str) -> String {
    shown(build(|values| values.file("my.yaml", text.as_bytes())))
}

fn from_set(kind: SetKind, argument: &str) -> String {
    shown(build(|values| values.set(kind, argument)))
}

fn shown(outcome: Result<ValuesTree, Diagnostics>) -> String {
    match outcome {
        Ok(values) => {
            let warnings: Vec<String> =
                values.warnings().iter().map(|warning| warning.render_diagnostic(false)).collect();
            format!("ACCEPTED\n{}", warnings.join("\n"))
        }
        Err(errors) => errors.render_diagnostics(false),
    }
}

/// Snapshots many, each below what it is about.
fn all(cases: impl IntoIterator<Item = (String, String)>) -> String {
    cases.into_iter().map(|(about, text)| format!("### {about}\n{text}\n")).collect::<Vec<_>>().join("\n")
}

#[test]
fn wrong_files_are_explained() {
    let texts = [
        "etcd:\n  replica: 3\n",
        "etcd:\n  zzz: 3\n",
        "replicas: 3\n",
        "etcd: {replicas: three}\n",
        "etcd:\n  replicas: \"3\"\n",
        "etcd:\n  replicas: 9\n",
        "etcd:\n  replicas: 3.5\n",
        "etcd:\n  replicas: 1e0\n",
        "etcd:\n  replicas: 010\n",
        "etcd:\n  replicas: 0x3\n",
        "etcd:\n  replicas: 1_0\n",
        "etcd:\n  replicas: 99999999999999999999999999\n",
        "etcd:\n  replicas: [3]\n",
        "etcd:\n  replicas: null\n",
        "etcd:\n  labels: {a: 1}\n  extraArgs: a\n",
        "etcd:\n  labels: {a: [1]}\n",
        "etcd:\n  extraArgs: [a, a]\n",
        "etcd:\n  extraArgs: [a, b, c, d]\n",
        "etcd:\n  backup: {buckett: x}\n",
        "etcd:\n  backup: yes please\n",
        "etcd: null\n",
        "etcd: []\n",
        "exposure: Loadbalancer\n",
        "exposure: 3\n",
        "exposure: null\n",
        "name: My_Name\n",
        "paused: yes\n",
        "paused: \"true\"\n",
        "paused: maybe\n",
        "ratio: .inf\n",
        "standby: true\n",
        "logLevel: 99\nlogLevl: 3\nname: X\n",
        "a: 1\na: 2\n",
        "etcd:\n\treplicas: 3\n",
        "etcd:\n  replicas: 3\n   name: x\n",
        "name: \"unclosed\n",
        "name: 'it's'\n",
        "name: {a: b\n",
        "name: @x\n",
        "name: *nobody\n",
        "name: !!binary aGk=\n",
        "name: !custom x\n",
        "name: &a [*a]\n",
        "- a\n- b\n",
        "just text\n",
        "name: a\n---\nname: b\n",
        "? {a: b}\n: c\n",
        "\u{0}",
        "name: \u{7}\n",
        "{\"name\": \"x\",}",
        "{\"name\": 1}",
        "etcd:\n  replicas: 3 # ok\nexposure: \n",
        "%YAML 3.0\n---\nname: x\n",
    ];
    insta::assert_snapshot!(all(texts.map(|text| (format!("{text:?}"), from_file(text)))));
}

#[test]
fn wrong_sets_are_explained() {
    let cases = [
        (SetKind::Value, ","),
        (SetKind::Value, "etcd"),
        (SetKind::Value, "etcd.replicas"),
        (SetKind::Value, "=3"),
        (SetKind::Value, "etcd..replicas=3"),
        (SetKind::Value, "etcd.replicas=three"),
        (SetKind::Value, "etcd.replica=3"),
        (SetKind::Value, "etcd.replicas=3,exposure=x"),
        (SetKind::Value, "etcd.extraArgs={a"),
        (SetKind::Value, "etcd.extraArgs[x]=a"),
        (SetKind::Value, "etcd.extraArgs[7]=a"),
        (SetKind::Value, "name[0]=a"),
        (SetKind::Value, "etcd=null"),
        (SetKind::Value, "standby=true"),
        (SetKind::Text, "etcd.replicas=3"),
        (SetKind::Json, "etcd.replicas={"),
        (SetKind::Json, "etcd={\"replicas\": \"x\"}"),
        (SetKind::File, "name=/no/such/file"),
        (SetKind::File, "name=/"),
    ];
    insta::assert_snapshot!(all(
        cases.map(|(kind, text)| (format!("{} {text}", kind.flag_name()), from_set(kind, text)))
    ));
}

#[test]
fn wrong_bytes_and_wrong_paths_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let large = folder.path().join("large.yaml");
    std::fs::write(&large, vec![b'#'; 3 << 20]).unwrap();
    let reading =
        |path: &str| read_file(path).unwrap_err().message.replace(&folder.path().display().to_string(), "DIR");
    insta::assert_snapshot!(
        [
            reading("/no/such/file"),
            reading("/"),
            reading(&large.display().to_string()),
            shown(build(|values| values.file("utf16.yaml", b"\xff\xfen\0a\0"))),
            shown(build(|values| values.file("latin1.yaml", b"name: x\nlabel: gr\xfc\xdfe\n"))),
            shown(build(|values| values.file("secret.yaml", b"password: gr\xfc\n"))),
            shown(build(|values| values.file("large.yaml", &vec![b' '; 3 << 20]))),
            shown(build(|values| values.file("bom.yaml", b"\xef\xbb\xbfname: x\n"))),
            shown(build(|values| values.file("empty.yaml", b""))),
        ]
        .join("\n\n")
    );
}

#[test]
fn what_one_source_has_wrong_hides_nothing_of_the_others() {
    let several = build(|values| {
        values
            .file(
                "twice.yaml",
                b"logLevel: 3\nlogLevel: 4\netcd: {replicas: three}\nsecretKey: {token: hunter2, token: hunter2}\n",
            )
            .file("syntax.yaml", b"etcd:\n\treplicas: 3\n")
            .file_result("gone.yaml", read_file("gone.yaml"))
            .file("wrong.yaml", b"exposure: Loadbalancer\n")
            .set(SetKind::Value, "paused")
            .set(SetKind::Value, "logLevl=3")
    });
    insta::assert_snapshot!(shown(several));
    // What could not be read may hold what is missing.
    let missing = build(|values| values.file("a.yaml", b"a: 1\na: 2\n").set(SetKind::Value, "etcd=null"));
    assert!(!shown(missing).contains("missing"));
}

#[test]
fn a_mistake_costs_little_time() {
    let start = thread_cpu_time();
    let deep = "[".repeat(200_000);
    let wide = format!("etcd: {{{}}}", (0..30_000).map(|n| format!("k{n}: {n}")).collect::<Vec<_>>().join(", "));
    let twice = "a: 1\n".repeat(30_000);
    let long_key = "k".repeat(500_000);
    let levels = (0..60).map(|n| {
        let below = if n == 0_usize { "x,".to_owned() } else { format!("*a{},", n - 1).repeat(9) };
        format!("a{n}: &a{n} [{below}]\n")
    });
    let bomb = levels.collect::<Vec<_>>().concat();
    let many_sets: Vec<String> = (0..200).map(|n| format!("etcd.labels.k{n}={n}")).collect();
    for text in [deep, wide, twice, long_key, bomb] {
        assert!(build(|values| values.file("x.yaml", text.as_bytes())).is_err());
    }
    assert!(build(|values| values.set(SetKind::Value, &many_sets.join(","))).is_ok());
    let spent = thread_cpu_time().saturating_sub(start);
    assert!(spent < Duration::from_secs(20), "{spent:?}");
}

#[test]
fn no_error_shows_a_secret() {
    const CANARY: &str = "hunter2canary";
    let files = [
        format!("token: {CANARY}\nlogLevel: x\n"),
        format!("token: [{CANARY}]\n"),
        format!("token: {{a: {CANARY}}}\n"),
        format!("{{token: {CANARY}, zzz: 1}}\n"),
        format!("toke: {CANARY}\n"),
        format!("zzz: {{a: {CANARY}}}\n"),
        format!("etcd: {{backup: {{secretKey: {CANARY}, bukket: 1}}}}\n"),
        format!("etcd: {{backup: {{secretKey: [{CANARY}]}}}}\n"),
        format!("token: {}{CANARY}\n", "x".repeat(100)),
        format!("token: \"{CANARY}\n"),
        format!("token: '{CANARY}' x\n"),
        format!("token: {CANARY}\ntoken: {CANARY}\n"),
        format!("token: !t {CANARY}\n"),
        format!("token: |\n  {CANARY}\n  {CANARY}\nzzz: 1\n"),
    ];
    for text in files {
        let shown = from_file(&text);
        assert!(!shown.contains(CANARY) && !shown.starts_with("ACCEPTED"), "{text}\n{shown}");
    }
    for argument in [
        format!("token={CANARY},zzz=1"),
        format!("toke={CANARY}"),
        format!("token={{{CANARY}}}"),
        format!("token={CANARY},b"),
        format!("zzz=1,token={CANARY}"),
    ] {
        let shown = from_set(SetKind::Value, &argument);
        assert!(!shown.contains(CANARY) && !shown.starts_with("ACCEPTED"), "{argument}\n{shown}");
    }
    let fine = build(|values| values.set(SetKind::Value, &format!("token={CANARY}"))).unwrap();
    assert_eq!(fine.to_json()["token"], CANARY);
    assert!(!fine.to_masked_json().to_string().contains(CANARY));
    let overridden = shown(build(|values| {
        values.file("a.yaml", format!("{{token: {CANARY}, logLevel: x}}").as_bytes()).set(SetKind::Value, "token=b")
    }));
    assert!(!overridden.contains(CANARY), "{overridden}");
}

#[test]
fn errors_of_all_sources_come_at_once_and_in_order() {
    let errors = build(|values| {
        values
            .set(SetKind::Value, "etcd.replicas=x")
            .file("b.yaml", b"logLevel: -1\n")
            .file("a.yaml", b"zzz: 1\nname: X\n")
            .flag("--exposure", "exposure", "Nodeport")
    })
    .unwrap_err();
    let places: Vec<String> = errors.0.iter().map(|error| error.place.as_ref().unwrap().format_position()).collect();
    assert_eq!(places, ["--set:1:15", "b.yaml:1:11", "a.yaml:1:1", "a.yaml:2:7", "--exposure:1:1"]);
    let codes: Value = serde_json::to_value(&errors).unwrap();
    assert_eq!(codes[2]["code"], "unknown-key");
    assert_eq!(codes[2]["place"]["line"], 1);
}

#[test]
fn an_unknown_key_without_a_value_is_unknown_all_the_same() {
    for text in ["root:*:20:0:\n", "zzz: null\n", "zzz: ~\n", "etcd: {replica: null}\n", "etcd: {replica: }\n"] {
        assert!(from_file(text).starts_with("error[unknown-key]"), "{text}");
    }
    // Letters that look like others, and spaces that are none.
    let odd = [from_file("\u{435}tcd: {}\n"), from_file("\u{a0}etcd: {}\n")];
    assert!(odd[0].starts_with("error[unknown-key]: unknown key `\u{435}tcd` (character 1 is U+0435)"), "{}", odd[0]);
    assert!(odd[1].starts_with(r"error[unknown-key]: unknown key `\u{a0}etcd` (character 1 is U+00A0)"), "{}", odd[1]);
    assert!(from_set(SetKind::Value, "zzz=null").starts_with("error[unknown-key]"));
    assert!(from_set(SetKind::Json, r#"etcd={"replica": null}"#).starts_with("error[unknown-key]"));
    // A null that takes something back is right: what another source gave, or a key of a mapping whose keys are free.
    let taken_back = build(|values| values.file("a.yaml", b"zzz: 1\n").file("b.yaml", b"zzz: null\n"));
    assert!(shown(taken_back).starts_with("ACCEPTED"));
    assert!(from_file("etcd: {labels: {a: null}}\n").starts_with("ACCEPTED"));
    // Recorded ones may be of a value that an earlier line had.
    assert!(shown(build(|values| values.with_recorded(&json!({"zzz": null})))).starts_with("ACCEPTED"));
    let many: String = (0..20_000).map(|number| format!("k{number}:\n")).collect();
    let errors = build(|values| values.file("a.yaml", many.as_bytes())).unwrap_err();
    assert_eq!((errors.0.len(), errors.0.last().unwrap().message.contains("19950")), (51, true), "{errors}");
}
