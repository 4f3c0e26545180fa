//! What `status` says about the installation itself: read from the record, the objects' metadata and the key Secrets.

use jiff::Timestamp;
use kube::Client;

use super::health::chain;
use super::keys;
use super::plan::OWNER_KIND;
use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::apply::{self, Engine, Events, Owner, Phase};
use crate::check::installed::{CHECKS, Expiry, InstalledFacts};
use crate::check::{self, Report};
use crate::pki;

/// Looks at an installed control plane. Reads only.
///
/// # Errors
/// A record that cannot be read.
pub async fn look(client: &Client, name: &ControlPlaneName, namespace: &NamespaceName) -> Result<Report, apply::Error> {
    let owner = Owner::new(OWNER_KIND, name.as_str(), namespace.as_str());
    let engine = Engine::new(client.clone(), owner, apply::Options::default(), Events::none());
    let (state, drift, files) =
        tokio::join!(engine.state(), engine.drift(), keys::from_cluster(client, namespace.as_str(), name.as_str()));
    let state = state?;
    let at_work = state.lock.as_ref().filter(|lock| !lock.is_over()).map(|lock| lock.holder.to_string());
    let record = state.record.as_ref().filter(|record| record.phase == Phase::Installed);
    let facts = InstalledFacts {
        name: name.to_string(),
        // A first install under way has no record yet, which is no loss.
        recorded: record
            .map(|record| (record.release.version.clone(), record.inventory.len()))
            .or_else(|| state.journal.as_ref().map(|_| ("that is being installed".to_owned(), 0))),
        drift: drift.map(|all| all.iter().map(ToString::to_string).collect()).map_err(|error| chain(&error)),
        cut_off: state.journal.filter(|_| at_work.is_none()).map(|journal| (journal.command, journal.started)),
        at_work,
        certificates: files.map(|files| expiries(&files, Timestamp::now())).unwrap_or_default(),
    };
    Ok(check::run(&CHECKS, &facts, &[]))
}

fn expiries(files: &pki::Files, now: Timestamp) -> Vec<Expiry> {
    let read = pki::facts_of(files).into_iter().filter_map(|(file, facts)| Some((file, facts.ok()?.not_after)));
    read.map(|(file, end)| Expiry {
        file,
        days: (end.as_second() - now.as_second()).div_euclid(24 * 60 * 60),
        date: end.strftime("%F").to_string(),
    })
    .collect()
}
