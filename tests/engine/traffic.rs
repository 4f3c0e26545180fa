//! One fault at each request in turn, by the bed's proxy: nothing fails beyond what the fault justifies, and no write is
//! lost or made twice.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bed::Bed;
use bed::proxy::{Action, Match, Proxy, When};
use fleetctl::api::kinds::Kind;
use fleetctl::apply::{Error, Removal};
use fleetctl::k8s::{Done, Event};
use futures::stream::{self, StreamExt as _};

use super::kill::{TOGETHER, interrupted, sampled, some, undo};
use super::support::{Case, cluster, dump, furnished, objects, release};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The connection breaks before the request arrives.
    Dropped,
    /// The connection breaks after the server did what was asked.
    AnswerLost,
    /// Too many requests, come back in a second.
    TooMany,
    /// An error of the server.
    Internal,
    /// Nobody there.
    Unavailable,
    /// A gateway gave up, though the server did what was asked.
    GatewayTimeout,
    /// Somebody else wrote at the same moment.
    Conflict,
    /// Nobody answers this one request.
    Stall,
    /// From then on somebody else answers, whose certificate nobody signed that we know.
    WrongCertificate,
}

const QUICK: [Fault; 8] = [
    Fault::Dropped,
    Fault::AnswerLost,
    Fault::TooMany,
    Fault::Internal,
    Fault::Unavailable,
    Fault::GatewayTimeout,
    Fault::Conflict,
    Fault::WrongCertificate,
];

fn start() -> Proxy {
    Proxy::start(&Bed::here().unwrap(), &cluster()).unwrap()
}

fn seed(proxy: &Proxy, n: usize, fault: Fault) {
    let action = match fault {
        Fault::Dropped => Action::Drop,
        Fault::AnswerLost => Action::DropAnswer,
        Fault::TooMany => Action::Refuse { status: 429, retry_after: Some(1) },
        Fault::Internal => Action::refuse(500),
        Fault::Unavailable => Action::refuse(503),
        Fault::GatewayTimeout => Action::Lie { status: 504 },
        Fault::Conflict => Action::refuse(409),
        Fault::Stall => Action::Hang,
        Fault::WrongCertificate => {
            let pretend = proxy.pretender();
            Action::then(move |_| pretend())
        }
    };
    proxy.on(Match::any(), When::Nth(n), action);
}

/// How many requests an install sends.
async fn requests() -> usize {
    let proxy = start();
    let case = Case::through(&proxy.kubeconfig(), "count").await;
    case.install(&objects(&case)).await.unwrap();
    let count = proxy.seen().len();
    case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await.unwrap();
    count
}

/// Asserts that the fault came, and of a stranger that nobody went on with him: the last answer may have been there before.
fn came(proxy: &Proxy, n: usize, fault: Fault, done: bool, place: &str) {
    let seen = proxy.seen().len();
    assert!(seen >= n, "{place}: there were {seen}");
    assert!(fault != Fault::WrongCertificate || !done || n + 1 >= seen, "{place}: a stranger was trusted");
}

async fn install_with(n: usize, fault: Fault) {
    let place = format!("{fault:?} at request {n}");
    let proxy = start();
    let case = Case::through(&proxy.kubeconfig(), "fault").await;
    seed(&proxy, n, fault);
    let result = case.install(&objects(&case)).await;
    came(&proxy, n, fault, result.is_ok(), &place);
    proxy.mend();
    match (fault, result) {
        // Nothing that is sent to a stranger may go on, and it is said at once what is wrong.
        (Fault::WrongCertificate, Err(error)) => {
            assert_eq!(error.reason(), "TlsFailed", "{place}: {error:?}");
            let case = case.reborn().await;
            case.install(&objects(&case)).await.unwrap_or_else(|e| panic!("{place}: {e:?}"));
            finished(&case, &place).await;
        }
        (_, result) => {
            result.unwrap_or_else(|e| panic!("{place}: {e:?}"));
            let mut made: BTreeMap<String, usize> = BTreeMap::new();
            for event in case.events.lock().unwrap().iter() {
                if let Event::Object { object, done } = event {
                    assert_eq!(*done, Done::Created, "{place}: {object}");
                    *made.entry(object.to_string()).or_default() += 1;
                }
            }
            assert_eq!(made.len(), objects(&case).len(), "{place}: {made:?}");
            assert!(made.values().all(|times| *times == 1), "{place}: {made:?}");
            finished(&case, &place).await;
        }
    }
}

async fn finished(case: &Case, place: &str) {
    let record = case.engine.read_state().await.unwrap().record.unwrap_or_else(|| panic!("{place}: no record"));
    assert_eq!(record.inventory.len(), objects(case).len(), "{place}");
    assert!(case.engine.plan_install(&release(), &objects(case)).await.unwrap().is_noop(), "{place}");
    let gone = case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await;
    gone.unwrap_or_else(|e| panic!("{place}: {e}"));
}

/// What takes an installation away.
#[derive(Clone, Copy, Debug)]
enum Away {
    /// The removal of one that is complete.
    Uninstall,
    /// The undoing of one that was interrupted.
    Rollback,
}

