//! Files, flags and answers that nobody writes by hand: each ends in an error that says what to do, never in a signal, a
//! panic, or all of the memory.

use std::io::Write as _;

use assert_cmd::Command;

use crate::{Ran, Sandbox};

/// Runs the program with little memory and time. A panic is looked for in what it prints: users' builds abort on one.
#[track_caller]
fn bounded(sandbox: &Sandbox, args: &[&str], environment: &[(&str, &str)]) -> Ran {
    let binary = assert_cmd::cargo::cargo_bin!("fleetctl");
    let mut command = Command::new("bash");
    command.env_clear().env("HOME", sandbox.path()).env("LC_ALL", "C.UTF-8").current_dir(sandbox.path());
    command.envs(environment.iter().copied());
    command.args(["-c", "ulimit -t 10; ulimit -v 400000; exec \"$0\" \"$@\""]).arg(binary).args(args);
    let ran = Ran::of(command.timeout(std::time::Duration::from_secs(30)).output().unwrap());
    let shown: Vec<String> = args.iter().map(|arg| arg.chars().take(60).collect()).collect();
    assert_ne!(ran.code, -1, "{shown:?} ended by a signal: {}", ran.stderr);
    assert!(!ran.stderr.contains("panicked"), "{shown:?} panicked: {}", ran.stderr);
    ran
}

const DRY: [&str; 4] = ["install", "cp", "demo", "--dry-run"];

#[test]
fn values_that_nest_too_deep_are_an_error_with_its_place_whatever_they_come_from() {
    let sandbox = Sandbox::new();
    let keys = |n: usize| vec!["a"; n].join(".");
    let lists = |n: usize| format!("{}1{}", "[".repeat(n), "]".repeat(n));
    sandbox.file("key", "x");
    sandbox.file("flow.yaml", &format!("a: {}\n", lists(100_000)));
    sandbox.file("block.yaml", &(0..1000).map(|n| " ".repeat(n) + "a:\n").collect::<String>());
    sandbox.file(
        "mixed.yaml",
        &format!("{}{}\n", (0..40).map(|n| " ".repeat(n) + "a:\n").collect::<String>(), " ".repeat(40) + &lists(40)),
    );
    // JSON that is no YAML is read by another reader.
    sandbox.file("deep.json", &format!(r#"{{"b":	"\ud83d\ude00", "a": {}}}"#, lists(100)));
    let aliases: String =
        (1..9).map(|n| format!("a{n}: &a{n} {}*a{}{}\n", "[".repeat(20), n - 1, "]".repeat(20))).collect();
    sandbox.file("aliases.yaml", &format!("a0: &a0 x\n{aliases}"));
    let set = |path: &str, value: &str| format!("{path}={value}");
    let cases: [(&[&str], &str); 13] = [
        (&["--set", &set(&keys(8000), "1")], "--set:1:"),
        (&["--set", &format!("a{}=1", "[0]".repeat(8000))], "--set:1:"),
        (&["--set", &set(&keys(65), "1")], "--set:1:"),
        (&["--set-string", &set(&keys(8000), "1")], "--set-string:1:"),
        (&["--set-file", &set(&keys(8000), "key")], "--set-file:1:"),
        (&["--set-json", &set(&keys(8000), "1")], "--set-json:1:"),
        (&["--set-json", &set("a", &lists(8000))], "--set-json:1:"),
        (&["--set-json", &set(&keys(40), &lists(40))], "--set-json:1:"),
        (&["-f", "flow.yaml"], "flow.yaml:1:"),
        (&["-f", "block.yaml"], "block.yaml:65:"),
        (&["-f", "mixed.yaml"], "mixed.yaml:41:"),
        (&["-f", "deep.json"], "deep.json:1:"),
        (&["-f", "aliases.yaml"], "aliases.yaml:5:"),
    ];
    for (flags, place) in cases {
        let ran = bounded(&sandbox, &[&DRY[..], flags].concat(), &[]);
        ran.fails(2, &["error[too-deep]: values nest deeper than 64 levels", place, "^", "help: check the brackets"]);
    }
    // What is as deep as allowed is only unknown, and an index is looked at before a list is made for it.
    let deepest = set(&keys(64), "1");
    bounded(&sandbox, &[&DRY[..], &["--set", &deepest]].concat(), &[]).fails(2, &["error[unknown-key]"]);
    bounded(&sandbox, &[&DRY[..], &["--set", "a[99999999]=1"]].concat(), &[]).fails(2, &["not an index of a list"]);
}

/// A kubeconfig with these fields of its cluster and its user, as flow mappings without braces.
fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
    )
}

