//! What the least credentials could do to everybody's placement, by the commands with which it was seen: nothing.

use super::*;

mod exhaustive {
    use std::time::Instant;

    use fleetctl::api::Cluster;
    use fleetctl::api::lenient::Lenient;
    use k8s_openapi::api::coordination::v1::Lease;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;
    use crate::applicant::Applicant;

    /// Longest time until an object of somebody else is placed while an attack lasts.
    const LONGEST: Duration = Duration::from_secs(5);
    /// Most memory that the scheduler may have taken at any time.
    const MOST_MEMORY: u64 = 200 << 20;

    /// A tenant whose objects are placed, beside those who attack.
    struct Bystander {
        fleet: Fleet,
        cluster: String,
        count: usize,
    }

    impl Bystander {
        /// Places some objects, one after the other, and has the scheduler looked at.
        #[expect(clippy::print_stderr, reason = "what was measured is to be read")]
        async fn is_placed(&mut self, during: &str) {
            let mut longest = Duration::ZERO;
            for _ in 0..10 {
                let name = format!("web-{}", self.count);
                self.count += 1;
                let began = Instant::now();
                self.fleet.deployment(&name, 1, json!({})).await;
                self.fleet.copy(&self.cluster, &format!("Deployment {name}")).await;
                longest = longest.max(began.elapsed());
            }
            let scheduler = &mut self.fleet.control_plane.scheduler;
            assert!(!scheduler.has_ended(), "{during}: the scheduler has ended\n{}", scheduler.log());
            let asked = Instant::now();
            assert_eq!(scheduler.ask("/healthz").await.0, 200, "{during}");
            let (answered, peak) = (asked.elapsed(), peak_memory(scheduler.pid()));
            eprintln!("{during}: placed within {longest:?}, healthz {answered:?}, peak {} MiB", peak >> 20);
            assert!(longest < LONGEST, "{during}: {longest:?}");
            assert!(answered < Duration::from_secs(1), "{during}: {answered:?}");
            assert!(peak < MOST_MEMORY, "{during}: {} MiB", peak >> 20);
        }
    }

    /// The most memory that a process has had, in bytes.
    fn peak_memory(pid: u32) -> u64 {
        let status = fs_err::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
        let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kibibytes << 10
    }

    /// Somebody with the token that everybody registers with, and the certificate that it gave.
    struct Thief {
        applicant: Applicant,
        client: Client,
    }

    impl Thief {
        async fn join(fleet: &Fleet) -> Self {
            let applicant = Applicant::new(&fresh("evil"));
            let client = applicant.join(&fleet.control_plane.init).await;
            Self { applicant, client }
        }

        /// Writes into the status of its own Cluster. What the API server refuses is stopped there already.
        async fn report(&self, status: Value) -> bool {
            let own: Api<Lenient<Cluster>> = Api::all(self.client.clone());
            let body = json!({ "status": status });
            let written = own.patch_status(&self.applicant.name, &PatchParams::default(), &Patch::Merge(&body)).await;
            match written {
                Ok(_) => true,
                Err(kube::Error::Api(status)) if status.code == 422 => false,
                Err(error) => panic!("{error}"),
            }
        }

        async fn renew(&self) {
            let leases: Api<Lenient<Lease>> =
                Api::namespaced(self.client.clone(), &cluster_namespace(&self.applicant.name));
            let now = MicroTime(Timestamp::now());
            let lease = json!({"spec": {"holderIdentity": "evil", "leaseDurationSeconds": 40, "renewTime": now}});
            leases.patch("fleet-agent", &PatchParams::default(), &Patch::Merge(&lease)).await.unwrap();
        }

        async fn leave(self, fleet: &Fleet) {
            let clusters: Api<Lenient<Cluster>> = Api::all(fleet.client());
            clusters.delete(&self.applicant.name, &DeleteParams::default()).await.unwrap();
        }
    }

    /// Nodes without end, each with resources of its own names.
    fn many_nodes() -> Value {
        let nodes: serde_json::Map<String, Value> =
            (0..9000).map(|i| (format!("n{i}"), json!({ format!("r{i}"): "1" }))).collect();
        json!({"availableResources": nodes, "capacityResources": nodes})
    }

    /// A set of labels of 200 kB for each of ten thousand nodes.
    fn large_labels() -> Value {
        let nodes: serde_json::Map<String, Value> = (0..10_000).map(|i| (format!("n{i}"), json!({}))).collect();
        json!({"availableResources": nodes, "capacityResources": nodes,
            "nodeLabels": {"sets": [{"k": "x".repeat(200_000)}], "of": vec![0; 10_000]}})
    }

