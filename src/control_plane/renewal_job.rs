//! A run of the CronJob that renews certificates, at once: a Job of its template, and how that ended.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, ResourceExt as _};
use rand::RngExt as _;
use tokio::time::Instant;

use super::installed_status::RENEWAL_CRON_JOB;
use crate::api::labels::{CERTIFICATES_CONFIG_MAP, LABEL_INSTALL};
use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::certificates::KeysError;
use crate::certificates::summary::Summary;
use crate::k8s::MANAGER;

/// Time between two looks at the Job.
const POLL: Duration = Duration::from_secs(2);
/// Time after which a finished Job is deleted, in seconds.
const KEPT_SECONDS: i32 = 3600;
/// Time before their end at which all certificates are due: more than they are valid.
const ALL_ARE_DUE: &str = "--renew-before=400d";

/// Reason that certificates were not renewed.
#[derive(Debug, thiserror::Error)]
pub enum RenewalError {
    /// There is no CronJob to run.
    #[error("control plane {0} has no CronJob {RENEWAL_CRON_JOB}, which renews its certificates")]
    NoCronJob(ControlPlaneName),
    /// The keys could not be renewed, or the new certificates are not in use.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// The hosting cluster does not answer or refuses.
    #[error("a request to the hosting cluster failed")]
    Api(#[from] kube::Error),
    /// The Job failed.
    #[error("Job {job} failed: {why}")]
    Failed {
        /// Its name.
        job: String,
        /// The reason, as it wrote it down.
        why: String,
    },
    /// The Job has not ended.
    #[error("Job {job} has not ended within {seconds} s")]
    TimedOut {
        /// Its name.
        job: String,
        /// The limit.
        seconds: u64,
    },
}

/// Runs the renewal and waits for its end. `all` renews certificates that are not due, too, but no CA.
///
/// # Errors
/// [`RenewalError`]. A Job that has been started continues.
pub async fn run_renewal_job(
    client: &Client,
    name: &ControlPlaneName,
    namespace: &NamespaceName,
    all: bool,
    within: Duration,
) -> Result<(), RenewalError> {
    let cron_jobs: Api<CronJob> = Api::namespaced(client.clone(), namespace.as_str());
    let found = cron_jobs.get_opt(RENEWAL_CRON_JOB).await?;
    let found = found.filter(|job| job.labels().get(LABEL_INSTALL).map(String::as_str) == Some(name.as_str()));
    let job = format!("{RENEWAL_CRON_JOB}-{:08x}", rand::rng().random::<u32>());
    let built = found.and_then(|found| build_job(&found, &job, all));
    let built = built.ok_or_else(|| RenewalError::NoCronJob(name.clone()))?;
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace.as_str());
    let began = Timestamp::now();
    let post = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    jobs.create(&post, &built).await?;
    let end = Instant::now() + within;
    loop {
        match has_succeeded(&jobs.get(&job).await?) {
            Some(true) => return Ok(()),
            Some(false) => {
                return Err(RenewalError::Failed { why: read_failure(client, namespace, began).await?, job });
            }
            None if Instant::now() >= end => return Err(RenewalError::TimedOut { job, seconds: within.as_secs() }),
            None => tokio::time::sleep(POLL).await,
        }
    }
}

/// A Job that runs once what a CronJob runs.
fn build_job(cron_job: &CronJob, name: &str, all: bool) -> Option<Job> {
    let mut spec = cron_job.spec.clone()?.job_template.spec?;
    spec.backoff_limit = Some(0);
    spec.ttl_seconds_after_finished = Some(KEPT_SECONDS);
    let pod = spec.template.spec.as_mut()?;
    pod.restart_policy = Some("Never".to_owned());
    if all {
        pod.containers.first_mut()?.args.get_or_insert_default().push(ALL_ARE_DUE.to_owned());
    }
    let owner = OwnerReference {
        api_version: "batch/v1".to_owned(),
        kind: "CronJob".to_owned(),
        name: cron_job.name_any(),
        uid: cron_job.uid()?,
        ..OwnerReference::default()
    };
    let metadata =
        ObjectMeta { name: Some(name.to_owned()), owner_references: Some(vec![owner]), ..ObjectMeta::default() };
    Some(Job { metadata, spec: Some(spec), status: None })
}

/// Returns whether a Job has succeeded; none while it runs.
fn has_succeeded(job: &Job) -> Option<bool> {
    let conditions = job.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().filter(|condition| condition.status == "True").find_map(|condition| match &*condition.type_ {
        "Complete" => Some(true),
        "Failed" => Some(false),
        _ => None,
    })
}

/// The reason that a run since `began` failed, as it wrote it down.
async fn read_failure(client: &Client, namespace: &NamespaceName, began: Timestamp) -> Result<String, kube::Error> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace.as_str());
    let summary = maps.get_opt(CERTIFICATES_CONFIG_MAP).await?.as_ref().map(Summary::from_config_map);
    let failed = summary.and_then(|summary| summary.failed).filter(|(at, _)| *at >= began);
    Ok(failed.map_or_else(|| "its log has the reason".to_owned(), |(_, why)| why))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_job_runs_once_what_the_cron_job_runs() {
        let cron_job: CronJob = serde_json::from_value(json!({
            "metadata": {"name": "fleet-keys", "uid": "u"},
            "spec": {"schedule": "17 3 * * 0", "jobTemplate": {"spec": {"backoffLimit": 5, "template": {"spec": {
                "restartPolicy": "OnFailure", "containers": [{"name": "keys", "args": ["keys", "--renew-only"]}]
            }}}}},
        }))
        .unwrap();
        for (all, args) in [(false, &["keys", "--renew-only"][..]), (true, &["keys", "--renew-only", ALL_ARE_DUE][..])]
        {
            let job = build_job(&cron_job, "fleet-keys-1", all).unwrap();
            let spec = job.spec.unwrap();
            assert_eq!((spec.backoff_limit, job.metadata.owner_references.unwrap()[0].uid.as_str()), (Some(0), "u"));
            let pod = spec.template.spec.unwrap();
            assert_eq!(pod.restart_policy.as_deref(), Some("Never"));
            assert_eq!(pod.containers[0].args.as_deref().unwrap(), args);
        }
    }

    #[test]
    fn a_job_has_ended_by_its_conditions() {
        for (status, expected) in [
            (json!({"active": 1}), None),
            (json!({"conditions": [{"type": "Complete", "status": "True"}]}), Some(true)),
            (json!({"conditions": [{"type": "Failed", "status": "True"}]}), Some(false)),
            (json!({"conditions": [{"type": "Complete", "status": "False"}]}), None),
            (json!({"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}), None),
        ] {
            let job = serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap();
            assert_eq!(has_succeeded(&job), expected, "{status}");
        }
    }
}
