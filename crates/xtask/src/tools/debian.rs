//! Programs from Debian's packages: those that need a C compiler or belong to the kernel, and that most
//! machines have anyway.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::process;

/// Installs the packages that are missing. An error contains the purpose, and the command that installs them.
pub(crate) fn install(packages: &[&str], purpose: &str) -> Result<()> {
    if !process::exists("dpkg-query", "--version")? || !process::exists("apt-get", "--version")? {
        bail!(
            "{purpose}: install them yourself; this system has no apt-get. Debian's packages are {}",
            packages.join(", ")
        );
    }
    if are_installed(packages) {
        return Ok(());
    }
    let named = packages.join(" ");
    if !process::is_root() {
        bail!("{purpose}: run `apt-get install {named}` as root");
    }
    eprintln!("installing {named}");
    process::run(Command::new("apt-get").args(["update", "--quiet"]))?;
    let mut install = Command::new("apt-get");
    install.args(["install", "--quiet", "--yes", "--no-install-recommends"]).args(packages);
    // Standard output is for results, and this is progress.
    process::run(install.env("DEBIAN_FRONTEND", "noninteractive").stdout(std::io::stderr()))
}

fn are_installed(packages: &[&str]) -> bool {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat=${db:Status-Status}\n"]).args(packages);
    // It fails with a long message if it does not know a package.
    query.stderr(Stdio::null());
    process::output(&mut query).is_ok_and(|states| states.lines().all(|state| state == "installed"))
}
