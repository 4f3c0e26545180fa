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
use object::macho::{CPU_TYPE_ARM64, LC_CODE_SIGNATURE, LinkeditDataCommand, MachHeader64};
use object::read::macho::MachHeader as _;
use sha2::{Digest as _, Sha256};

use super::programs::linker_variable;
use crate::parts::cache::remove_tree;
use crate::run;

/// The oldest macOS that the programs run on: the one that zig's C library is of where nothing else is asked for.
const OLDEST: &str = "13.0";

/// Options of rustc that keep the folder of a build out of a program. Its UUID is made by the linker, of the name of the file,
/// to which cargo adds a digest of that folder, and of all bytes, those that rustc takes away only afterwards among them: symbols,
/// and where the objects of C code with their debugging information are.
pub(super) const FOLDERLESS: [&str; 8] =
    ["-C", "link-arg=-final_output", "-C", "link-arg=fleetctl", "-C", "link-arg=-S", "-C", "link-arg=-x"];

/// Paths of libraries that every macOS has; a program that loads another one would not start.
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
    build.env(linker_variable(triple), "rust-lld");
    Ok(())
}

/// Fails if a program could not start on the macOS that it was linked for: each library that it loads has to be one that is
/// there, and Apple's own processors run nothing without a signature that fits, of whomever.
pub(super) fn check(program: &Path) -> Result<()> {
    let data = fs::read(program)?;
    let header = MachHeader64::<Endianness>::parse(&*data, 0);
    let header = header.with_context(|| format!("{} is not a program for macOS", program.display()))?;
    let endian = header.endian()?;
    let mut commands = header.load_commands(endian, &*data, 0)?;
    let mut signature = None;
    while let Some(command) = commands.next()? {
        if command.cmd() == LC_CODE_SIGNATURE {
            let place: &LinkeditDataCommand<Endianness> = command.data()?;
            signature = Some(place.dataoff.get(endian) as usize);
        }
        if let Some(library) = command.dylib()? {
            let name = String::from_utf8_lossy(command.string(endian, library.dylib.name)?).into_owned();
            if !LIBRARIES.contains(&name.as_str()) {
                bail!("{} loads {name}, which not every macOS has", program.display());
            }
        }
    }
    match signature {
        None if header.cputype(endian) == CPU_TYPE_ARM64 => bail!("{} has no signature", program.display()),
        Some(at) if is_signed(&data, at) != Some(true) => {
            bail!(
                "the signature of {} is of another program: something was changed after it was made",
                program.display()
            )
        }
        _ => Ok(()),
    }
}

/// Returns whether the code directory at the start of a signature holds the SHA-256 of each page of the program, as Apple's
/// `cs_blobs.h` has it: numbers are big-endian and offsets from the start of the blob that they are in. None where it is cut off.
fn is_signed(program: &[u8], at: usize) -> Option<bool> {
    fn number(bytes: &[u8], at: usize) -> Option<usize> {
        bytes.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes) as usize)
    }
    let blobs = program.get(at..)?;
    // The first blob of the index, after magic, length and count: its type and where it is.
    let directory = blobs.get(number(blobs, 16)?..)?;
    let (hashes, pages, end) = (number(directory, 16)?, number(directory, 28)?, number(directory, 32)?);
    let page = 1_usize.checked_shl((*directory.get(39)?).into())?;
    let hashes = directory.get(hashes..)?.chunks_exact(32).take(pages);
    let found = program.get(..end)?.chunks(page).map(|page| Sha256::digest(page).to_vec());
    Some(hashes.map(<[u8]>::to_vec).eq(found))
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

    /// The command that says where the signature is.
    fn signature(at: usize) -> Vec<u8> {
        [LC_CODE_SIGNATURE, 16, u32::try_from(at).unwrap(), 0].into_iter().flat_map(u32::to_le_bytes).collect()
    }

    /// A program with a signature by pages of 64 bytes.
    fn signed(commands: &[Vec<u8>]) -> Vec<u8> {
        let length = program(CPU_TYPE_ARM64, &[commands, &[signature(0)]].concat()).len();
        let bytes = program(CPU_TYPE_ARM64, &[commands, &[signature(length)]].concat());
        let pages = u32::try_from(bytes.len().div_ceil(64)).unwrap();
        // One blob, and of the directory what is read: 40 bytes, then the hashes.
        let index = [0xfade_0cc0, 0, 1, 0, 20];
        let directory = [0xfade_0c02, 0, 0, 0, 40, 0, 0, pages, u32::try_from(length).unwrap(), 6];
        let numbers = index.into_iter().chain(directory).flat_map(u32::to_be_bytes);
        let hashes = bytes.chunks(64).flat_map(Sha256::digest);
        bytes.iter().copied().chain(numbers).chain(hashes).collect()
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
        assert!(said(signed(&[system()])).is_ok());
        assert!(said(program(object::macho::CPU_TYPE_X86_64, &[system()])).is_ok(), "Intel's run without one");
        assert_eq!(said(program(CPU_TYPE_ARM64, &[system()])).unwrap_err(), "has no signature");
        let other = said(signed(&[loads("/opt/lib/libz.dylib")])).unwrap_err();
        assert_eq!(other, "loads /opt/lib/libz.dylib, which not every macOS has");
        let mut changed = signed(&[system()]);
        changed[28] ^= 1;
        assert!(said(changed).unwrap_err().starts_with("the signature of is of another program"));
        let cut = signed(&[system()]);
        assert!(said(cut[..cut.len() - 1].to_vec()).unwrap_err().starts_with("the signature of is of another"));
        assert!(said(b"\x7fELF".repeat(20)).unwrap_err().starts_with("is not a program for macOS"));
    }
}