    async fn config_map(fleet: &Fleet, namespace: &str, name: &str, annotations: Value, data: Value) {
        let body = json!({"metadata": {"name": name, "annotations": annotations}, "data": data});
        let maps: Api<ConfigMap> = Api::namespaced(fleet.client(), namespace);
        maps.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    }

    #[tokio::test]
    async fn the_least_credentials_stop_nobody() {
        let fleet = Fleet::new().await;
        let west = fleet.join(2).await;
        let only = json!({"clusterSelector": {"matchLabels": {"kubernetes.io/metadata.name": west.name}}});
        let policy = fleet.policy(only).await;
        let namespaces: Api<Namespace> = Api::all(fleet.client());
        let tenant = fresh("tenant");
        let body = json!({"metadata": {"name": tenant}});
        namespaces.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
        let mut bystander = Bystander { cluster: west.name.clone(), fleet, count: 0 };
        bystander.is_placed("nothing").await;

        // A report of half a megabyte, by somebody who has the token alone; and the same of a cluster that is not accepted.
        let thief = Thief::join(&bystander.fleet).await;
        for (what, report) in [("many nodes", many_nodes()), ("large labels", large_labels())] {
            thief.renew().await;
            let taken = thief.report(report).await;
            bystander.is_placed(&format!("{what}, taken: {taken}")).await;
        }
        let refuse = json!({"spec": {"accepted": false}});
        let clusters: Api<Lenient<Cluster>> = Api::all(bystander.fleet.client());
        clusters.patch(&thief.applicant.name, &PatchParams::default(), &Patch::Merge(&refuse)).await.unwrap();
        bystander.is_placed("not accepted").await;
        thief.leave(&bystander.fleet).await;

        // An annotation of 215 kB, edited again and again.
        let names = (0x1000..0x1000 + 43_000).map(|i| format!("{i:x}")).collect::<Vec<_>>().join(",");
        let spread = json!({ "fleet-scheduler.io/spread-onto": names });
        config_map(&bystander.fleet, &tenant, "spread", spread, json!({})).await;
        let maps: Api<ConfigMap> = Api::namespaced(bystander.fleet.client(), &tenant);
        for edit in 0..3 {
            let body = json!({"data": {"edit": edit.to_string()}});
            maps.patch("spread", &PatchParams::default(), &Patch::Merge(&body)).await.unwrap();
            bystander.is_placed("a long annotation").await;
        }

        // Objects that nobody places.
        for i in 0..60 {
            let data = json!({ "v": "x".repeat(900_000) });
            config_map(&bystander.fleet, &tenant, &format!("large-{i}"), json!({}), data).await;
        }
        bystander.is_placed("54 MB that have no place").await;

        // A lie about capacity, and two Deployments of two shapes in one group that believe it.
        let thief = Thief::join(&bystander.fleet).await;
        let node = json!({"n": {"cpu": "1000000000", "memory": "1E", "pods": "1000000000"}});
        thief.renew().await;
        thief.report(json!({"availableResources": node, "capacityResources": node})).await;
        wait("the liar is Ready", async || {
            thief.renew().await;
            let cluster = clusters.get(&thief.applicant.name).await.unwrap().0;
            find_condition(&cluster.status.unwrap_or_default().conditions, "Ready").is_some_and(Condition::is_true)
        })
        .await;
        let grouped = bystander.fleet.policy(json!({
            "clusterSelector": {"matchLabels": {"kubernetes.io/metadata.name": thief.applicant.name}},
            "resourceSelectors": {"labelSelectors": [{"matchLabels": {"spin": "yes"}}]}, "groupBy": {"labelKey": "spin"},
            "priority": 10,
        }));
        let grouped = grouped.await;
        let deployments = bystander.fleet.deployments();
        for (name, cpu) in [("spin1", "1m"), ("spin2", "2m")] {
            let body = json!({"metadata": {"name": name, "labels": {"spin": "yes"}},
                "spec": {"replicas": 200_000_000, "selector": {"matchLabels": {"app": name}}, "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}]}}}});
            deployments.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
        }
        thief.renew().await;
        bystander.is_placed("a lie about capacity").await;
        for name in ["spin1", "spin2"] {
            deployments.delete(name, &DeleteParams::default()).await.unwrap();
        }
        thief.leave(&bystander.fleet).await;
        namespaces.delete(&tenant, &DeleteParams::default()).await.unwrap();
        bystander.fleet.end(&[policy, grouped]).await;
    }
}
