//! Everything that a user can get wrong in values and their flags, and what the program says. `cargo bed goldens` writes
//! the texts anew.
//!
//! Each run is held by the kernel to a second of CPU time and 200 MB of memory, whatever was wrong. This is the debug
//! build, so the bounds are generous by far: users' builds take a tenth.

use std::fmt::Write as _;
use std::process::Stdio;

use assert_cmd::Command;

use crate::{Ran, Sandbox};

const CPU_SECONDS: u32 = 1;
const MEMORY_KIB: u32 = 200_000;

/// Runs the program within the bounds, in the sandbox's folder.
fn bounded(sandbox: &Sandbox, args: &[&str], stdin: &[u8]) -> Ran {
    let binary = assert_cmd::cargo::cargo_bin!("fleetctl");
    // RLIMIT_CPU and RLIMIT_AS; address space is more than what is resident, so this is stricter than it need be.
    let script = format!("ulimit -t {CPU_SECONDS}; ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\"");
    let mut command = Command::new("bash");
    command.env_clear().env("HOME", sandbox.path()).env("LC_ALL", "C.UTF-8").current_dir(sandbox.path());
    let output = command.args(["-c", &script]).arg(binary).args(args).write_stdin(stdin).output().unwrap();
    Ran::of(output)
}

/// What a run says, below what it was about. A long result is only counted.
fn said(about: &str, args: &[&str], ran: &Ran) -> String {
    assert!(matches!(ran.code, 0 | 2 | 3), "{about}: {ran:?}");
    let mut text = format!("### {about}\n$ fleetctl");
    for arg in args {
        let long = arg.len() > 200;
        let _ = match arg.contains([' ', '{', '*', '"']) || arg.is_empty() {
            _ if long => write!(text, " ({} bytes)", arg.len()),
            true => write!(text, " '{arg}'"),
            false => write!(text, " {arg}"),
        };
    }
    let _ = writeln!(text, "\nexit code {}", ran.code);
    if !ran.stdout.is_empty() {
        let _ = writeln!(text, "({} objects)", ran.stdout.matches("\nkind: ").count());
    }
    text + &ran.stderr
}

const DRY: [&str; 4] = ["install", "cp", "demo", "--dry-run"];

