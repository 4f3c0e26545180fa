//! The clusters of the tests, the program as a user runs it, and what a run leaves behind.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bed::{Bed, Turn, Turns};
use serde_json::Value;
use tempfile::TempDir;

/// The Secrets with keys of a control plane.
pub(crate) const KEY_SECRETS: [&str; 6] = [
    "fleet-pki",
    "etcd-certs",
    "apiserver-certs",
    "controller-manager-kubeconfig",
    "fleet-scheduler-kubeconfig",
    "fleet-kubeconfig",
];

/// Tests that change the same cluster run one after another, whatever the number of test threads.
static TURNS: Turns = Turns::new();

/// The bed with the images of this project in its registry.
pub(crate) fn bed() -> &'static Bed {
    static BED: OnceLock<Bed> = OnceLock::new();
    BED.get_or_init(|| {
        let bed = Bed::here().unwrap();
        let profile = std::env::var("FLEETBED_PROFILE").unwrap_or_else(|_| bed::PROFILE.to_owned());
        bed.images(&profile, &bed::TESTED.map(str::to_owned)).unwrap();
        bed
    })
}

/// A clean cluster and a home of its own, for one test.
pub(crate) struct Site {
    pub(crate) bed: &'static Bed,
    pub(crate) cluster: &'static str,
    pub(crate) kubeconfig: PathBuf,
    home: TempDir,
    outputs: Mutex<String>,
    turn: Turn,
}

/// What a run printed and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Ran {
    pub(crate) fn of(output: Output, began: Instant) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            took: began.elapsed(),
        }
    }

    /// Asserts success and gives stdout.
    #[track_caller]
    pub(crate) fn succeeds(&self) -> &str {
        assert_eq!(self.code, Some(0), "{}\n{}", self.stdout, self.stderr);
        &self.stdout
    }

    /// Asserts the exit code and that every part is on stderr.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{}\n{}", self.stdout, self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "`{part}` is not in:\n{}", self.stderr);
        }
    }
}

impl Site {
    /// A running cluster without any trace of an earlier test. `host` and `current` stand for either of two that are the same.
    pub(crate) fn on(cluster: &'static str) -> Self {
        Self::of(match cluster {
            "host" => TURNS.take(&[&["host-2"], &["host"]]),
            "current" => TURNS.take(&[&["current-2"], &["current"]]),
            "minor-29" => TURNS.take(&[&["minor-29"]]),
            "minor-31" => TURNS.take(&[&["minor-31"]]),
            "minor-33" => TURNS.take(&[&["minor-33"]]),
            "minor-35" => TURNS.take(&[&["minor-35"]]),
            "minor-37" => TURNS.take(&[&["minor-37"]]),
            other => panic!("no control plane is installed in {other}"),
        })
    }

    /// The same with a workload cluster, which is to be had by [`Member::beside`](crate::member::Member::beside).
    pub(crate) fn with(cluster: &'static str, member: &'static str) -> Self {
        Self::of(match (cluster, member) {
            ("host", "member-1") => TURNS.take(&[&["host", "member-1"], &["host-2", "member-1"]]),
            ("current", "member-2") => TURNS.take(&[&["current", "member-2"], &["current-2", "member-2"]]),
            other => panic!("no test has {other:?}"),
        })
    }

    fn of(turn: Turn) -> Self {
        let bed = bed();
        bed.up(turn.clusters).unwrap();
        let cluster = turn.clusters[0];
        let site = Self {
            bed,
            cluster,
            kubeconfig: bed.kubeconfig(cluster).unwrap(),
            home: TempDir::new().unwrap(),
            outputs: Mutex::new(String::new()),
            turn,
        };
        site.clean();
        site
    }

    /// Takes away what a test that failed half-way may have left: deleting the namespace takes its content along.
    fn clean(&self) {
        let began = Instant::now();
        let namespaces = ["delete", "namespace", "fleet", "fleet-two", "--ignore-not-found", "--wait=true"];
        let _ = self.bed.kubectl(self.cluster, &namespaces);
        let _ = self.bed.restore_storage_class(self.cluster);
        // The provisioner makes and removes volumes by pods of its own, also after the claim has gone.
        let none =
            |args: &[&str], part: &str| self.bed.kubectl(self.cluster, args).is_ok_and(|left| !left.contains(part));
        eventually("the end of every volume", || {
            none(&["get", "persistentvolumes", "-o", "name"], "persistentvolume/")
                && none(&["-n", "local-path-storage", "get", "pods", "-o", "name"], "helper-pod")
        });
        took(began.elapsed(), &format!("cleaning {}", self.cluster));
    }

