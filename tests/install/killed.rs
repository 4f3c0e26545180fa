//! The program killed by SIGKILL right after a write, on real nodes: whatever comes next goes on, undoes it or removes it.
//! The places are drawn from a seed; `tests/engine/kill.rs` has them all, on an API without nodes.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use bed::proxy::{Action, Match, Proxy, When};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::support::Site;

const UNINSTALL: [&str; 5] = ["uninstall", "cp", "demo", "--delete-data", "--yes"];

/// Runs the program and kills it when the server has done its `k`-th write, from 1 on.
#[track_caller]
fn killed_after(site: &Site, k: usize, args: &[&str]) {
    let proxy = Proxy::start(site.bed, site.cluster).unwrap();
    let id = Arc::new(OnceLock::<u32>::new());
    let its = Arc::clone(&id);
    let kill = move || Command::new("kill").args(["-KILL", &its.wait().to_string()]).status();
    proxy.on(Match::writes(), When::Nth(k), Action::then(move |_| assert!(kill().unwrap().success())));
    let mut command = site.command(args);
    let child = command.env("KUBECONFIG", proxy.kubeconfig()).spawn().unwrap();
    id.set(child.id()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGKILL), "{args:?} was not killed after write {k}:\n{said}");
}

mod exhaustive {
    use super::*;

    /// Six installs. `tests/engine/kill.rs` kills after any write in every run, on an API without nodes.
    #[test]
    fn what_is_killed_after_a_write_is_gone_on_with_undone_or_removed() {
        let site = Site::on("host");
        let before = site.dump();
        let seed = std::env::var("FLEET_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        let mut random = StdRng::seed_from_u64(seed);
        let mut place = |writes: usize| random.random_range(1..=writes);

        let proxy = Proxy::start(site.bed, site.cluster).unwrap();
        let mut whole = site.command(&["install", "cp", "demo"]);
        whole.env("KUBECONFIG", proxy.kubeconfig());
        site.finish(whole).succeeds();
        // The record is written last: killed after that, an install was whole.
        let writes = proxy.writes().len() - 2;
        assert!(writes > 20, "{:#?}", proxy.writes());

        // An upgrade: undone, it is what it was.
        killed_after(&site, place(20), &["install", "cp", "demo", "--version", "v0.7"]);
        site.fleetctl(&["rollback", "demo", "--yes"]).succeeds();
        assert!(site.fleetctl(&["diff", "cp", "demo"]).succeeds().contains("Nothing would change"));
        assert!(site.fleetctl(&["status", "--wait"]).succeeds().contains("Control plane demo is healthy"));

        // A removal: the same command goes on.
        killed_after(&site, place(10), &UNINSTALL);
        site.fleetctl(&UNINSTALL).succeeds();
        site.assert_same_as(&before);
        assert!(!site.fleet_folder().exists());

        // An install.
        killed_after(&site, place(writes), &["install", "cp", "demo"]);
        assert!(site.install(&[]).succeeds().contains("Control plane demo is healthy"));
        site.fleetctl(&UNINSTALL).succeeds();
        site.assert_same_as(&before);
        for next in [&["rollback", "demo", "--yes"], &UNINSTALL[..]] {
            killed_after(&site, place(writes), &["install", "cp", "demo"]);
            site.fleetctl(next).succeeds();
            site.assert_same_as(&before);
        }
    }
}