#[test]
fn wrong_files_of_values_are_explained() {
    let level = |n: usize| {
        let below = if n == 0 { "x,".to_owned() } else { format!("*a{},", n - 1).repeat(9) };
        format!("a{n}: &a{n} [{below}]\n")
    };
    let bomb: String = (0..60).map(level).collect();
    let nines = format!("etcd: {{quotaBytes: {}}}\n", "9".repeat(500_000));
    let deep = "[".repeat(200_000);
    let long_key = format!("{}: 1\n", "k".repeat(500_000));
    let many: String = (0..80).map(|n| format!("unknown{n}: 1\n")).collect();
    let cases: [(&str, &[u8]); 43] = [
        ("a misspelt key", b"etcd:\n  quotaByte: 3\n"),
        ("a key nobody knows", b"zebra: 3\n"),
        ("a key at the wrong level", b"quotaBytes: 8589934592\n"),
        ("text for a number", b"exposure:\n  port: https\n"),
        ("a quoted number", b"exposure:\n  port: \"443\"\n"),
        ("a number out of range", b"exposure:\n  port: 70000\n"),
        ("a fraction for a whole number", b"exposure:\n  port: 443.5\n"),
        ("another word for an option", b"exposure:\n  type: Loadbalancer\n"),
        ("a size with a unit for a number of bytes", b"etcd:\n  quotaBytes: 2GB\n"),
        ("a number of 500 kB", nines.as_bytes()),
        ("a number beyond 64 bits", b"etcd:\n  quotaBytes: 99999999999999999999\n"),
        ("an octal-looking number", b"exposure:\n  port: 0443\n"),
        ("an octal-looking number where text is wanted", b"etcd:\n  image:\n    tag: 0123456\n"),
        ("yes for a boolean", b"networkPolicy:\n  enabled: yes\n"),
        ("maybe for a boolean", b"networkPolicy:\n  enabled: maybe\n"),
        ("no where text is wanted", b"cloud:\n  projectId: no\n"),
        ("a list for a mapping", b"etcd: []\n"),
        ("a mapping for a list", b"etcd:\n  extraArgs: {--v: 4}\n"),
        ("an item of a list that does not fit", b"etcd:\n  extraArgs: [--a=b, c]\n"),
        ("a quantity that is none", b"etcd:\n  storage: {size: ten}\n"),
        ("null for what must be there", b"etcd: null\n"),
        ("a value of a newer version", b"spread: Required\n"),
        ("the same key twice", b"name: a\nname: b\n"),
        ("a tab", b"etcd:\n\tquotaBytes: 3\n"),
        ("a quote that is not closed", b"name: \"demo\nnamespace: {}\n"),
        ("a quote in a quote", b"name: 'it's'\n"),
        ("a bracket that is not closed", b"etcd: {quotaBytes: 3\n"),
        ("wrong indentation", b"etcd:\n  quotaBytes: 3\n   image: {}\n"),
        ("a template instead of a value", b"name: {{ name }}\n"),
        ("a character that YAML reserves", b"name: @demo\n"),
        ("a tag nobody knows", b"name: !env NAME\n"),
        ("an alias of nothing", b"name: *other\n"),
        ("an alias of what it is in", b"name: &a [*a]\n"),
        ("a bomb of aliases", bomb.as_bytes()),
        ("a list of lists of lists", deep.as_bytes()),
        ("a key of 500 kB", long_key.as_bytes()),
        ("a list instead of values", b"- etcd\n"),
        ("text instead of values", b"hello\n"),
        ("several documents", b"name: a\n---\nname: b\n"),
        ("bytes that are no UTF-8", b"name: gr\xfc\xdfe\n"),
        ("UTF-16", b"\xff\xfen\0a\0m\0e\0"),
        ("a control character", b"name: a\x07b\n"),
        ("an empty file", b""),
    ];
    let sandbox = Sandbox::new();
    let mut all: Vec<String> = Vec::new();
    let mut run = |about: &str, content: &[u8]| {
        std::fs::write(sandbox.path().join("my.yaml"), content).unwrap();
        let args = [&DRY[..], &["--values", "my.yaml"]].concat();
        let ran = bounded(&sandbox, &args, b"");
        all.push(said(about, &args, &ran));
    };
    for (about, content) in cases {
        run(about, content);
    }
    run("eighty mistakes at once", many.as_bytes());
    run("a misspelt key that may hold a secret", b"registryCredential: hunter2\n");
    insta::assert_snapshot!(all.join("\n"));
    assert!(!all.concat().contains("hunter2"));
}

