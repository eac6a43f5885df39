//! What is linked into a program and is no crate: the C library, and what finds the way back when a thread
//! panics.
//!
//! What they are is decided by who links: this machine's C compiler takes what Debian compiled, Zig compiles
//! its own.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::parts::Part;
use super::program::Program;
use crate::{process, workspace};

/// A static library that this machine's C compiler links. Debian has compiled it.
struct Archive {
    file: &'static str,
    /// As its authors call it; Debian's own name of its source is in its package URL.
    name: &'static str,
    license: &'static str,
    source: &'static str,
    /// The text of the licence, which Debian's own terms only name.
    license_text: &'static str,
}

/// What Rust's standard library asks for where glibc is linked statically.
const ARCHIVES: [Archive; 2] = [
    Archive {
        file: "libc.a",
        name: "glibc",
        license: "LGPL-2.1-or-later",
        source: "https://sourceware.org/git/glibc.git",
        license_text: "/usr/share/common-licenses/LGPL-2.1",
    },
    // The unwinder; what else a C compiler links of its own is of the same source.
    Archive {
        file: "libgcc_eh.a",
        name: "libgcc",
        license: "GPL-3.0-or-later WITH GCC-exception-3.1",
        source: "https://gcc.gnu.org/git/gcc.git",
        license_text: "/usr/share/common-licenses/GPL-3",
    },
];

/// The file in which a system says what it is.
const RELEASE: &str = "/etc/os-release";

/// What is linked into a program beside crates.
///
/// # Errors
/// When the C compiler or the system's packages do not tell what they have.
pub(super) fn list(program: &Program) -> Result<Vec<Part>> {
    match &program.zig {
        Some(zig) => of_zig(zig),
        None => ARCHIVES.iter().map(of_debian).collect(),
    }
}

/// A library as the system's package has it: scanners know what Debian has mended since its authors' version
/// by the version of the source package.
fn of_debian(archive: &Archive) -> Result<Part> {
    let printed = process::output(Command::new("cc").arg(format!("-print-file-name={}", archive.file)))?;
    let path = fs::canonicalize(printed.trim()).with_context(|| format!("cc has no {}", archive.file))?;
    let found = process::output(Command::new("dpkg-query").arg("--search").arg(&path))?;
    let package = found.rsplit_once(": ").map(|(package, _)| package);
    let package = package.with_context(|| format!("dpkg-query told {found:?} of {}", path.display()))?;
    let mut query = Command::new("dpkg-query");
    let format = "--showformat=${source:Package} ${source:Version}";
    let told = process::output(query.args(["--show", format, package]))?;
    let (source, version) = told.split_once(' ').with_context(|| format!("dpkg-query told {told:?}"))?;
    let folder = package.split(':').next().unwrap_or(package);
    let release = fs::read_to_string(RELEASE).with_context(|| format!("cannot read {RELEASE}"))?;
    Ok(Part {
        name: archive.name.to_owned(),
        version: version.to_owned(),
        purl: debian_url(source, version, &release)?,
        license: Some(archive.license.to_owned()),
        source: Some(archive.source.to_owned()),
        texts: vec![Path::new("/usr/share/doc").join(folder).join("copyright"), archive.license_text.into()],
        ..Part::default()
    })
}

/// The package URL of a source package of the system that a release file describes, which is Debian or is
/// made of it.
fn debian_url(source: &str, version: &str, release: &str) -> Result<String> {
    let field = |name: &str| {
        let value = release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.map(|value| value.trim_matches('"')).with_context(|| format!("{RELEASE} names no {name}"))
    };
    let (system, number) = (field("ID")?, field("VERSION_ID")?);
    let version = version.replace('+', "%2B");
    Ok(format!("pkg:deb/{system}/{source}@{version}?arch=source&distro={system}-{number}"))
}

/// What Zig compiles and links: musl, of which it has a part in its own words, LLVM's unwinder, and what
/// compiled code calls.
fn of_zig(folder: &Path) -> Result<Vec<Part>> {
    let musl = folder.join("lib/libc/musl");
    let (own, llvm, of_musl) = zig_versions(folder)?;
    let unwinder = folder.join("lib/libunwind");
    Ok(vec![
        Part {
            name: "musl".to_owned(),
            purl: format!("pkg:generic/musl@{of_musl}"),
            cpe: Some(format!("cpe:2.3:a:musl-libc:musl:{of_musl}:*:*:*:*:*:*:*")),
            version: of_musl,
            license: Some("MIT".to_owned()),
            source: Some("https://git.musl-libc.org/cgit/musl".to_owned()),
            texts: vec![musl.join("COPYRIGHT")],
            ..Part::default()
        },
        Part {
            name: "libunwind".to_owned(),
            purl: format!("pkg:github/llvm/llvm-project@llvmorg-{llvm}#libunwind"),
            version: llvm,
            license: Some("Apache-2.0 WITH LLVM-exception".to_owned()),
            source: Some("https://github.com/llvm/llvm-project".to_owned()),
            texts: vec![unwinder.join("LICENSE.TXT")],
            ..Part::default()
        },
        Part {
            name: "zig".to_owned(),
            // As it came to this machine.
            purl: format!("pkg:pypi/ziglang@{own}"),
            version: own,
            license: Some("MIT".to_owned()),
            source: Some("https://codeberg.org/ziglang/zig".to_owned()),
            texts: vec![folder.join("LICENSE")],
            ..Part::default()
        },
    ])
}

/// The versions of Zig, of its LLVM, whose unwinder it has, and of its musl.
fn zig_versions(folder: &Path) -> Result<(String, String, String)> {
    let zig = folder.join("zig");
    let own = process::output(Command::new(&zig).arg("version"))?;
    let told = process::output(Command::new(&zig).args(["cc", "--version"]))?;
    let llvm = told.strip_prefix("clang version ").and_then(|rest| rest.split_whitespace().next());
    let llvm = llvm.with_context(|| format!("zig cc told {told:?} for its version"))?;
    let header = folder.join("lib/libc/musl/src/internal/version.h");
    let told = String::from_utf8(workspace::read(&header)?)?;
    let musl = told.split('"').nth(1);
    let musl = musl.with_context(|| format!("{} has no version of musl", header.display()))?;
    Ok((own.trim().to_owned(), llvm.to_owned(), musl.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_called_as_scanners_know_its_source() {
        let release = "NAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nVERSION=\"12 (bookworm)\"\nID=debian\n";
        let url = debian_url("glibc", "2.36-9+deb12u14", release).unwrap();
        assert_eq!(url, "pkg:deb/debian/glibc@2.36-9%2Bdeb12u14?arch=source&distro=debian-12");
        assert!(debian_url("glibc", "2.36", "ID=arch\n").is_err());
    }
}
