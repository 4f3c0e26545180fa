//! `down` leaves the machine as it was before `up`, however `up` ended. Needs root; uses a bed of its own.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use bed::Bed;

/// The bed that is brought up and down here.
const NAME: &str = "leaves-nothing";

/// Everything on the machine that a bed could leave behind, a line each. What belongs to another bed is not in it:
/// other checkouts may be at work.
fn machine(bed: &Bed) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    let mut add = |kind: &str, what: String| {
        if !of_another_bed(bed, &what) {
            lines.insert(format!("{kind} {what}"));
        }
    };
    for link in names("/sys/class/net") {
        add("link", link);
    }
    for mount in read("/proc/self/mountinfo").lines() {
        add("mount", mount.split(' ').nth(4).unwrap_or_default().to_owned());
    }
    for hierarchy in names("/sys/fs/cgroup") {
        for group in names(&format!("/sys/fs/cgroup/{hierarchy}")) {
            if Path::new("/sys/fs/cgroup").join(&hierarchy).join(&group).is_dir() && group.starts_with("fb") {
                add("cgroup", group);
            }
        }
    }
    for folder in
        ["/var/cache", "/var/lib", "/var/log", "/run", "/run/netns", "/var/lib/cni", "/var/log/pods", "/etc/cni"]
    {
        for name in names(folder) {
            add("file", format!("{folder}/{name}"));
        }
    }
    for table in ["iptables-save", "ip6tables-save"] {
        let rules = Command::new(table).output().map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
        for rule in rules.unwrap_or_default().lines().filter(|line| line.starts_with("-A")) {
            add(table, rule.to_owned());
        }
    }
    for pid in names("/proc").iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
        let of = |file: &str| read(&format!("/proc/{pid}/{file}")).replace('\0', " ");
        let (command, place, environ) = (of("cmdline"), of("cgroup"), of("environ"));
        let ours = [&command, &place, &environ].iter().any(|text| text.contains(bed.id()));
        if ours && !zombie(pid) {
            add("process", format!("{pid} {command}"));
        }
        if !of_another_bed(bed, &format!("{place} {}", mark(&environ))) {
            for space in ["net", "mnt"] {
                let link = std::fs::read_link(format!("/proc/{pid}/ns/{space}")).unwrap_or_default();
                if ours {
                    add("namespace", link.display().to_string());
                }
            }
        }
    }
    lines
}

fn mark(environ: &str) -> String {
    environ.split(' ').find(|entry| entry.starts_with("FLEETBED_ID=")).unwrap_or_default().replace("FLEETBED_ID=", "fb")
}

/// Whether a text has the name of a bed in it that is not this one: `fb` or `fleetbed-` and eight digits.
fn of_another_bed(bed: &Bed, text: &str) -> bool {
    let id = |rest: &str| rest.get(..8).filter(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit())).map(str::to_owned);
    let found = |prefix: &str| text.match_indices(prefix).find_map(|(at, _)| id(&text[at + prefix.len()..]));
    found("fleetbed-").or_else(|| found("fb")).is_some_and(|id| id != bed.id())
}

fn zombie(pid: &str) -> bool {
    read(&format!("/proc/{pid}/stat")).rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

fn names(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn read(file: &str) -> String {
    std::fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn assert_clean(bed: &Bed, before: &BTreeSet<String>, what: &str) {
    // Something else may be on its way out of the machine; only what stays was left.
    for _ in 0..20 {
        if machine(bed).difference(before).next().is_none() {
            break;
        }
        sleep(Duration::from_millis(100));
    }
    let now = machine(bed);
    let left: Vec<_> = now.difference(before).collect();
    let gone: Vec<_> = before.difference(&now).filter(|line| !line.starts_with("file /run")).collect();
    assert!(left.is_empty(), "{what}: left on the machine: {left:#?}");
    assert!(gone.is_empty(), "{what}: gone from the machine: {gone:#?}");
    assert_eq!(bed.remains(), Vec::<String>::new(), "{what}");
}

fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bed"));
    command.env("FLEETBED_NAME", NAME).args(args).stdin(Stdio::null());
    command
}

const POD: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
   "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}},
  {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
   "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}},
  {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
   "spec": {"containers": [{"name": "c", "image": "busybox:1.35", "command": ["sleep", "1000"],
     "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
     "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}}]}"#;

/// One test, not several: they would share the bed.
#[test]
fn down_leaves_the_machine_as_it_was() {
    let bed = Bed::second(NAME).expect("this checkout has a bed");
    bed.down(&[]).expect("what an earlier run left goes away");
    let before = machine(&bed);

    bed.up(&["host"]).expect("a cluster comes up");
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), POD).expect("it can be written");
    bed.kubectl("host", &["apply", "-f", &file.path().display().to_string()]).expect("objects are taken");
    bed.kubectl("host", &["wait", "--for=condition=Ready", "pod/web", "--timeout=90s"])
        .expect("a pod with a volume runs");
    assert!(machine(&bed).len() > before.len() + 20, "a running cluster is seen by what this test compares");
    bed.pause("host", "kubelet").expect("a component can be paused");
    bed.down(&[]).expect("the bed goes down");
    assert_clean(&bed, &before, "after a pod ran and a component was paused");

    for after in [0, 60, 300, 1_500, 5_000, 12_000] {
        let mut up = program(&["up", "host"]).stderr(Stdio::null()).spawn().expect("bed starts");
        sleep(Duration::from_millis(after));
        up.kill().expect("bed is killed");
        up.wait().expect("bed has ended");
        let down = program(&["down"]).output().expect("bed starts");
        assert!(down.status.success(), "killed after {after} ms: {}", String::from_utf8_lossy(&down.stderr));
        assert_clean(&bed, &before, &format!("killed {after} ms into `up`"));
    }
}
