//! Certificates that are renewed three times while everything is asked, and a control plane of three members (preset `ha`) that
//! loses one of them, is backed up and restored. It runs on one node: its spread is asked for, and not required.

mod exhaustive {
    use std::collections::BTreeMap;
    use std::io::{BufRead as _, BufReader};
    use std::path::Path;
    use std::process::{Child, ChildStdout, Command, Stdio};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use serde_json::Value;

    use crate::keys::{healthy, run_with_arguments};
    use crate::restore::{Scene, shop};
    use crate::support::{Site, eventually};

    /// How long the certificates of each renewal live.
    const LIFETIME: Duration = Duration::from_secs(300);
    const THREE_MEMBERS: &[&str] = &["--preset", "nodeport", "--preset", "ha", "--set", "spread=Preferred"];

    /// A way to a port of a pod, until it is dropped.
    struct Forward {
        child: Child,
        port: u16,
        /// Of the output, which ends the program when nobody is there to read it.
        _reader: BufReader<ChildStdout>,
    }

    impl Forward {
        fn open(site: &Site, pod: &str, port: u16) -> Self {
            let mut kubectl = Command::new(site.bed.kubectl_of(site.cluster).unwrap());
            kubectl.arg("--kubeconfig").arg(&site.kubeconfig).args(["-n", "fleet", "port-forward", pod]);
            let mut child =
                kubectl.arg(format!(":{port}")).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let mut line = String::new();
            let mut reader = BufReader::new(child.stdout.take().unwrap());
            reader.read_line(&mut line).unwrap();
            // Forwarding from 127.0.0.1:PORT -> 2379
            let own = line.split_once("127.0.0.1:").unwrap().1.split_once(' ').unwrap().0;
            let port = own.parse().unwrap();
            Self { child, port, _reader: reader }
        }
    }

    impl Drop for Forward {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    /// Writes the CAs, and the certificate of a client of etcd as it is now.
    fn write_client(site: &Site, folder: &Path) {
        let (kept, etcd) = (site.secret("fleet-pki"), site.secret("etcd-certs"));
        let files = [
            ("ca.crt", &kept),
            ("etcd-ca.crt", &kept),
            ("etcd-health-client.crt", &etcd),
            ("etcd-health-client.key", &etcd),
        ];
        for (name, secret) in files {
            std::fs::write(folder.join(name), &secret[name]).unwrap();
        }
    }

