//! `kubectl` and `fleetctl` read the same kubeconfig, for the same real API server: where the one connects, so does the
//! other, with the same headers, certificate and server name; where `fleetctl` refuses, it names file and field.
//!
//! docs/kubeconfig.md has a row for each field, with the cases here; a test of the command line holds the two together.

mod cases;
mod front;
mod world;

use std::collections::BTreeSet;

use cases::{Case, Expected, cases};
use world::World;

/// Names of cases in the tables of a section of docs/kubeconfig.md.
fn documented(section: &str) -> BTreeSet<String> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/kubeconfig.md")).unwrap();
    let found = page.split("\n## ").filter(|text| text.starts_with(section)).flat_map(str::lines).filter_map(|line| {
        let cells: Vec<&str> = line.split(" | ").collect();
        // The cases are in the last column, and of the differences in the first.
        if section == "Differences" { cells.first().copied() } else { cells.get(2).copied() }
    });
    let names = found.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned);
    names.collect()
}

#[test]
fn each_case_is_in_the_table_of_fields_and_each_difference_has_its_reason() {
    let world = World::new();
    let all: BTreeSet<String> = cases(&world).iter().map(|case| case.name.to_owned()).collect();
    assert_eq!(&documented("Fields") | &documented("Other parts"), all);
    let differing = cases(&world).into_iter().filter(|case| case.expected != Expected::Same);
    assert_eq!(documented("Differences"), differing.map(|case| case.name.to_owned()).collect());
}

#[test]
fn what_kubectl_does_with_a_kubeconfig_fleetctl_does_too() {
    let world = World::new();
    let only = std::env::var("ONLY").ok();
    let mut wrong = Vec::new();
    for case in cases(&world) {
        if only.as_deref().is_some_and(|only| only != case.name) {
            continue;
        }
        wrong.extend(check(&world, &case).map(|problem| format!("{}: {problem}", case.name)));
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

fn check(world: &World, case: &Case) -> Option<String> {
    let folder = world.path().join(case.name);
    std::fs::create_dir_all(folder.join("bin")).unwrap();
    for (name, text) in &case.files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        if name.starts_with("bin/") {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
    let listed: Vec<String> = case.listed.iter().map(|name| folder.join(name).display().to_string()).collect();
    let (theirs, own) = world.run(&folder, &listed.join(":"), &case.env);
    if own.said.contains("panicked") {
        return Some(format!("a panic: {}", own.said));
    }
    let shows = |secret: &str| own.said.contains(secret) || own.said.contains(&world::encoded(secret));
    if let Some(secret) = [&*world.token, "s3cret"].into_iter().find(|secret| shows(secret)) {
        return Some(format!("`{secret}` is printed: {}", own.said));
    }
    let is_told = |words: &str| words.split('|').all(|word| own.said.contains(word));
    let expected = match case.expected {
        Expected::Same => theirs.connected,
        Expected::More => {
            if theirs.connected {
                return Some("kubectl connects, so this is no difference any more".to_owned());
            }
            true
        }
        Expected::Less => {
            if !theirs.connected {
                return Some(format!("kubectl refuses it, too: {}", theirs.said));
            }
            false
        }
    };
    match (expected, own.connected) {
        (true, true) if case.expected == Expected::Same && theirs.seen != own.seen => {
            Some(format!("kubectl is seen as {:.900?}, and fleetctl as {:.900?}", theirs.seen, own.seen))
        }
        (true, true) => None,
        (true, false) => Some(format!("kubectl connects, and fleetctl does not: {}", own.said)),
        (false, true) => Some(format!("fleetctl connects, and kubectl does not: {}", theirs.said)),
        (false, false) if case.refused.is_empty() => Some(format!("both refuse: {} {}", theirs.said, own.said)),
        (false, false) if is_told(case.refused) => None,
        (false, false) => Some(format!("`{}` is not in {} (kubectl: {})", case.refused, own.said, theirs.said)),
    }
}