    /// Whether the test has this cluster for itself.
    pub(crate) fn has(&self, cluster: &str) -> bool {
        self.turn.clusters.contains(&cluster)
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn fleet_folder(&self) -> PathBuf {
        self.home.path().join(".fleet/demo")
    }

    /// The file that the install wrote, which leads to the control plane's own API.
    pub(crate) fn hub_kubeconfig(&self) -> PathBuf {
        self.fleet_folder().join("fleet-kubeconfig")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("fleetctl"));
        command.env_clear().env("HOME", self.home()).env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("KUBECONFIG", &self.kubeconfig).env("LC_ALL", "C.UTF-8").args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A folder with `fleetctl`, `kubectl fleet` and kubectl, as a user has them on the PATH.
    pub(crate) fn bin(&self) -> PathBuf {
        let bin = self.home().join("bin");
        let fleetctl = PathBuf::from(assert_cmd::cargo::cargo_bin!("fleetctl"));
        if std::fs::create_dir(&bin).is_ok() {
            symlink(&fleetctl, bin.join("fleetctl")).unwrap();
            symlink(&fleetctl, bin.join("kubectl-fleet")).unwrap();
            symlink(self.bed.kubectl_path().unwrap(), bin.join("kubectl")).unwrap();
        }
        bin
    }

    /// The PATH of a user whose programs are in these folders too.
    pub(crate) fn path(&self, more: &[PathBuf]) -> OsString {
        let usual = std::env::var_os("PATH").unwrap_or_default();
        let own = more.iter().cloned().chain([self.bin()]);
        std::env::join_paths(own.chain(std::env::split_paths(&usual))).unwrap()
    }

    /// Runs `fleetctl` to its end and keeps what it printed for [`Site::assert_no_secret_was_shown`].
    pub(crate) fn fleetctl(&self, args: &[&str]) -> Ran {
        self.finish(self.command(args))
    }

    /// The same of a user whose kubeconfigs know the control plane too.
    pub(crate) fn both(&self, args: &[&str]) -> Ran {
        let mut command = self.command(args);
        let files = [self.kubeconfig.clone(), self.hub_kubeconfig()];
        command.env("KUBECONFIG", std::env::join_paths(files).unwrap());
        self.finish(command)
    }

    pub(crate) fn finish(&self, mut command: Command) -> Ran {
        let began = Instant::now();
        let ran = Ran::of(command.output().unwrap(), began);
        took(ran.took, &format!("{command:?}"));
        let mut outputs = self.outputs.lock().unwrap_or_else(PoisonError::into_inner);
        outputs.push_str(&ran.stdout);
        outputs.push_str(&ran.stderr);
        ran
    }

    /// Notes what somebody has seen, for [`Site::assert_no_secret_was_shown`].
    pub(crate) fn saw(&self, text: &str) {
        self.outputs.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
    }

    /// Flags for a service version that supports this cluster; none on `host`, which the default version supports.
    pub(crate) fn version(&self) -> &'static [&'static str] {
        if self.cluster.starts_with("host") { &[] } else { &["--version", "v1.2"] }
    }

    pub(crate) fn install(&self, more: &[&str]) -> Ran {
        self.fleetctl(&[&["install", "cp", "demo"], more].concat())
    }

    /// The manifests for a node port, as `template` prints them.
    pub(crate) fn manifests(&self) -> Ran {
        self.manifests_with(&[])
    }

    /// The same with further flags.
    pub(crate) fn manifests_with(&self, more: &[&str]) -> Ran {
        let preset = concat!(env!("CARGO_MANIFEST_DIR"), "/values/nodeport.yaml");
        let host = format!("exposure.host={}", self.bed.node_ip(self.cluster).unwrap());
        self.fleetctl(&[&["template", "cp", "demo", "--values", preset, "--set", &host], more].concat())
    }