    /// Asks a port of a pod by a connection of its own; returns what went wrong.
    fn ask(folder: &Path, host: &str, port: u16, client: bool) -> Result<(), String> {
        let ca = if client { "etcd-ca.crt" } else { "ca.crt" };
        let mut curl = Command::new("curl");
        curl.current_dir(folder).args(["--silent", "--show-error", "--max-time", "10", "--output", "/dev/null"]);
        curl.args(["--cacert", ca, "--resolve", &format!("{host}:{port}:127.0.0.1")]);
        let path = if client {
            curl.args(["--fail", "--cert", "etcd-health-client.crt", "--key", "etcd-health-client.key"]);
            "health"
        } else {
            // Whoever it is: the connection is what counts.
            "readyz"
        };
        let ran = curl.arg(format!("https://{host}:{port}/{path}")).output().unwrap();
        if ran.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&ran.stderr).into_owned()) }
    }

    /// UID and restarts of all pods but those of the controller manager, which a renewal replaces.
    fn lives(site: &Site) -> BTreeMap<String, String> {
        let path = r"jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.status.containerStatuses[*].restartCount}{'\n'}{end}";
        let listed = site.kubectl(&["-n", "fleet", "get", "pods", "-l", "app.kubernetes.io/name!=keys", "-o", path]);
        let pods = listed.lines().filter(|line| !line.starts_with("kube-controller-manager"));
        let life = |line: &str| {
            let (name, life) = line.split_once(' ').unwrap();
            // The scheduler ends itself when its kubeconfig changes, and is started again in its pod.
            let is_restarted = name.starts_with("fleet-scheduler");
            let life = if is_restarted { life.split_once(' ').unwrap().0 } else { life };
            (name.to_owned(), life.to_owned())
        };
        pods.map(life).collect()
    }

    /// The certificate that each pod serves, by its serial number.
    fn served(site: &Site) -> BTreeMap<String, Value> {
        let listed = site.fleetctl(&["certs", "status", "demo", "-o", "json"]).stdout;
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let rows = listed.as_array().unwrap().iter();
        let of_pods = rows.filter(|row| row["holder"].as_str().unwrap().starts_with("Pod "));
        // The controller manager has other pods after each renewal.
        let asked = of_pods.filter(|row| !row["holder"].as_str().unwrap().contains("controller-manager"));
        asked.map(|row| (format!("{} {}", row["holder"], row["certificate"]), row["serial"].clone())).collect()
    }

    /// Renews all certificates three times, until those of the first renewal have ended; every pod and the public endpoint are
    /// asked throughout, each once a second. Returns the requests and what went wrong.
    #[expect(clippy::print_stdout, reason = "the test's own output, which is captured")]
    fn renew_three_times(site: &Site) -> (usize, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        write_client(site, folder.path());
        let before = lives(site);
        let forward = |name: &String| {
            let (host, port, client) = match name.split('-').next().unwrap() {
                "etcd" => (format!("{name}.etcd.fleet.svc"), 2379, true),
                "apiserver" => ("apiserver.fleet.svc".to_owned(), 6443, false),
                _ => return None,
            };
            Some((host, Forward::open(site, &format!("pod/{name}"), port), client))
        };
        let ways: Vec<(String, Forward, bool)> = before.keys().filter_map(forward).collect();
        let stop = AtomicBool::new(false);
        let said: Mutex<(usize, Vec<String>)> = Mutex::default();
        let note = |what: &str, answer: Result<(), String>| {
            let mut said = said.lock().unwrap();
            said.0 += 1;
            said.1.extend(answer.err().map(|error| format!("{what}: {error}")));
            drop(said);
            std::thread::sleep(Duration::from_secs(1));
        };
        std::thread::scope(|scope| {
            for (host, way, client) in &ways {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        note(host, ask(folder.path(), host, way.port, *client));
                    }
                });
            }
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    note("the public endpoint", site.asks_hub(&["get", "--raw", "/readyz"]).map(drop));
                }
            });
            // Before the first renewal nobody has looked at what pods serve.
            let mut serials = BTreeMap::new();
            let mut first = None;
            for round in 1..=3 {
                let lifetime = format!("--leaf-lifetime={}s", LIFETIME.as_secs());
                let renewed = run_with_arguments(site, &format!("renew-{round}"), &[&lifetime, "--renew-before=366d"]);
                assert!(renewed.0, "{renewed:?}");
                first.get_or_insert_with(Instant::now);
                write_client(site, folder.path());
                let now = served(site);
                assert!(now.len() >= ways.len(), "{now:?}");
                assert!(
                    now.iter().all(|(holder, serial)| serials.get(holder) != Some(serial)),
                    "{serials:?} and {now:?}"
                );
                serials = now;
            }
            // The kubeconfig of this machine would end, too.
            site.fleetctl(&["certs", "renew", "demo"]).succeeds();
            write_client(site, folder.path());
            while first.unwrap().elapsed() < LIFETIME + Duration::from_secs(30) {
                std::thread::sleep(Duration::from_secs(1));
            }
            stop.store(true, Ordering::Relaxed);
        });
        let said = said.into_inner().unwrap();
        println!("{} requests, {} failed: {:?}", said.0, said.1.len(), said.1.iter().take(10).collect::<Vec<_>>());
        assert_eq!(lives(site), before, "a pod was made again or restarted");
        said
    }

    #[test]
    fn three_renewals_fail_no_request_with_one_member() {
        let site = Site::on("current");
        site.install(&[&["--preset", "nodeport"][..], site.version()].concat()).succeeds();
        let (asked, faults) = renew_three_times(&site);
        assert!(asked > 300 && faults.is_empty(), "{} of {asked} requests failed: {faults:?}", faults.len());
        site.fleetctl(&["uninstall", "cp", "demo", "--yes", "--delete-data"]).succeeds();
    }

    #[test]
    fn three_members_renew_lose_one_and_come_back_from_a_backup() {
        let site = Site::on("current");
        let before = site.dump();
        let scene = Scene::install_with(&site, THREE_MEMBERS);
        healthy(&site);
        let members = || -> Value {
            serde_json::from_str(site.fleetctl(&["etcd", "status", "demo", "-o", "json"]).succeeds()).unwrap()
        };
        let found = members();
        assert_eq!(found["members"].as_array().unwrap().len(), 3, "{found}");
        let (asked, faults) = renew_three_times(&site);
        assert!(asked > 900 && faults.is_empty(), "{} of {asked} requests failed: {faults:?}", faults.len());

        // The leader is lost: two go on, and the third comes back.
        let report = members();
        let first = &report["members"][0];
        let lists = first["lists"].as_array().unwrap().iter();
        let leader = lists.into_iter().find(|member| member["id"] == first["status"]["leader"]);
        let leader = leader.unwrap_or_else(|| panic!("{first}"))["name"].as_str().unwrap().to_owned();
        scene.apply(&shop());
        site.kubectl(&["-n", "fleet", "delete", "pod", &leader, "--wait=false"]);
        eventually("writes without it", || scene.try_value("while it was away"));
        eventually("all members to agree again", || site.fleetctl(&["etcd", "status", "demo"]).code == Some(0));
        healthy(&site);

        scene.set_value("first");
        let path = scene.back_up();
        scene.set_value("second");
        let restored = scene.restore(&path, &[]);
        assert!(restored.succeeds().contains("Restored control plane demo"), "{restored:?}");
        assert_eq!(scene.value(), "first");
        site.fleetctl(&["etcd", "status", "demo"]).succeeds();
        for member in ["etcd-0", "etcd-1", "etcd-2"] {
            site.kubectl(&["-n", "fleet", "wait", "--for=condition=Ready", &format!("pod/{member}"), "--timeout=60s"]);
        }
        site.fleetctl(&["restore", "demo", "--commit"]).succeeds();
        // The first one takes what the renewals wrote into its record, and nothing else.
        let again = || site.install(&[&["--reuse-values", "--yes"], site.version()].concat());
        again().succeeds();
        let same = again();
        assert!(same.succeeds().contains("Nothing to change"), "{same:?}");
        site.fleetctl(&["uninstall", "cp", "demo", "--yes", "--delete-data"]).succeeds();
        site.assert_same_as(&before);
    }
}
