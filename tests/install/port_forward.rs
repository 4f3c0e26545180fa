//! Members of etcd through the API servers of old and new hosting clusters, on a wire that is not the best.

mod exhaustive {
    use std::fs::File;
    use std::io::{BufRead as _, BufReader, Read, Write};
    use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
    use std::process::{Command, Stdio};
    use std::sync::{Arc, RwLock};
    use std::thread::{sleep, spawn};
    use std::time::{Duration, Instant};

    use crate::backup::BackupFolder;
    use crate::limited::Limited;
    use crate::support::{Site, took};

    const MIB: usize = 1 << 20;

    /// An HTTP proxy that understands CONNECT. Whenever so many bytes more were handed on to clients, nothing passes it for
    /// five seconds, either way.
    struct PausingProxy {
        address: SocketAddr,
        /// How much it handed on to clients, in bytes, and how often it was silent.
        passed: Arc<RwLock<(usize, usize)>>,
    }

    impl PausingProxy {
        fn start(every: usize) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let passed = Arc::new(RwLock::new((0, 0)));
            let counted = Arc::clone(&passed);
            spawn(move || {
                for client in listener.incoming() {
                    let counted = Arc::clone(&counted);
                    spawn(move || Self::tunnel(client.unwrap(), every, &counted));
                }
            });
            Self { address, passed }
        }

        fn tunnel(client: TcpStream, every: usize, passed: &Arc<RwLock<(usize, usize)>>) -> Option<()> {
            let mut reader = BufReader::new(client.try_clone().ok()?);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                reader.read_line(&mut head).ok().filter(|length| *length > 0)?;
            }
            let server = TcpStream::connect(head.strip_prefix("CONNECT ")?.split(' ').next()?).ok()?;
            (&client).write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok()?;
            let (up, counted) = (server.try_clone().ok()?, Arc::clone(passed));
            // What came behind the head is in the reader's buffer.
            let upload = spawn(move || Self::hand_on(reader, up, &counted, None));
            Self::hand_on(server, client, passed, Some(every));
            upload.join().ok()
        }

        fn hand_on(mut from: impl Read, mut to: TcpStream, passed: &RwLock<(usize, usize)>, every: Option<usize>) {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(length) = from.read(&mut buffer)
                && length > 0
            {
                if let Some(every) = every {
                    let mut passed = passed.write().unwrap();
                    passed.0 += length;
                    if passed.0 / every > passed.1 {
                        passed.1 += 1;
                        // The silence itself is what is tried: nobody is waited for.
                        sleep(Duration::from_secs(5));
                    }
                }
                let _open = passed.read().unwrap();
                if to.write_all(&buffer[..length]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Write);
        }
    }

    fn put(site: &Site, number: usize, block: &[u8]) {
        let key = format!("/filler/{number}");
        let mut put = Command::new(site.bed.kubectl_path().unwrap())
            .arg("--kubeconfig")
            .arg(site.bed.kubeconfig(site.cluster).unwrap())
            .args(["-n", "fleet", "exec", "-i", "etcd-0", "-c", "etcd", "--", "etcdctl", "put", &key])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        put.stdin.take().unwrap().write_all(block).unwrap();
        assert!(put.wait().unwrap().success());
    }

    /// Writes so many MiB that nothing can compress into the store, beside what the API server keeps.
    fn fill(site: &Site, size: usize) {
        std::thread::scope(|scope| {
            for part in 0..4 {
                scope.spawn(move || {
                    let mut random = File::open("/dev/urandom").unwrap();
                    let mut block = vec![0; MIB];
                    for number in 0..size / 4 {
                        random.read_exact(&mut block).unwrap();
                        put(site, part * size / 4 + number, &block);
                    }
                });
            }
        });
    }

    fn run(site: &Site, through: Option<&PausingProxy>, args: &[&str]) -> Duration {
        let mut command = site.command(args);
        if let Some(proxy) = through {
            command.env("HTTPS_PROXY", format!("http://{}", proxy.address));
        }
        let ran = site.finish(command);
        assert!(ran.succeeds().contains("etcd-0"), "{ran:?}");
        ran.took
    }

    fn reaches_etcd(cluster: &'static str, size: usize) {
        let site = Site::on(cluster);
        site.install(site.version()).succeeds();
        let proxy = PausingProxy::start(size / 5 * MIB);
        let status = ["etcd", "status", "demo"];
        run(&site, None, &status);
        run(&site, Some(&proxy), &status);

        // Whoever may do what is printed for every day may do this, too.
        let rights = site.fleetctl(&["show", "rbac", "demo", "--day2"]);
        let user = Limited::user(&site, site.cluster, rights.succeeds());
        user.fleetctl(&status).succeeds();
        user.forget();

        fill(&site, size);
        let inside = ["-n", "fleet", "exec", "etcd-0", "-c", "etcd", "--", "etcdctl", "snapshot", "save", "/data/x"];
        let began = Instant::now();
        site.kubectl(&inside);
        took(began.elapsed(), &format!("{size} MiB: etcdctl snapshot save in the pod"));
        let backups = BackupFolder::make_in(site.home());
        for (name, through) in [("by itself", None), ("through the proxy", Some(&proxy))] {
            let file = format!("{}/{name}.fleet", backups.folder);
            let backup = ["backup", "demo", "--to", &file, "--recipient", &backups.recipient];
            took(run(&site, through, &backup), &format!("{size} MiB: fleetctl backup {name}"));
            assert!(std::fs::metadata(&file).unwrap().len() > (size * MIB) as u64);
            site.fleetctl(&["backup", "verify", &file, "--identity", &backups.identity]).succeeds();
            std::fs::remove_file(&file).unwrap();
        }
        let (passed, silences) = *proxy.passed.read().unwrap();
        assert!(passed > size * MIB && silences >= 5, "{passed} bytes, {silences} silences");
        site.fleetctl(&["uninstall", "cp", "demo", "--yes", "--delete-data"]).succeeds();
    }

    /// 1.25 is the oldest, 1.31 the first that takes port-forwards by WebSockets from its own kubectl; 1.37 asks for two rights.
    #[test]
    fn etcd_is_reached_through_old_and_new_clusters_and_a_proxy_that_falls_silent() {
        for (cluster, size) in [("host", 60), ("minor-31", 60), ("minor-37", 500)] {
            reaches_etcd(cluster, size);
        }
    }
}
