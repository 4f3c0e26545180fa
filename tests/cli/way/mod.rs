//! A way to the API server on which an answer breaks: each command gets through whatever kubectl gets through, and what is no
//! answer of a Kubernetes API is told in a sentence.

mod relay;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use relay::{Breakage, Relay};

use crate::hostile::{Cluster, Kept, fleet, installed};
use crate::server::{kubeconfig, serve, serve_as_it_is};
use crate::status::{hosting, inside};
use crate::{Ran, Sandbox};

/// Number of runs at once: they mostly wait.
const TOGETHER: usize = 24;
/// The most answers of one command that are broken, one in each run; of more, some are left out evenly.
const BROKEN: usize = 3;

/// A command, and the server before which the relay stands.
struct Case {
    args: &'static [&'static str],
    upstream: fn() -> String,
}

/// A control plane's own API.
fn control_plane() -> String {
    serve_as_it_is(|asked| said(fleet(&asked)))
}

/// A hosting cluster with a healthy control plane.
fn healthy() -> String {
    let hub = serve(|_, path| inside(path));
    serve(move |_, path| hosting(path, &hub, 1))
}

/// A hosting cluster with an installed control plane, which takes what is written.
fn writable() -> String {
    static INSTALLED: Mutex<Option<Cluster>> = Mutex::new(None);
    let cluster = INSTALLED.lock().unwrap().get_or_insert_with(|| installed(Kept::Record)).copy();
    serve_as_it_is(move |asked| said(cluster.answer(&asked)))
}

/// One in which nothing is installed.
fn vacant() -> String {
    let cluster = Cluster::default();
    serve_as_it_is(move |asked| said(cluster.answer(&asked)))
}

fn said((status, body): crate::server::Answer) -> crate::server::Said {
    crate::server::Said {
        status,
        head: b"content-type: application/json".to_vec(),
        body: body.to_string().into_bytes(),
    }
}

const CASES: [Case; 12] = [
    Case { args: &["get", "clusters"], upstream: control_plane },
    Case { args: &["get", "clusters", "-o", "json"], upstream: control_plane },
    Case { args: &["why", "deployment/web", "--namespace", "shop"], upstream: control_plane },
    Case { args: &["completion-words", "get", "clusters", ""], upstream: control_plane },
    Case { args: &["status", "demo"], upstream: healthy },
    Case { args: &["check", "demo", "-o", "short"], upstream: healthy },
    Case { args: &["check", "--pre", "--version", "v1.1"], upstream: vacant },
    Case { args: &["version"], upstream: healthy },
    Case { args: &["kubeconfig", "demo"], upstream: healthy },
    Case { args: &["install", "cp", "demo", "--skip-preflight", "nodes,storage", "--timeout", "4s"], upstream: vacant },
    Case {
        args: &["upgrade", "cp", "demo", "--yes", "--skip-preflight", "nodes,storage", "--timeout", "4s"],
        upstream: writable,
    },
    Case { args: &["uninstall", "cp", "demo", "--timeout", "60s"], upstream: writable },
];

/// What a run comes to: exit code, result, and what it says besides.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    code: i32,
    stdout: String,
}

/// Runs a command through a relay that breaks the `nth` answer. Returns the outcome, everything that was printed, and the
/// number of requests.
fn run_broken(case: &Case, nth: usize, breakage: Breakage) -> (Outcome, String, usize) {
    let relay = Relay::start(&(case.upstream)(), nth, breakage);
    let sandbox = Sandbox::new();
    let config = sandbox.file("config", &kubeconfig("demo", &relay.address));
    let mut command = sandbox.command();
    match case.args {
        ["completion-words", words @ ..] => {
            command
                .env("FLEET_COMPLETE", "bash")
                .env("_CLAP_IFS", "\n")
                .env("_CLAP_COMPLETE_INDEX", words.len().to_string());
            command.env("KUBECONFIG", &config).arg("--").arg("fleetctl").args(words)
        }
        args => command.args(args).args(["--kubeconfig", &config]),
    };
    let ran = Ran::of(command.timeout(std::time::Duration::from_secs(60)).output().unwrap());
    let printed = format!("{}{}", ran.stdout, ran.stderr);
    let plain = |text: &str| {
        let text = text.replace(relay.address.trim_start_matches("http://"), "ADDRESS").replace(&config, "CONFIG");
        // Ages and times are those of the run.
        text.split_inclusive('\n').filter(|line| !line.contains("seconds")).collect::<String>()
    };
    (Outcome { code: ran.code, stdout: plain(&ran.stdout) }, printed, relay.requests())
}