#[test]
fn a_kubeconfig_that_the_client_library_would_panic_over_is_an_error_that_names_the_field() {
    let sandbox = Sandbox::new();
    let at = "server: 'https://127.0.0.1:1'";
    let server = "`clusters[name=k].cluster.server` ";
    for (cluster, user, parts) in [
        ("server: 'host:6443'", "token: hunter2", [server, "neither http:// nor https://"]),
        ("server: '*'", "token: hunter2", [server, "neither http:// nor https://"]),
        ("server: ''", "", [server, "is missing"]),
        ("server: 'http://'", "", [server, "not a URL"]),
        ("server: '://x'", "", [server, "neither http:// nor https://"]),
        ("server: 'https://[::1'", "", [server, "not a URL"]),
        ("server: 'https://127.0.0.1:99999'", "", [server, "port"]),
        ("server: 'https://a b'", "", [server, "not a URL"]),
        ("server: 'https://b\u{fc}cher'", "", [server, "not a URL"]),
        ("server: '/var/run/x.sock'", "", [server, "neither http:// nor https://"]),
        ("server: 'unix:///var/run/x.sock'", "", [server, "unix://"]),
        (&format!("{at}, proxy-url: 'host:1'"), "", ["`clusters[name=k].cluster.proxy-url` ", "no scheme"]),
        (&format!("{at}, proxy-url: 'http://h:99999'"), "", ["`clusters[name=k].cluster.proxy-url` ", "port"]),
        (&format!("{at}, certificate-authority-data: DATA+OMITTED"), "", ["certificate-authority-data` ", "--raw"]),
        (&format!("{at}, certificate-authority: /dev/zero"), "", ["certificate-authority` ", "larger than 4 MiB"]),
        (at, "token: \"hunter2\\n\"", ["`users[name=u].user.token` ", "control character"]),
        (at, "tokenFile: /dev/zero", ["`users[name=u].user.tokenFile` ", "larger than 4 MiB"]),
        (at, "auth-provider: {name: oidc, config: {id-token: \"hunter2\\n\"}}", ["id-token` ", "control character"]),
    ] {
        let file = sandbox.file("config", &kubeconfig(cluster, user));
        let ran = bounded(&sandbox, &["status", "demo"], &[("KUBECONFIG", &file)]);
        ran.fails(1, &parts);
        assert!(!ran.stderr.contains("hunter2"), "{}", ran.stderr);
        let json = bounded(&sandbox, &["status", "demo", "-o", "json"], &[("KUBECONFIG", &file)]);
        assert!(json.stderr.contains("UnusableContext") && json.stderr.contains(parts[1]), "{json:?}");
    }
    // What kubectl connects with is tried.
    for (cluster, user) in
        [("server: '127.0.0.1:1', insecure-skip-tls-verify: true", "token: x"), ("server: '127.0.0.1:1'", "")]
    {
        let file = sandbox.file("config", &kubeconfig(cluster, user));
        bounded(&sandbox, &["status", "demo"], &[("KUBECONFIG", &file)]).fails(1, &["Connection refused"]);
    }
}

#[test]
fn a_kubeconfig_without_end_or_too_deep_is_an_error() {
    let sandbox = Sandbox::new();
    std::fs::File::create(sandbox.path().join("large")).unwrap().set_len(2 << 30).unwrap();
    sandbox.file("lists", &"[".repeat(100_000));
    sandbox.file("mappings", &"{a: ".repeat(100_000));
    sandbox.file(
        "extension",
        &format!("extensions: [{{name: x, extension: {}1{}}}]\n", "[".repeat(100_000), "]".repeat(100_000)),
    );
    std::fs::write(sandbox.path().join("half"), b"\xff\xfea").unwrap();
    std::fs::write(sandbox.path().join("secret"), "users:\n- name: u\n  user:\n    token: hunter2\n    exec: []\n")
        .unwrap();
    let pipe = sandbox.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // It blocks until the program opens the other end, and ends with it.
    std::thread::spawn(move || {
        let mut writer = std::fs::OpenOptions::new().write(true).open(pipe).unwrap();
        while writer.write_all(&[b'y'; 4096]).is_ok() {}
    });
    for (file, part) in [
        ("large", "larger than 4 MiB"),
        ("/dev/zero", "larger than 4 MiB"),
        ("pipe", "larger than 4 MiB"),
        ("lists", "recursion limit"),
        ("mappings", "recursion limit"),
        ("extension", "recursion limit"),
        ("half", "UTF-16"),
        ("secret", "`users[name=u].user.exec` is a list"),
    ] {
        let ran = bounded(&sandbox, &["status", "demo"], &[("KUBECONFIG", file)]);
        ran.fails(1, &["cannot use the kubeconfig", file, part]);
        assert!(!ran.stderr.contains("hunter2"), "{}", ran.stderr);
    }
}

#[test]
fn entries_are_not_merged_into_a_kubeconfig_that_nests_too_deep() {
    let sandbox = Sandbox::new();
    let exposure = "exposure.type=NodePort,exposure.host=192.0.2.10,exposure.port=32222";
    sandbox.run(&["template", "cp", "demo", "--set", exposure]).succeeds();
    let extension = |levels: usize| {
        format!("clusters: []\nextensions:\n- name: x\n  extension: {}1{}\n", "[".repeat(levels), "]".repeat(levels))
    };
    for text in ["[".repeat(100_000), "{a: ".repeat(100_000), extension(100), extension(100_000)] {
        let file = sandbox.file("config", &text);
        let ran = bounded(&sandbox, &["kubeconfig", "demo", "--merge"], &[("KUBECONFIG", &file)]);
        assert!(ran.code == 1 || ran.code == 6, "{ran:?}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    }
}

#[test]
fn a_time_out_that_no_clock_can_count_is_wrong_usage() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("config", &kubeconfig("server: 'https://127.0.0.1:1'", "token: x"));
    for timeout in ["9223372036854775807s", "8761h"] {
        for args in [
            &["status", "demo", "--wait", "--timeout", timeout][..],
            &["install", "cp", "demo", "--timeout", timeout],
            &["install", "cp", "demo", "--lock-wait", timeout],
            &["uninstall", "cp", "demo", "--yes", "--timeout", timeout],
            &["delete", "cluster", "west", "--yes", "--timeout", timeout],
        ] {
            bounded(&sandbox, args, &[("KUBECONFIG", &file)]).fails(2, &["the longest duration is one year"]);
        }
    }
    bounded(&sandbox, &["status", "demo", "--wait", "--timeout", "8760h", "-o", "x"], &[]).fails(2, &["--output"]);
}