    /// `kubectl apply -f -`: all at once, and nothing is waited for.
    #[track_caller]
    pub(crate) fn apply(&self, manifests: &str) {
        let mut kubectl = Command::new(self.bed.kubectl_path().unwrap())
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["apply", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        kubectl.stdin.take().unwrap().write_all(manifests.as_bytes()).unwrap();
        assert!(kubectl.wait_with_output().unwrap().status.success());
    }

    /// `kubectl apply --server-side --force-conflicts -f -`; gives what it says on stderr.
    pub(crate) fn apply_on_server(&self, manifests: &str) -> String {
        let mut kubectl = Command::new(self.bed.kubectl_path().unwrap())
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["apply", "--server-side", "--force-conflicts", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        kubectl.stdin.take().unwrap().write_all(manifests.as_bytes()).unwrap();
        String::from_utf8(kubectl.wait_with_output().unwrap().stderr).unwrap()
    }

    pub(crate) fn kubectl(&self, args: &[&str]) -> String {
        self.bed.kubectl(self.cluster, args).unwrap()
    }

    /// kubectl against the control plane's own API, by the file that the install wrote.
    #[track_caller]
    pub(crate) fn hub(&self, args: &[&str]) -> String {
        self.asks_hub(args).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`Self::hub`], where the API server may be away: pods that were replaced end in their own time.
    pub(crate) fn asks_hub(&self, args: &[&str]) -> Result<String, String> {
        let file = self.hub_kubeconfig().display().to_string();
        let own = ["--kubeconfig", &file, "--context", "demo"];
        let output = Command::new(self.bed.kubectl_path().unwrap()).args(own).args(args).output().unwrap();
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(String::from_utf8(output.stdout).unwrap())
    }

    /// All objects of the cluster but what differs by itself.
    pub(crate) fn dump(&self) -> BTreeMap<String, Value> {
        self.bed.dump(self.cluster).unwrap()
    }

    /// Asserts that the cluster is what it was. A volume whose claim goes while it is being made appears and is taken
    /// back by its provisioner in its own time, so that is waited for.
    #[track_caller]
    pub(crate) fn assert_same_as(&self, before: &BTreeMap<String, Value>) {
        assert_becomes(before, || self.dump());
    }

    /// The decoded entries of a Secret of the hosting cluster.
    pub(crate) fn secret(&self, name: &str) -> BTreeMap<String, String> {
        decoded(&self.kubectl(&["-n", "fleet", "get", "secret", name, "-o", "json"]))
    }

    /// Asserts that nothing any run printed, and no log of a component, holds a private key, a token or a kubeconfig's
    /// key data of this control plane.
    #[track_caller]
    pub(crate) fn assert_no_secret_was_shown(&self) {
        let mut canaries: Vec<String> = Vec::new();
        for name in KEY_SECRETS {
            for (key, text) in self.secret(name) {
                let secret = Path::new(&key).extension().is_some_and(|kind| kind == "key")
                    || key == "kubeconfig"
                    || key == "encryption.yaml";
                canaries.extend(secret.then(|| secret_lines(&text)).into_iter().flatten());
            }
        }
        for secret in
            decoded(&self.hub(&["-n", "fleet", "get", "secret", "fleet-cluster-init-kubeconfig", "-o", "json"]))
                .values()
        {
            canaries.extend(secret.lines().filter_map(|line| line.trim().strip_prefix("token: ")).map(str::to_owned));
        }
        assert!(canaries.len() > 20, "{} canaries", canaries.len());
        let mut shown = self.outputs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for selector in ["etcd", "apiserver", "kube-controller-manager", "fleet-scheduler"] {
            let selector = format!("app.kubernetes.io/name={selector}");
            shown.push_str(&self.kubectl(&["-n", "fleet", "logs", "-l", &selector, "--tail=-1"]));
        }
        assert!(shown.len() > 1000 && shown.contains("fleet-scheduler"), "there is something to search");
        for canary in &canaries {
            assert!(!shown.contains(canary.as_str()), "a secret was shown: {}…", &canary[..8.min(canary.len())]);
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.clean();
        }
    }
}

fn decoded(secret: &str) -> BTreeMap<String, String> {
    let secret: Value = serde_json::from_str(secret).unwrap();
    let data = secret["data"].as_object().unwrap().iter();
    data.map(|(key, value)| {
        let bytes = STANDARD.decode(value.as_str().unwrap()).unwrap();
        (key.clone(), String::from_utf8(bytes).unwrap())
    })
    .collect()
}

/// The lines of a text that must never be seen: the bodies of private keys, key data and encryption keys.
fn secret_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        inside = (inside || line.contains("PRIVATE KEY")) && !line.contains("END ");
        let value = line.trim().strip_prefix("client-key-data: ").or_else(|| line.trim().strip_prefix("secret: "));
        match value {
            Some(value) => lines.push(value.trim_matches('"').to_owned()),
            None if inside && !line.contains("BEGIN") && line.len() > 15 => lines.push(line.to_owned()),
            None => {}
        }
    }
    lines
}

/// Notes what a test has done, and how long it took: shown where it fails, or with `--show-output`.
#[expect(clippy::print_stdout, reason = "the test's own output, which is captured")]
pub(crate) fn took(took: Duration, what: &str) {
    println!("{:>6.1} s  {}", took.as_secs_f64(), what.rsplit(r#"/fleetctl""#).next().unwrap_or(what));
}

/// Waits for a condition, and says what was waited for. The limit is above the five minutes after which a kubelet
/// starts a container again that has ended several times.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(400), "{what} did not come true");
        std::thread::sleep(Duration::from_millis(250));
    }
    took(began.elapsed(), what);
}

/// Asserts that a cluster is what it was, once what ends in its own time has ended: pods, namespaces, volumes.
#[track_caller]
pub(crate) fn assert_becomes(before: &BTreeMap<String, Value>, now: impl Fn() -> BTreeMap<String, Value>) {
    let began = Instant::now();
    loop {
        let differences = bed::differences(before, &now());
        if differences.is_empty() {
            took(began.elapsed(), "the same as before");
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "{differences:#?}");
        std::thread::sleep(Duration::from_millis(500));
    }
}
