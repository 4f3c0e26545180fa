//! Values as users write them: presets, schemas for editors, and what a schema cannot say.

use serde_json::Value;

use crate::Sandbox;
use crate::show::{CHARTS, LINES};

/// A YAML text as an editor's schema checker sees it.
fn read(text: &str) -> Value {
    // The reader takes no more than so many comments at once.
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    let value: Value = serde_saphyr::from_str(&text).unwrap();
    if value.is_null() { serde_json::json!({}) } else { value }
}

fn errors(schema: &Value, text: &str) -> Vec<String> {
    let validator = jsonschema::validator_for(schema).unwrap();
    validator.iter_errors(&read(text)).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

#[test]
fn what_the_program_shows_is_right_by_the_schema_that_it_shows() {
    let sandbox = Sandbox::new();
    for chart in CHARTS {
        for line in LINES {
            let shown = |args: &[&str]| sandbox.run(&[args, &["--version", line]].concat()).succeeds().to_owned();
            let schema: Value = serde_json::from_str(&shown(&["show", "schema", chart])).unwrap();
            assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
            assert!(schema["$id"].as_str().unwrap().ends_with(&format!("{chart}.schema.json")));
            let values = shown(&["show", "values", chart]);
            assert_eq!(errors(&schema, &values), [""; 0], "{chart} {line}");
            let command = format!("fleetctl show schema {chart} --version {line} > {chart}.schema.json");
            assert!(values.lines().nth(1).unwrap().ends_with(&command), "{values}");
        }
    }
}

#[test]
fn presets_and_examples_are_right_by_the_schema_and_mistakes_are_not() {
    let sandbox = Sandbox::new();
    let schema: Value = serde_json::from_str(sandbox.run(&["show", "schema", "--version", "v1.1"]).succeeds()).unwrap();
    for preset in ["ha", "hardened", "nodeport", "small", "airgap"] {
        let text = sandbox.run(&["show", "presets", preset]).succeeds().to_owned();
        assert_eq!(errors(&schema, &text), [""; 0], "{preset}");
    }
    for right in [
        "etcd: {image: {tag: 1.10}}",
        "apiserver: {resources: {requests: {cpu: 2}}}",
        "nodeSelector: {a: true, b: null}",
    ] {
        assert_eq!(errors(&schema, right), [""; 0], "{right}");
        let file = sandbox.file("right.yaml", right);
        assert_eq!(sandbox.run(&["lint", "--version", "v1.1", "--values", &file]).code, 0, "{right}");
    }
    for wrong in [
        "etcd: {replica: 3}",
        "etcd: {replicas: 2}",
        "exposure: {type: Nodeport}",
        "imagePullSecrets: [{}]",
        "tolerations: [{key: [1]}]",
    ] {
        assert_ne!(errors(&schema, wrong), [""; 0], "{wrong}");
        let file = sandbox.file("wrong.yaml", wrong);
        assert_eq!(sandbox.run(&["lint", "--version", "v1.1", "--values", &file]).code, 2, "{wrong}");
    }
}

#[test]
fn a_preset_is_chosen_by_name_and_lies_below_files() {
    let sandbox = Sandbox::new();
    let explain = |more: &[&str]| {
        let field = ["template", "cp", "demo", "--version", "v1.1", "--explain", "statefulset/etcd#spec.replicas"];
        sandbox.run(&[&field[..], more].concat()).succeeds().to_owned()
    };
    let text = explain(&["--preset", "ha"]);
    assert!(text.contains("= 3") && text.contains("values.etcd.replicas from preset ha:"), "{text}");
    let file = sandbox.file("one.yaml", "etcd: {replicas: 1}\n");
    let text = explain(&["--values", &file, "--preset", "ha"]);
    assert!(text.contains("= 1") && text.contains("one.yaml:1:18") && text.contains("instead of preset ha:"), "{text}");
    // Several, the later ones win.
    let both = sandbox.run(&["lint", "--version", "v1.1", "--preset", "ha", "--preset", "airgap"]);
    both.succeeds();
    sandbox.run(&["lint", "--preset", "hb"]).fails(2, &["'hb'", "airgap, ha, hardened, nodeport, small"]);
    let lint = sandbox.run(&["lint", "--values", "ha"]);
    assert!(lint.code == 2 && lint.stdout.contains("--preset ha"), "{lint:?}");
    sandbox.run(&["template", "cp", "demo", "--values", "values/ha.yaml"]).fails(2, &["--preset ha"]);
}

#[test]
fn etcds_quota_follows_its_volume_and_never_exceeds_it() {
    let sandbox = Sandbox::new();
    let quota = |more: &[&str]| {
        let args =
            ["template", "cp", "demo", "--preset", "nodeport", "--set", "exposure.host=h", "-s", "statefulset/etcd"];
        let ran = sandbox.run(&[&args[..], more].concat());
        let text = ran.succeeds();
        let at = text.find("--quota-backend-bytes=").unwrap();
        text[at..].lines().next().unwrap().trim_start_matches("--quota-backend-bytes=").to_owned()
    };
    assert_eq!(quota(&[]), (8_i64 << 30).to_string());
    assert_eq!(quota(&["--set", "etcd.storage.size=5Gi"]), (4_i64 << 30).to_string());
    assert_eq!(quota(&["--set", "etcd.storage.size=1Ti"]), (8_i64 << 30).to_string());
    assert_eq!(quota(&["--set", "etcd.storage.size=5Gi,etcd.quotaBytes=1073741824"]), (1_i64 << 30).to_string());
    for (sets, place) in [
        ("etcd.storage.size=1Gi,etcd.quotaBytes=8589934592", "`etcd.quotaBytes` is 8589934592"),
        ("etcd.storage.size=5Mi", "5242880 bytes"),
    ] {
        let ran = sandbox.run(&["install", "cp", "demo", "--dry-run", "--set", sets]);
        ran.fails(2, &["quota-beyond-volume", place, "`etcd.storage.size` is "]);
    }
}

/// The words of a command, as a shell reads them.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in command.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, ' ') => words.push(String::new()),
            _ => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The examples that need no cluster, of a page of documentation: as far as a pipe or a redirection.
fn examples(page: &str) -> Vec<String> {
    let whole = page.replace("\\\n", " ").replace(" |\n", " | ");
    let lines = whole.lines().map(str::trim).filter(|line| line.starts_with("fleetctl "));
    let commands = lines.filter_map(|line| line.split([';', '>']).next()?.split(" | ").next());
    let offline = ["lint", "show", "template", "versions", "explain", "completion"];
    commands
        .filter(|command| words(command).get(1).is_some_and(|verb| offline.contains(&verb.as_str())))
        // An outline of a command is no example of it.
        .filter(|command| !command.contains(['[', '<']) || command.contains('\''))
        .map(str::trim)
        .map(str::to_owned)
        .collect()
}

#[test]
fn examples_run_in_an_empty_folder() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages =
        ["README.md", "docs/quick-start.md", "docs/operator-workflow.md", "docs/security.md", "docs/reference.md"];
    let mut ran = 0;
    for page in pages {
        for example in examples(&std::fs::read_to_string(root.join(page)).unwrap()) {
            let sandbox = Sandbox::new();
            let words: Vec<String> = words(&example.replace("NODE-ADDRESS", "192.0.2.10"));
            for (flag, file) in words.iter().zip(&words[1..]) {
                // The user's own; nothing else is there.
                if (flag == "--values" || flag == "-f") && !file.contains('/') {
                    sandbox.file(file, "{}\n");
                }
            }
            let args: Vec<&str> = words[1..].iter().map(String::as_str).collect();
            assert_eq!(sandbox.run(&args).code, 0, "{page}: {example}: {:?}", sandbox.run(&args).stderr);
            ran += 1;
        }
    }
    assert!(ran >= 30, "{ran} examples");
}
