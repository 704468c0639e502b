//! Programs of Debian that tests need.

use std::path::Path;

use crate::shell::{Result, command, run, succeeds};

/// Installs the packages that are missing.
pub(crate) fn packages(names: &[&str]) -> Result {
    let is_installed = |name: &str| {
        let status = command("dpkg-query").args(["--show", "--showformat=${Status}", name]).output();
        status.is_ok_and(|output| output.stdout.ends_with(b" installed"))
    };
    let missing: Vec<&str> = names.iter().copied().filter(|name| !is_installed(name)).collect();
    if missing.is_empty() {
        println!("{}: there", names.join(", "));
        return Ok(());
    }
    let message = format!("install Debian's {}", missing.join(", "));
    let install = || {
        let mut install = command("apt-get");
        install.env("DEBIAN_FRONTEND", "noninteractive");
        install.args(["install", "--yes", "--quiet", "--no-install-recommends"]).args(&missing);
        install
    };
    // The lists of a fresh machine are empty, or too old for what is on the servers now.
    if !succeeds(&mut install()) {
        run(command("apt-get").args(["update", "--quiet"])).map_err(|e| format!("{message} ({e})"))?;
        run(&mut install()).map_err(|e| format!("{message} ({e})"))?;
    }
    println!("installed {}", missing.join(", "));
    Ok(())
}

/// Downloads the file of a package into a folder: this version or, if the servers have it no more, the one they have.
pub(crate) fn download(name: &str, version: &str, folder: &Path) -> Result {
    let download = |package: &str| {
        let mut download = command("apt-get");
        // Root's folders are often closed to the user that apt-get would download as.
        download.args(["download", "--quiet", "--option", "APT::Sandbox::User=root"]).arg(package).current_dir(folder);
        download
    };
    let pinned = format!("{name}={version}");
    if succeeds(&mut download(&pinned)) {
        return Ok(());
    }
    run(command("apt-get").args(["update", "--quiet"]))?;
    if succeeds(&mut download(&pinned)) {
        return Ok(());
    }
    println!("warning: Debian's {name} {version} cannot be had; the version that can may hold other data");
    run(&mut download(name))
}
