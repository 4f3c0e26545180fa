//! What happens to the fleet while walks go on.

use fleetctl::api::registration::IDENTITY_SECRET;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::*;

/// Accidents of one batch of walks.
pub(super) struct Accidents {
    random: StdRng,
    /// No cluster is fenced, repainted or deleted.
    is_calm: bool,
    next: Instant,
    has_killed_scheduler: bool,
    has_lost_cluster: bool,
    /// The member that is not as it was, and until when.
    changed: Option<(usize, Instant)>,
}

impl Accidents {
    pub(super) fn new(seed: u64, is_calm: bool) -> Self {
        let next = Instant::now() + Duration::from_secs(25);
        let random = StdRng::seed_from_u64(seed);
        Self { random, is_calm, next, has_killed_scheduler: false, has_lost_cluster: false, changed: None }
    }

    /// Lets happen what is due.
    pub(super) async fn pass(&mut self, site: &mut Site) {
        if self.changed.is_some_and(|(_, until)| Instant::now() > until) {
            self.end(site).await;
        }
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + Duration::from_secs(self.random.random_range(5..20));
        let at = self.random.random_range(0..3);
        match self.random.random_range(0..12) {
            0 | 1 if !self.has_killed_scheduler => {
                self.has_killed_scheduler = true;
                site.truth.tell("fleet", "the scheduler is killed");
                site.truth.count("schedulers killed");
                site.fleet.control_plane.kill_scheduler(&site.fleet.stage).await;
            }
            2 | 3 => {
                site.truth.tell("fleet", &format!("the agent of {at} is killed"));
                site.truth.count("agents killed");
                site.members[at].agent.take().expect("it runs").kill();
                tokio::time::sleep(Duration::from_secs(self.random.random_range(0..10))).await;
                site.start_agent(at);
            }
            4..=6 if !self.is_calm && self.changed.is_none() => {
                let effect = ["NoSchedule", "NoExecute", "NoExecute"][self.random.random_range(0..3)];
                site.truth.tell("fleet", &format!("{at} has the taint {effect}"));
                site.truth.count(&format!("taints {effect}"));
                site.taint(at, Some(effect)).await;
                self.changed = Some((at, Instant::now() + Duration::from_secs(self.random.random_range(10..60))));
            }
            7 | 8 if !self.is_calm && self.changed.is_none() => {
                site.truth.tell("fleet", &format!("{at} is green"));
                site.truth.count("clusters repainted");
                site.paint(at, "green").await;
                self.changed = Some((at, Instant::now() + Duration::from_secs(self.random.random_range(10..60))));
            }
            9 if !self.is_calm && !self.has_lost_cluster && self.changed.is_none() => {
                self.has_lost_cluster = true;
                lose_cluster(site, at, self.random.random_range(2..30)).await;
            }
            _ => {}
        }
    }

    /// Puts right what was done to a cluster.
    pub(super) async fn end(&mut self, site: &Site) {
        if let Some((at, _)) = self.changed.take() {
            site.truth.tell("fleet", &format!("{at} is as it was"));
            site.taint(at, None).await;
            site.paint(at, "blue").await;
        }
    }
}

/// Deletes a Cluster; the same cluster joins again under its name after some seconds.
async fn lose_cluster(site: &mut Site, at: usize, seconds: u64) {
    site.truth.tell("fleet", &format!("{at} is deleted"));
    site.truth.count("clusters deleted");
    site.truth.excuse_all(300);
    let name = site.members[at].name.clone();
    for namespace in site.truth.open() {
        site.truth.with(&namespace, |walked| {
            walked.may_repeat |= walked.completed.is_empty();
            walked.lost.insert(name.clone());
        });
    }
    site.members[at].agent.take().expect("it runs").kill();
    site.clusters().delete(&site.members[at].name, &DeleteParams::default()).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(site.members[at].server.client.clone(), "fleet");
    let _ = secrets.delete(IDENTITY_SECRET, &DeleteParams::default()).await;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    site.start_agent(at);
    site.until_ready(at).await;
    site.paint(at, "blue").await;
    site.truth.tell("fleet", &format!("{at} has joined again"));
    site.truth.excuse_all(300);
}
