//! The system's own programs that nodes need: installed on Debian, asked for elsewhere.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use fs_err as fs;

use crate::Unfit;
use crate::parts::cache::remove_tree;
use crate::run;
use crate::say::say;

/// Package and the file that shows it is there: what every cluster needs.
const FOR_ALL: &[(&str, &str)] = &[("iproute2", "ip"), ("util-linux", "nsenter")];
/// What nodes and images need.
const FOR_NODES: &[(&str, &str)] = &[
    ("buildah", "buildah"),
    ("busybox-static", BUSYBOX),
    ("conntrack", "conntrack"),
    ("containerd", "containerd"),
    ("containernetworking-plugins", "/usr/lib/cni/bridge"),
    ("ethtool", "ethtool"),
    ("ipset", "ipset"),
    ("iptables", "iptables"),
    ("runc", "runc"),
    ("skopeo", "skopeo"),
    ("socat", "socat"),
];

/// The shells that completion is tried in, beside bash, and what gives them a terminal.
const SHELLS: &[(&str, &str)] = &[("bsdutils", "script"), ("fish", "fish"), ("zsh", "zsh")];

/// What links programs for arm64 against a static C library.
const CROSS_LINKER: &[(&str, &str)] = &[
    ("gcc-aarch64-linux-gnu", "aarch64-linux-gnu-gcc"),
    ("libc6-dev-arm64-cross", "/usr/aarch64-linux-gnu/lib/libc.a"),
];

/// What runs programs for arm64 and for 32-bit x86, with their C libraries.
const EMULATORS: &[(&str, &str)] = &[
    ("libc6-arm64-cross", "/usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1"),
    ("libc6-i386", "/lib/ld-linux.so.2"),
    ("qemu-user-static", "qemu-aarch64-static"),
];

/// The shell of the images that need one.
pub(crate) const BUSYBOX: &str = "/bin/busybox";

/// Sees to it that clusters, with nodes or without, find what they need.
pub(crate) fn ensure(nodes: bool) -> Result<()> {
    install("clusters need", FOR_ALL.iter().chain(if nodes { FOR_NODES } else { &[] }))
}

/// Sees to it that shells are there.
pub(crate) fn shells() -> Result<()> {
    install("tests of completion need", SHELLS.iter())
}

/// Sees to it that a Debian can be made in a folder.
pub(crate) fn debian() -> Result<()> {
    install("a Debian in a folder needs", std::iter::once(&("debootstrap", "debootstrap")))
}

/// Sees to it that images for arm64 can be linked, with the C library inside.
pub(crate) fn cross_linker() -> Result<()> {
    install("images for arm64 need", CROSS_LINKER.iter())
}

/// Sees to it that programs for the other architectures of Linux run; what cannot be installed is told, and nothing more.
pub(crate) fn emulators() {
    if let Err(error) = install("programs for other architectures need", EMULATORS.iter()) {
        say(format!("some programs will be built and not run: {error:#}"));
    }
}

/// Puts the registry of Debian into a folder, as `registry`. It is unpacked and not installed: that would also start it, as a
/// service of this machine.
pub(crate) fn unpack_registry(folder: &Path) -> Result<()> {
    let staged = folder.with_extension("part");
    remove_tree(&staged)?;
    fs::create_dir_all(&staged)?;
    let script = "apt-get download -q docker-registry || { apt-get update -q && apt-get download -q docker-registry; }
        dpkg-deb --extract docker-registry_*.deb unpacked
        mv unpacked/usr/bin/docker-registry registry
        ./registry --version
        rm -r unpacked docker-registry_*.deb";
    run::output_of(Command::new("sh").args(["-ec", script]).current_dir(&staged))?;
    fs::rename(&staged, folder)?;
    Ok(())
}

/// Installs what is missing, after saying so; where that cannot be done, says how the user can.
fn install<'p>(purpose: &str, needed: impl Iterator<Item = &'p (&'p str, &'p str)>) -> Result<()> {
    let missing: Vec<_> = needed.filter(|(_, file)| !present(file)).map(|(package, _)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let install = format!("apt-get install --yes --no-install-recommends {}", missing.join(" "));
    if !Path::new("/etc/debian_version").exists() || !rustix::process::geteuid().is_root() {
        let how = format!(
            "these packages are missing (Debian's names): {}\ninstall them and run this again; on Debian or Ubuntu:\n  apt-get update && {install}",
            missing.join(" ")
        );
        return Err(Unfit(how).into());
    }
    say(format!("installing packages that {purpose}: {}", missing.join(" ")));
    let script = format!("export DEBIAN_FRONTEND=noninteractive; apt-get update -q && {install}");
    run::output("sh", &["-ec", &script]).context("cannot install the packages; run the command by hand to see why")?;
    Ok(())
}

fn present(file: &str) -> bool {
    if file == BUSYBOX {
        // Debian's other busybox is dynamic, and an image from scratch has no loader for it.
        return fs::read(file).is_ok_and(|elf| is_static(&elf).unwrap_or(false));
    }
    if file.starts_with('/') { PathBuf::from(file).exists() } else { run::find(file).is_some() }
}

/// Whether a 64-bit little-endian ELF program names no loader (program header 3, `PT_INTERP`).
pub(crate) fn is_static(elf: &[u8]) -> Option<bool> {
    let word = |at: usize, size: usize| {
        let bytes = elf.get(at..at + size)?;
        usize::try_from(bytes.iter().rev().fold(0u64, |value, byte| (value << 8) | u64::from(*byte))).ok()
    };
    let (table, entry, count) = (word(0x20, 8)?, word(0x36, 2)?, word(0x38, 2)?);
    let kinds = (0..count).map(|index| word(table + index * entry, 4)).collect::<Option<Vec<_>>>()?;
    Some(elf.starts_with(b"\x7fELF") && !kinds.contains(&3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_is_dynamic_and_a_text_is_no_program() {
        let own = std::env::current_exe().and_then(fs::read).expect("this program can be read");
        assert_eq!(is_static(&own), Some(false));
        assert_ne!(is_static(b"#!/bin/sh"), Some(true));
    }
}
