//! `cargo bed status`.

use anyhow::Result;

use crate::Bed;
use crate::cluster::process::State;
use crate::parts::cache::size_of_tree;
use crate::say::print;

/// A line a cluster, and the disk that the bed takes.
pub(super) fn print_status(bed: &Bed) -> Result<()> {
    print(format!("{:<12} {:<11} {:<15} {}", "CLUSTER", "KUBERNETES", "ADDRESS", "STATE"));
    let started = bed.place.state.exists();
    for name in bed.spec.names() {
        let (_, spec) = bed.spec.get(name)?;
        // Asking for an address would claim a subnet, and a look claims nothing.
        let (address, state) =
            if started { (bed.cluster(name)?.ip(), state(bed, name)?) } else { ("-".to_owned(), "down".to_owned()) };
        let version = crate::parts::kubernetes(&spec.kubernetes)?.version;
        print(format!("{name:<12} {version:<11} {address:<15} {state}"));
    }
    print(String::new());
    print(format!(
        "cache   {:>9}  {}  (`cargo bed clean` gives it back)",
        size(bed.cache.size()),
        bed.cache.root().display()
    ));
    if started {
        let state = &bed.place.state;
        print(format!(
            "state   {:>9}  {}  (`cargo bed down` takes it away)",
            size(size_of_tree(state)),
            state.display()
        ));
    }
    Ok(())
}

fn state(bed: &Bed, name: &str) -> Result<String> {
    let cluster = bed.cluster(name)?;
    let unit = cluster.supervisor();
    let components = unit.components();
    if components.is_empty() {
        return Ok("down".to_owned());
    }
    let of = |wanted: State| {
        components.iter().filter(|name| unit.state(name) == wanted).cloned().collect::<Vec<_>>().join(", ")
    };
    let (paused, stopped) = (of(State::Paused), of(State::Stopped));
    let mut words = vec![if cluster.is_up() { "up" } else { "incomplete, `cargo bed up` mends it" }.to_owned()];
    if !paused.is_empty() {
        words.push(format!("paused: {paused}"));
    }
    if !stopped.is_empty() {
        words.push(format!("stopped: {stopped}"));
    }
    Ok(words.join("; "))
}

/// Bytes for a reader: `1.4 GiB`.
pub(super) fn size(bytes: u64) -> String {
    let tenths = |unit: u64| format!("{}.{}", bytes / unit, bytes % unit * 10 / unit);
    match bytes {
        0x4000_0000.. => format!("{} GiB", tenths(0x4000_0000)),
        0x10_0000.. => format!("{} MiB", tenths(0x10_0000)),
        _ => format!("{} KiB", bytes / 1024),
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_for_readers() {
        assert_eq!([0, 2048, 1_572_864, 3_221_225_472].map(size), ["0 KiB", "2 KiB", "1.5 MiB", "3.0 GiB"]);
    }
}
