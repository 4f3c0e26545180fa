//! Real servers, hosting clusters of the bed and the API server of control planes, take every set of objects under strict validation.

use std::path::Path;

use bed::Bed;
use fleetctl::chart::{Object, output};

use crate::support::{self, Set};

/// Clusters of the bed that are only an API, and the minor of each.
type Clusters = [(&'static str, u32); 2];
const CLUSTERS: Clusters = [("api-old", 25), ("plane", 36)];

/// What `kubectl apply` says of objects that the server is asked about but does not keep.
fn ask(bed: &Bed, cluster: &str, folder: &Path, objects: &[Object]) -> Result<usize, String> {
    let file = folder.join("objects.yaml");
    std::fs::write(&file, output::yaml_stream(support::values(objects))).unwrap();
    let file = file.display().to_string();
    // Whoever else owns fields of such objects there, as tests beside this one do, is of no interest.
    let apply = ["apply", "--server-side", "--dry-run=server", "--force-conflicts", "--validate=strict"];
    let arguments = [&apply[..], &["--filename", &file]].concat();
    let said = bed.kubectl(cluster, &arguments).map_err(|error| format!("{error:#}"))?;
    Ok(said.lines().filter(|line| line.contains("server dry run")).count())
}

#[test]
fn servers_take_every_set_under_strict_validation() {
    take_every_set(CLUSTERS);
}

/// Further servers of the minors that most service versions support, and the newest. What each minor's schemas say of all
/// of it is asked without a server, in `openapi`.
mod exhaustive {
    #[test]
    fn servers_of_further_minors_take_every_set() {
        super::take_every_set([("api-31", 31), ("api-37", 37)]);
    }
}

fn take_every_set(clusters: Clusters) {
    let bed = Bed::here().unwrap();
    bed.up(&clusters.map(|(name, _)| name)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let sets = support::sets();
    for (cluster, minor) in clusters {
        let _ = bed.kubectl(cluster, &["create", "namespace", "fleet"]);
        let mut asked = 0;
        let mut check = |set: &Set, objects: &[Object]| {
            let taken =
                ask(&bed, cluster, folder.path(), objects).unwrap_or_else(|error| panic!("{}: {error}", set.name));
            assert_eq!(taken, objects.len(), "{} on {cluster}", set.name);
            asked += 1;
        };
        for set in sets.iter().filter(|set| set.minors().contains(&minor)) {
            check(set, &set.rendered.objects);
        }
        // What is in `bootstrap/` is the same for every preset.
        for set in sets.iter().filter(|set| set.name.ends_with(" defaults") && set.own_minor() == minor) {
            if !set.rendered.bootstrap.is_empty() {
                check(set, &set.rendered.bootstrap);
            }
        }
        // The API server of control planes gets what is inside of them, one set a line.
        assert!(asked > 5, "{asked} sets on {cluster}");
        let mut wrong = sets[0].rendered.objects.clone();
        wrong[0].json["spec"] = serde_json::json!({"nobodyKnows": 1});
        let error = ask(&bed, cluster, folder.path(), &wrong).unwrap_err();
        assert!(error.contains("nobodyKnows"), "a field that nobody knows is refused: {error}");
        bed.kubectl(cluster, &["delete", "namespace", "fleet", "--wait=true"]).unwrap();
    }
}