/// What is wrong with a run whose `nth` answer broke.
fn find_fault(case: &Case, whole: &Outcome, nth: usize, breakage: Breakage) -> Option<String> {
    let (outcome, printed, _) = run_broken(case, nth, breakage);
    let place = format!("{:?}, answer {nth}, {breakage:?}", case.args);
    let words = ["panicked at", "SECRET", "<p>", "<form", "\u{1b}[31m"].into_iter().find(|word| printed.contains(word));
    if let Some(words) = words {
        return Some(format!("{place}: {words:?} is printed:\n{printed}"));
    }
    let tells = printed.contains("not a Kubernetes API");
    let is_right = outcome == *whole || !breakage.heals() && tells;
    (!is_right).then(|| {
        format!("{place}: {} in place of {}:\n{printed}\nin place of\n{}", outcome.code, whole.code, whole.stdout)
    })
}

#[test]
fn every_command_gets_through_a_broken_answer() {
    let mut runs = Vec::new();
    let whole: Vec<(Outcome, usize)> = CASES
        .iter()
        .map(|case| {
            let (outcome, printed, requests) = run_broken(case, 0, Breakage::End);
            assert!(requests > 0, "{:?} asks nothing: {printed}", case.args);
            (outcome, requests)
        })
        .collect();
    for (case, (_, requests)) in whole.iter().enumerate() {
        for breakage in Breakage::ALL {
            let step = requests.div_ceil(BROKEN);
            runs.extend((1..=*requests).step_by(step).map(|nth| (case, nth, breakage)));
        }
    }
    let (runs, faults) = (Mutex::new(runs), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..TOGETHER {
            scope.spawn(|| {
                loop {
                    let Some((case, nth, breakage)) = runs.lock().unwrap().pop() else { return };
                    let fault = find_fault(&CASES[case], &whole[case].0, nth, breakage);
                    faults.lock().unwrap().extend(fault);
                }
            });
        }
    });
    let faults = faults.into_inner().unwrap();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n\n"));
}

/// What kubectl says through a relay that breaks its first answer; nothing where it answers.
fn kubectl_fails(kubectl: &Path, breakage: Breakage) -> Option<String> {
    let relay = Relay::start(&control_plane(), 1, breakage);
    let sandbox = Sandbox::new();
    let config = sandbox.file("config", &kubeconfig("demo", &relay.address));
    let mut kubectl = Command::new(kubectl);
    kubectl.args(["get", "--raw", "/apis/cluster.fleet-scheduler.io/v1alpha1/clusters", "--kubeconfig", &config]);
    let ran = kubectl.stdin(Stdio::null()).env("HOME", sandbox.path()).output().unwrap();
    (!ran.status.success()).then(|| String::from_utf8_lossy(&ran.stderr).into_owned())
}

#[test]
fn what_kubectl_gets_through_is_repeated() {
    // Where none was built yet, there is nobody to ask.
    let Ok(kubectl) = bed::Bed::here().and_then(|bed| bed.kubectl_path()) else { return };
    // A page that answers 200 is shown by `--raw`, whatever it is.
    let is_judged = |breakage: &Breakage| !matches!(breakage, Breakage::Page | Breakage::OtherJson);
    for breakage in Breakage::ALL.into_iter().filter(is_judged) {
        let fails = kubectl_fails(&kubectl, breakage);
        assert!(fails.is_some() || breakage.heals(), "kubectl gets through {breakage:?}");
        // Without this the one above could not fail.
        assert!(fails.is_none() || breakage != Breakage::TooMany, "{breakage:?}: {fails:?}");
    }
}
