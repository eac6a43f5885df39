//! Programs from Debian's packages: for what needs a C compiler or the kernel's company, and is on most
//! machines anyway.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::process;

/// Installs packages; nothing is done where all are installed.
///
/// # Errors
/// When one is missing and cannot be installed: this is not Debian or one of its kin, or we are not root. The
/// error says what the packages are for, and what to do.
pub(crate) fn install(packages: &[&str], purpose: &str) -> Result<()> {
    if !process::exists("dpkg-query", "--version")? || !process::exists("apt-get", "--version")? {
        bail!("{purpose}: only Debian and its kin are known here, and have it in {}", packages.join(", "));
    }
    if are_installed(packages) {
        return Ok(());
    }
    let packages_named = packages.join(" ");
    if !process::is_root() {
        bail!("{purpose}: run `apt-get install {packages_named}` as root");
    }
    eprintln!("installing {packages_named}");
    process::run(Command::new("apt-get").args(["update", "--quiet"]))?;
    let mut install = Command::new("apt-get");
    install.args(["install", "--quiet", "--yes", "--no-install-recommends"]).args(packages);
    // What it prints is progress, and must not be taken for a result of ours.
    process::run(install.env("DEBIAN_FRONTEND", "noninteractive").stdout(std::io::stderr()))
}

fn are_installed(packages: &[&str]) -> bool {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat=${db:Status-Status}\n"]).args(packages);
    // It fails, and says so at length, where a package was never heard of.
    query.stderr(Stdio::null());
    process::output(&mut query).is_ok_and(|states| states.lines().all(|state| state == "installed"))
}
