//! What takes minutes: runs with `cargo bed test --exhaustive`.

use futures::TryStreamExt as _;

use crate::support::Etcd;

/// A figure of this process, in KiB.
fn own_memory(figure: &str) -> u64 {
    let status = fs_err::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(figure)).expect("a line");
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn a_store_of_two_gibibytes_passes_in_64_mebibytes() {
    let etcd = Etcd::start(1, 8 << 30);
    etcd.fill("large", 2048);
    let snapshot = etcd.client(0).open_snapshot().await.unwrap();
    let announced = snapshot.total_bytes();
    assert!(announced > 2 << 30, "{announced}");
    // The peak is counted from here on.
    fs_err::write("/proc/self/clear_refs", "5").unwrap();
    let before = own_memory("VmRSS");
    let read = snapshot.try_fold(0_u64, |read, piece| async move { Ok(read + piece.len() as u64) }).await;
    assert_eq!(read.unwrap(), announced);
    let more = own_memory("VmHWM").saturating_sub(before);
    assert!(more < 64 * 1024, "{more} KiB more than before");
}