impl Away {
    /// Makes what is to be taken away; the controllers have made their part.
    async fn prepare(self, case: &Case) {
        match self {
            Self::Uninstall => case.install(&objects(case)).await.unwrap(),
            Self::Rollback => interrupted(case).await.unwrap(),
        }
        furnished(case).await;
    }

    async fn work(self, case: &Case) -> Result<(), Error> {
        match self {
            Self::Uninstall => {
                let all = Removal { delete_data: true, skip_search: true, ..Removal::default() };
                let removed = case.engine.uninstall(all).await?;
                assert!(removed.kept.is_empty(), "{:?}", removed.kept);
                Ok(())
            }
            Self::Rollback => undo(case).await,
        }
    }

    /// How many requests it sends, and how many at least: what is waited for is asked for again and again.
    async fn requests(self) -> (usize, usize) {
        let proxy = start();
        let case = Case::new("count").await;
        self.prepare(&case).await;
        let case = case.reborn_through(&proxy.kubeconfig()).await;
        self.work(&case).await.unwrap();
        let seen = proxy.seen();
        let different: BTreeSet<_> = seen.iter().map(|seen| (&seen.method, &seen.path, &seen.query)).collect();
        (seen.len(), different.len())
    }

    /// Every fault at every request.
    async fn faults(self) -> Vec<(usize, usize, Fault)> {
        let (all, least) = self.requests().await;
        (1..=all).flat_map(|n| QUICK.map(|fault| (n, least, fault))).collect()
    }
}

/// `least`: so many requests there are for certain.
async fn away_with(away: Away, n: usize, least: usize, fault: Fault) {
    let place = format!("{away:?}, {fault:?} at request {n}");
    let case = Case::new("away").await;
    let before = dump(&case).await;
    away.prepare(&case).await;
    let proxy = start();
    let case = case.reborn_through(&proxy.kubeconfig()).await;
    seed(&proxy, n, fault);
    let result = away.work(&case).await;
    if n <= least || proxy.seen().len() >= n {
        came(&proxy, n, fault, result.is_ok(), &place);
    }
    let case = case.reborn().await;
    match (fault, result) {
        (Fault::WrongCertificate, Err(error)) => {
            assert_eq!(error.reason(), "TlsFailed", "{place}: {error:?}");
            settled(&case).await;
            away.work(&case).await.unwrap_or_else(|e| panic!("{place}: {e:?}"));
        }
        (_, result) => result.unwrap_or_else(|e| panic!("{place}: {e:?}")),
    }
    assert_eq!(dump(&case).await, before, "{place}");
}

/// Ends when the namespace is not on its way out: what is in it may go at any moment, also between two looks of a rollback,
/// which says then that it lost the lock.
async fn settled(case: &Case) {
    let namespaces = Kind::needed_versions("", "Namespace").remove(0);
    let leaving = async || {
        let found = case.server().get_object(&namespaces, None, &case.namespace).await.unwrap();
        found.is_some_and(|namespace| !namespace["metadata"]["deletionTimestamp"].is_null())
    };
    let settled = async {
        while leaving().await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), settled).await.expect("the namespace goes");
}

/// They wait for a namespace to go more than they ask.
async fn away_with_each(away: Away, cases: impl Iterator<Item = (usize, usize, Fault)>) {
    let work = |(n, least, fault)| away_with(away, n, least, fault);
    stream::iter(cases).for_each_concurrent(2 * TOGETHER, work).await;
}

#[tokio::test]
async fn a_fault_at_a_sample_of_the_requests_stops_no_install() {
    let all = requests().await;
    let cases = (1..=all).step_by(3).map(|n| (n, QUICK[n % QUICK.len()]));
    stream::iter(cases).for_each_concurrent(TOGETHER, |(n, fault)| install_with(n, fault)).await;
}

#[tokio::test]
async fn a_fault_at_a_sample_of_the_requests_stops_no_uninstall() {
    away_with_each(Away::Uninstall, some(QUICK.len(), Away::Uninstall.faults().await)).await;
}

#[tokio::test]
async fn a_fault_at_a_sample_of_the_requests_stops_no_rollback() {
    away_with_each(Away::Rollback, some(QUICK.len(), Away::Rollback.faults().await)).await;
}

mod exhaustive {
    use super::*;

    #[tokio::test]
    async fn a_stalled_request_is_sent_again() {
        let began = std::time::Instant::now();
        install_with(12, Fault::Stall).await;
        // An API server may take a minute, and so long it is waited for.
        assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn no_fault_at_any_request_stops_an_install() {
        let all = requests().await;
        let cases = (1..=all).flat_map(|n| QUICK.map(|fault| (n, fault)));
        stream::iter(sampled(cases)).for_each_concurrent(TOGETHER, |(n, fault)| install_with(n, fault)).await;
        let stalls = (1..=all).map(|n| (n, Fault::Stall));
        stream::iter(sampled(stalls)).for_each_concurrent(2 * TOGETHER, |(n, fault)| install_with(n, fault)).await;
    }

    #[tokio::test]
    async fn no_fault_at_any_request_stops_an_uninstall() {
        away_with_each(Away::Uninstall, sampled(Away::Uninstall.faults().await.into_iter())).await;
    }

    #[tokio::test]
    async fn no_fault_at_any_request_stops_a_rollback() {
        away_with_each(Away::Rollback, sampled(Away::Rollback.faults().await.into_iter())).await;
    }
}
