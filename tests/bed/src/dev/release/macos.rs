//! Programs for macOS, linked on Linux: by the linker that comes with Rust, against the names that the libraries of macOS
//! export.
//!
//! Of Apple's SDK, which may not be passed on, a linker reads only text files with these names. That of the C library comes
//! with zig; the others are in `tests/bed/macos`, with the names that the program uses. A crate that uses another one makes
//! the linker fail with "undefined symbol", and the name belongs into the file of its framework.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use fs_err as fs;
use object::Endianness;
use object::macho::{CPU_TYPE_ARM64, LC_CODE_SIGNATURE, MachHeader64};
use object::read::macho::MachHeader as _;

use crate::parts::cache::remove_tree;
use crate::run;

/// The oldest macOS that the programs run on: the one that zig's C library is of where nothing else is asked for.
const OLDEST: &str = "13.0";

/// Where each library is on every macOS; a program that asks for another one would not start.
const LIBRARIES: [&str; 4] = [
    "/System/Library/Frameworks/CoreFoundation.framework/Versions/A/CoreFoundation",
    "/System/Library/Frameworks/Security.framework/Versions/A/Security",
    "/usr/lib/libSystem.B.dylib",
    "/usr/lib/libiconv.2.dylib",
];

/// The files with the names, and where a linker looks for them.
const NAMES: [(&str, &str); 3] = [
    (
        "System/Library/Frameworks/CoreFoundation.framework/CoreFoundation.tbd",
        include_str!("../../../macos/CoreFoundation.tbd"),
    ),
    ("System/Library/Frameworks/Security.framework/Security.tbd", include_str!("../../../macos/Security.tbd")),
    ("usr/lib/libiconv.tbd", include_str!("../../../macos/libiconv.tbd")),
];

/// Has a build for this target link for macOS; `python` is the interpreter that has zig, and `folder` is for the names.
pub(super) fn link(build: &mut Command, triple: &str, python: &Path, folder: &Path) -> Result<()> {
    let zig = run::output_of(Command::new(python).args(["-c", "import ziglang; print(ziglang.__path__[0])"]))?;
    let system = fs::read(Path::new(zig.trim()).join("lib/libc/darwin/libSystem.tbd"))?;
    remove_tree(folder)?;
    let write = |name: &str, text: &[u8]| {
        let file = folder.join(name);
        fs::create_dir_all(file.parent().context("it is in a folder")?)?;
        anyhow::Ok(fs::write(file, text)?)
    };
    for (name, text) in NAMES {
        write(name, text.as_bytes())?;
    }
    // On macOS they are one library.
    for name in ["System", "c", "m"] {
        write(&format!("usr/lib/lib{name}.tbd"), &system)?;
    }
    build.env("SDKROOT", folder).env("MACOSX_DEPLOYMENT_TARGET", OLDEST);
    build.env(format!("CARGO_TARGET_{}_LINKER", triple.replace('-', "_").to_uppercase()), "rust-lld");
    Ok(())
}

/// Fails if a program could not start on the macOS that it was linked for: each library that it loads has to be one that is
/// there, and Apple's own processors run nothing without a signature, of whomever.
pub(super) fn check(program: &Path) -> Result<()> {
    let data = fs::read(program)?;
    let header = MachHeader64::<Endianness>::parse(&*data, 0);
    let header = header.with_context(|| format!("{} is not a program for macOS", program.display()))?;
    let endian = header.endian()?;
    let mut commands = header.load_commands(endian, &*data, 0)?;
    let mut signed = false;
    while let Some(command) = commands.next()? {
        signed |= command.cmd() == LC_CODE_SIGNATURE;
        if let Some(library) = command.dylib()? {
            let name = String::from_utf8_lossy(command.string(endian, library.dylib.name)?).into_owned();
            if !LIBRARIES.contains(&name.as_str()) {
                bail!("{} loads {name}, which not every macOS has", program.display());
            }
        }
    }
    if header.cputype(endian) == CPU_TYPE_ARM64 && !signed {
        bail!("{} has no signature", program.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program of this processor with these load commands, each with its own size.
    fn program(cpu: u32, commands: &[Vec<u8>]) -> Vec<u8> {
        let size: usize = commands.iter().map(Vec::len).sum();
        let header =
            [object::macho::MH_MAGIC_64, cpu, 0, object::macho::MH_EXECUTE, commands.len().try_into().unwrap()];
        let rest = [size.try_into().unwrap(), 0, 0];
        let mut bytes: Vec<u8> = header.into_iter().chain(rest).flat_map(u32::to_le_bytes).collect();
        bytes.extend(commands.concat());
        bytes
    }

    fn loads(name: &str) -> Vec<u8> {
        let padded = name.len().next_multiple_of(8) + 8;
        let words = [object::macho::LC_LOAD_DYLIB, u32::try_from(24 + padded).unwrap(), 24, 0, 0, 0];
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        bytes.extend(name.as_bytes());
        bytes.resize(24 + padded, 0);
        bytes
    }

    fn signature() -> Vec<u8> {
        [LC_CODE_SIGNATURE, 16, 0, 0].into_iter().flat_map(u32::to_le_bytes).collect()
    }

    #[test]
    fn a_program_that_could_not_start_is_refused() {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("fleetctl");
        let said = |bytes: Vec<u8>| {
            fs::write(&file, bytes).unwrap();
            check(&file).map_err(|e| format!("{e:#}").replace(&format!("{} ", file.display()), ""))
        };
        let system = || loads(LIBRARIES[2]);
        assert_eq!(said(program(CPU_TYPE_ARM64, &[system(), signature()])), Ok(()));
        assert_eq!(said(program(object::macho::CPU_TYPE_X86_64, &[system()])), Ok(()), "Intel's run without one");
        assert_eq!(said(program(CPU_TYPE_ARM64, &[system()])), Err("has no signature".to_owned()));
        let other = program(CPU_TYPE_ARM64, &[loads("/opt/lib/libz.dylib"), signature()]);
        assert_eq!(said(other), Err("loads /opt/lib/libz.dylib, which not every macOS has".to_owned()));
        assert!(said(b"\x7fELF".repeat(20)).unwrap_err().starts_with("is not a program for macOS"));
    }
}
