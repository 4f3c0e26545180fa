//! One renewal, from the Secrets to the proof that every pod serves what is in them.

use jiff::Timestamp;
use kube::Client;

use super::KeysError;
use super::complete::{KeyTarget, KeysDone, complete_key_secrets};
use super::restart::restart_start_readers;
use super::served::{SERVED_WITHIN, wait_until_served};
use super::summary::{HeldCertificate, list_in_secrets, write_summary};
use crate::k8s::error_sentences;

/// Completes the key Secrets, restarts who reads at its start only, waits until each pod serves what the Secrets have, and
/// writes down the outcome. A run that was interrupted is done again from the start: what is done is not done twice.
///
/// # Errors
/// [`KeysError`]; the ConfigMap has the reason then, too.
pub async fn renew_certificates(client: &Client, target: &KeyTarget) -> Result<KeysDone, KeysError> {
    let namespace = target.namespace.as_str();
    match renew_and_prove(client, target).await {
        Ok((done, held)) => {
            write_summary(client, namespace, Ok(&held), Timestamp::now()).await?;
            Ok(done)
        }
        Err(error) => {
            let why = error_sentences(&error).join(": ");
            if let Err(unwritten) = write_summary(client, namespace, Err(why), Timestamp::now()).await {
                tracing::warn!(error = %unwritten, "the outcome cannot be written down");
            }
            Err(error)
        }
    }
}

async fn renew_and_prove(client: &Client, target: &KeyTarget) -> Result<(KeysDone, Vec<HeldCertificate>), KeysError> {
    let done = complete_key_secrets(client, target, Timestamp::now()).await?;
    restart_start_readers(client, &target.namespace, &done).await?;
    let mut held = list_in_secrets(&done.files);
    held.extend(wait_until_served(client, target, &done.files, SERVED_WITHIN).await?);
    Ok((done, held))
}