#[test]
fn wrong_paths_and_flags_of_values_are_explained() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path().join("folder")).unwrap();
    sandbox.file("key.json", "{\"private\": hunter2}");
    // Sparse, so it takes no disk; the program must not read it to its end either.
    std::fs::File::create(sandbox.path().join("large.yaml")).unwrap().set_len(100 << 20).unwrap();
    let long = format!("etcd.extraArgs={{{}}}", "--x,".repeat(30_000));
    let deep = format!("{}=1", "a.".repeat(5_000) + "a");
    let cases: [(&str, &[&str]); 44] = [
        ("a file that is missing", &["--values", "missing.yaml"]),
        ("a folder", &["--values", "folder"]),
        ("a file of 100 MB", &["--values", "large.yaml"]),
        ("a device without end", &["--values", "/dev/zero"]),
        ("no file", &["--values"]),
        ("no value", &["--set", "etcd"]),
        ("nothing", &["--set", "=3"]),
        ("no key", &["--set", "=3"]),
        ("an empty key", &["--set", "etcd..quotaBytes=3"]),
        ("a misspelt key", &["--set", "etcd.quotaByte=3"]),
        ("text for a number", &["--set", "exposure.port=https"]),
        ("one wrong of two", &["--set", "exposure.port=443,exposure.type=nodeport"]),
        ("a brace that is not closed", &["--set", "etcd.extraArgs={--a=b"]),
        ("a bracket that is not closed", &["--set", "etcd.extraArgs[0=--a"]),
        ("an index that is none", &["--set", "etcd.extraArgs[x]=--a"]),
        ("an index behind the end", &["--set", "etcd.extraArgs[7]=--a"]),
        ("a huge index", &["--set", "etcd.extraArgs[99999999999]=--a"]),
        ("an index of what is no list", &["--set", "exposure.type[0]=Auto"]),
        ("a key below what is no mapping", &["--set", "exposure.type.kind=Auto"]),
        ("null for what must be there", &["--set", "etcd=null"]),
        ("an argument of 120 kB", &["--set", &long]),
        ("a path of 5,000 keys", &["--set", &deep]),
        ("text where a number is wanted", &["--set-string", "exposure.port=443"]),
        ("half of some JSON", &["--set-json", "etcd={\"quotaBytes\":"]),
        ("JSON of the wrong type", &["--set-json", "etcd={\"quotaBytes\": \"x\"}"]),
        ("a key twice in JSON", &["--set-json", "etcd={\"quotaBytes\": 1, \"quotaBytes\": 3}"]),
        ("a slip on the second line of JSON", &["--set-json", "etcd={\n  \"quotaBytes\": many}"]),
        ("the file of a value is missing", &["--set-file", "registryCredentials=missing.json"]),
        ("the file of a value is a folder", &["--set-file", "registryCredentials=folder"]),
        ("a version nobody knows", &["--version", "v9.9"]),
        ("a version that is none", &["--version", "newest"]),
        ("a version that is no tag", &["--version", "v1.1.0+x"]),
        ("a tag that is none", &["--image-tag", "v1.1.0+x"]),
        ("a tag that says no version", &["--image-tag", "latest"]),
        ("version and tag that disagree", &["--version", "v0.6", "--image-tag", "v1.1.0"]),
        ("a version that needs a cluster", &["--version", "auto"]),
        ("an empty registry", &["--image-registry", ""]),
        ("a pull policy that is none", &["--image-pull-policy", "Sometimes"]),
        ("a key file that is no JSON", &["--cloud-access-key", "key.json"]),
        ("a name that is none", &["--set", "name=My_Name", "--set", "exposure.host=a b"]),
        ("a port in an address", &["--set", "exposure.host=fleet.example.com:6443"]),
        ("addresses that are none", &["--set", "exposure.host=10.0.0.300,exposure.extraSANs={a.example,a..b}"]),
        ("IPv6 without brackets", &["--set", "exposure.agentEndpoint=fd00::1:443"]),
        ("lives out of bounds", &["--set", "scheduler.initTokenTTL=3650d,scheduler.agentCertificateTTL=300s"]),
    ];
    let mut all: Vec<String> = Vec::new();
    for (about, flags) in cases {
        let args = [&DRY[..], flags].concat();
        all.push(said(about, &args, &bounded(&sandbox, &args, b"")));
    }
    for (about, args) in [
        ("no name", &["install", "cp", "--dry-run"][..]),
        ("a wrong name in the values", &["install", "cp", "--dry-run", "--set", "name=My_Name"]),
        ("a number for a name", &["install", "cp", "--dry-run", "--set", "name=2024"]),
        ("a fraction for a name", &["install", "cp", "--dry-run", "--set", "name=20.24"]),
        ("a number in JSON for a name", &["install", "cp", "--dry-run", "--set-json", "name=2024"]),
        ("a list for a name", &["install", "cp", "--dry-run", "--set", "name={a,b}"]),
    ] {
        all.push(said(about, args, &bounded(&sandbox, args, b"")));
    }
    let args = [&DRY[..], &["--values", "-"]].concat();
    all.push(said("bytes on standard input", &args, &bounded(&sandbox, &args, b"\x80\x81")));
    all.push(said("a mistake on standard input", &args, &bounded(&sandbox, &args, b"etcd: 3\n")));
    insta::assert_snapshot!(all.join("\n"));
    assert!(!all.concat().contains("hunter2"));
}

#[test]
fn the_bounds_are_enforced() {
    let run = |script: &str| {
        let script = format!("ulimit -t {CPU_SECONDS}; ulimit -v {MEMORY_KIB}; {script}");
        let mut bash = std::process::Command::new("bash");
        bash.args(["-c", &script]).stderr(Stdio::null()).stdout(Stdio::null()).status().unwrap()
    };
    assert!(run("true").success());
    assert!(!run("while :; do :; done").success(), "a second of CPU time is all there is");
    assert!(!run("head -c 300000000 /dev/zero | tail -c 300000000 | wc -c; exit ${PIPESTATUS[1]}").success());
}
