//! One fault at each request in turn, by the bed's proxy: nothing fails beyond what the fault justifies, and no write is
//! lost or made twice.

use std::collections::BTreeMap;
use std::time::Duration;

use bed::Bed;
use bed::proxy::{Action, Match, Proxy, When};
use fleetctl::apply::{Done, Event, Removal};
use futures::stream::{self, StreamExt as _};

use super::kill::{TOGETHER, sampled};
use super::support::{Case, cluster, objects, release};

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

async fn install_with(n: usize, fault: Fault) {
    let place = format!("{fault:?} at request {n}");
    let proxy = start();
    let case = Case::through(&proxy.kubeconfig(), "fault").await;
    seed(&proxy, n, fault);
    let result = case.install(&objects(&case)).await;
    match (fault, result) {
        // Nothing that is sent to a stranger may go on, and it is said at once what is wrong.
        (Fault::WrongCertificate, Err(error)) => {
            assert_eq!(error.reason(), "TlsFailed", "{place}: {error:?}");
            proxy.mend();
            let case = case.reborn().await;
            case.install(&objects(&case)).await.unwrap_or_else(|e| panic!("{place}: {e:?}"));
            finished(&case, &place).await;
        }
        // The last request's answer was there already.
        (Fault::WrongCertificate, Ok(())) => {
            proxy.mend();
            finished(&case, &place).await;
        }
        // In answer to a read nobody sends it, so nobody has to cope with it.
        (Fault::Conflict, Err(_)) => {
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
    let record = case.engine.state().await.unwrap().record.unwrap_or_else(|| panic!("{place}: no record"));
    assert_eq!(record.inventory.len(), objects(case).len(), "{place}");
    assert!(case.engine.plan(&release(), &objects(case)).await.unwrap().is_noop(), "{place}");
    let gone = case.engine.uninstall(Removal { delete_data: true, skip_search: true, ..Removal::default() }).await;
    gone.unwrap_or_else(|e| panic!("{place}: {e}"));
}

#[tokio::test]
async fn a_fault_at_a_sample_of_the_requests_stops_no_install() {
    let all = requests().await;
    let cases = (1..=all).step_by(3).map(|n| (n, QUICK[n % QUICK.len()]));
    stream::iter(cases).for_each_concurrent(TOGETHER, |(n, fault)| install_with(n, fault)).await;
}

mod exhaustive {
    use super::*;

    #[tokio::test]
    async fn a_stalled_request_is_sent_again() {
        let began = std::time::Instant::now();
        install_with(12, Fault::Stall).await;
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn no_fault_at_any_request_stops_an_install() {
        let all = requests().await;
        let cases = (1..=all).flat_map(|n| QUICK.map(|fault| (n, fault)));
        stream::iter(sampled(cases)).for_each_concurrent(TOGETHER, |(n, fault)| install_with(n, fault)).await;
        let stalls = (1..=all).map(|n| (n, Fault::Stall));
        stream::iter(sampled(stalls)).for_each_concurrent(2 * TOGETHER, |(n, fault)| install_with(n, fault)).await;
    }
}
