//! Virtual environments of Python. The project's own is `.venv`, for the independent decoder and for NVRTC.

use std::fs;
use std::path::{Path, PathBuf};

use crate::shell::{Result, command, root, run, succeeds};

/// The interpreter of `.venv`.
pub(crate) fn python() -> PathBuf {
    root().join(".venv/bin/python")
}

/// Where the packages of `.venv` are.
pub(crate) fn site_packages() -> Result<PathBuf> {
    let output =
        command(python()).args(["-c", "import sysconfig; print(sysconfig.get_path('platlib'), end='')"]).output();
    let output = output.map_err(|e| format!("{}: {e}", python().display()))?;
    let path = String::from_utf8(output.stdout).map_err(|e| format!("site-packages: {e}"))?;
    if output.status.success() { Ok(path.into()) } else { Err(String::from_utf8_lossy(&output.stderr).into()) }
}

/// Lists of the packages of `.venv`.
const REQUIREMENTS: [&str; 2] = ["reference/requirements.txt", "crates/pumice-gpu/requirements.txt"];

/// Makes `.venv`; again only when one of its lists has changed.
pub(crate) fn environment() -> Result {
    make("python3", &[], &root().join(".venv"), &REQUIREMENTS)
}

/// Makes a virtual environment with the packages of a list; again only when the list has changed.
pub(crate) fn make_environment(folder: &Path, requirements: &str) -> Result {
    make("python3", &[], folder, &[requirements])
}

/// The same on top of the packages of Debian, and so with the Python that these were built for.
pub(crate) fn make_environment_over_debian(folder: &Path, requirements: &str) -> Result {
    make("/usr/bin/python3", &["--system-site-packages"], folder, &[requirements])
}

fn make(interpreter: &str, options: &[&str], folder: &Path, lists: &[&str]) -> Result {
    let mut wanted = String::new();
    let mut pip = vec!["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    for list in lists {
        wanted += &fs::read_to_string(root().join(list)).map_err(|e| format!("{list}: {e}"))?;
        pip.extend(["-r", list]);
    }
    let (stamp, python) = (folder.join("requirements.installed"), folder.join("bin/python"));
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) && succeeds(command(&python).arg("-V")) {
        println!("{}: up to date", folder.display());
        return Ok(());
    }
    // `venv` can be there without `ensurepip`, which Debian packs apart.
    if !succeeds(command(interpreter).args(["-c", "import venv, ensurepip"])) {
        let message = "Python's venv module is missing; install Debian's python3-venv";
        let mut update = command("apt-get");
        run(update.arg("update")).map_err(|e| format!("{message} ({e})"))?;
        let mut install = command("apt-get");
        install.env("DEBIAN_FRONTEND", "noninteractive");
        run(install.args(["install", "--yes", "--no-install-recommends", "python3", "python3-venv"]))
            .map_err(|e| format!("{message} ({e})"))?;
    }
    run(command(interpreter).args(["-m", "venv", "--clear"]).args(options).arg(folder))?;
    run(command(&python).args(pip))?;
    fs::write(&stamp, wanted).map_err(|e| format!("{}: {e}", stamp.display()))
}
