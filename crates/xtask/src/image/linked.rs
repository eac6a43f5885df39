//! Linked code that is not a crate: the C library, and the unwinder that a panic needs.
//!
//! It depends on the linker: this machine's C compiler links Debian's libraries, Zig compiles its own.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::parts::Part;
use super::program::Program;
use crate::{process, workspace};

/// A static library that Debian compiled and this machine's C compiler links.
struct Archive {
    file: &'static str,
    /// Upstream's name. Debian's name of the source package is in the package URL.
    name: &'static str,
    license: &'static str,
    source: &'static str,
    /// The text of the licence, which Debian's copyright file only names.
    license_text: &'static str,
}

/// The libraries that Rust's standard library needs when glibc is linked statically.
const ARCHIVES: [Archive; 2] = [
    Archive {
        file: "libc.a",
        name: "glibc",
        license: "LGPL-2.1-or-later",
        source: "https://sourceware.org/git/glibc.git",
        license_text: "/usr/share/common-licenses/LGPL-2.1",
    },
    // The unwinder. The compiler's other runtime libraries have the same source.
    Archive {
        file: "libgcc_eh.a",
        name: "libgcc",
        license: "GPL-3.0-or-later WITH GCC-exception-3.1",
        source: "https://gcc.gnu.org/git/gcc.git",
        license_text: "/usr/share/common-licenses/GPL-3",
    },
];

/// The file in which a system names itself.
const RELEASE: &str = "/etc/os-release";

/// The code that is linked into a program beside crates.
pub(super) fn list(program: &Program) -> Result<Vec<Part>> {
    match &program.zig {
        Some(zig) => of_zig(zig),
        None => ARCHIVES.iter().map(of_debian).collect(),
    }
}

/// A library by the version of Debian's source package: scanners know which fixes this version contains.
fn of_debian(archive: &Archive) -> Result<Part> {
    let printed = process::output(Command::new("cc").arg(format!("-print-file-name={}", archive.file)))?;
    let path = fs::canonicalize(printed.trim()).with_context(|| format!("cc has no {}", archive.file))?;
    let found = process::output(Command::new("dpkg-query").arg("--search").arg(&path))?;
    let package = found.rsplit_once(": ").map(|(package, _)| package);
    let package = package.with_context(|| format!("dpkg-query says {found:?} of {}", path.display()))?;
    let format = "--showformat=${source:Package} ${source:Version}";
    let shown = process::output(Command::new("dpkg-query").args(["--show", format, package]))?;
    let (source, version) = shown.split_once(' ').with_context(|| format!("dpkg-query shows {shown:?}"))?;
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

/// The package URL of a source package on the system that a release file describes: Debian or a derivative.
fn debian_url(source: &str, version: &str, release: &str) -> Result<String> {
    let field = |name: &str| {
        let value = release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.map(|value| value.trim_matches('"')).with_context(|| format!("{RELEASE} names no {name}"))
    };
    let (system, number) = (field("ID")?, field("VERSION_ID")?);
    let version = version.replace('+', "%2B");
    Ok(format!("pkg:deb/{system}/{source}@{version}?arch=source&distro={system}-{number}"))
}

/// The code that Zig compiles and links: musl (Zig rewrote a part of it), LLVM's unwinder, and Zig's compiler
/// runtime.
fn of_zig(folder: &Path) -> Result<Vec<Part>> {
    let zig = folder.join("zig");
    let own = process::output(Command::new(&zig).arg("version"))?.trim().to_owned();
    let printed = process::output(Command::new(&zig).args(["cc", "--version"]))?;
    let llvm = printed.strip_prefix("clang version ").and_then(|rest| rest.split_whitespace().next());
    let llvm = llvm.with_context(|| format!("zig cc prints {printed:?} as its version"))?.to_owned();
    let header = folder.join("lib/libc/musl/src/internal/version.h");
    let text = String::from_utf8(workspace::read(&header)?)?;
    let musl = text.split('"').nth(1);
    let musl = musl.with_context(|| format!("{} has no version of musl", header.display()))?.to_owned();
    let part = |name: &str, version: String, purl: String, license: &str, source: &str, text: &str| Part {
        name: name.to_owned(),
        version,
        purl,
        license: Some(license.to_owned()),
        source: Some(source.to_owned()),
        texts: vec![folder.join(text)],
        ..Part::default()
    };
    let musl_url = format!("pkg:generic/musl@{musl}");
    let cpe = Some(format!("cpe:2.3:a:musl-libc:musl:{musl}:*:*:*:*:*:*:*"));
    let musl_source = "https://git.musl-libc.org/cgit/musl";
    let llvm_url = format!("pkg:github/llvm/llvm-project@llvmorg-{llvm}#libunwind");
    let llvm_source = "https://github.com/llvm/llvm-project";
    let llvm_license = "Apache-2.0 WITH LLVM-exception";
    let zig_url = format!("pkg:pypi/ziglang@{own}");
    Ok(vec![
        Part { cpe, ..part("musl", musl, musl_url, "MIT", musl_source, "lib/libc/musl/COPYRIGHT") },
        part("libunwind", llvm, llvm_url, llvm_license, llvm_source, "lib/libunwind/LICENSE.TXT"),
        part("zig", own, zig_url, "MIT", "https://codeberg.org/ziglang/zig", "LICENSE"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_url_names_the_source_package_and_the_system() {
        let release = "NAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nVERSION=\"12 (bookworm)\"\nID=debian\n";
        let url = debian_url("glibc", "2.36-9+deb12u14", release).unwrap();
        assert_eq!(url, "pkg:deb/debian/glibc@2.36-9%2Bdeb12u14?arch=source&distro=debian-12");
        assert!(debian_url("glibc", "2.36", "ID=arch\n").is_err());
    }
}
