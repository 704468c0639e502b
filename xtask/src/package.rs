//! `cargo xtask package`: the crates as crates.io would get them.
//!
//! Cargo packs them together, so that one may need another that nobody has published yet, and builds each from its
//! archive alone. What goes in is checked as well: readme, licences and what crates.io shows must be there, and an archive
//! that grows beyond a limit has something in it that belongs to tests.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::shell::{self, Result, cargo, command, output, read, root, run};

/// The largest archive has the PTX of all kernels.
const MAX_ARCHIVE_BYTES: u64 = 2 << 20;
/// Files of every crate.
const REQUIRED: [&str; 4] = ["Cargo.toml", "README.md", LICENCES[0], LICENCES[1]];
/// Links in the folders of the crates, which must be files in the archives.
const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

pub(crate) fn run_task(options: &[&str]) -> Result {
    match options {
        [] => pack(true),
        ["--no-verify"] => pack(false),
        _ => Err("package takes nothing, or --no-verify".into()),
    }
}

fn pack(verify: bool) -> Result {
    let crates = publishable()?;
    crates.iter().try_for_each(check_metadata)?;
    // A folder of its own: all crates are then built with the same dependencies, and not each with its own.
    let target = shell::target_dir().join("package-all");
    let mut package = cargo();
    // The lock file is that of the repository: what was tested is what is built.
    package.args(["package", "--locked", "--allow-dirty", "--target-dir"]).arg(&target);
    if !verify {
        package.arg("--no-verify");
    }
    for described in &crates {
        package.args(["--package", text(described, "name")?]);
    }
    run(&mut package)?;
    println!("{:<32}{:>8}{:>12}", "archive", "files", "bytes");
    for described in &crates {
        check_archive(&target.join("package"), text(described, "name")?, text(described, "version")?)?;
    }
    let address = text(&crates[0], "repository")?;
    if address.split('/').nth(2).is_some_and(|host| host.ends_with(".example")) {
        println!("to do before publishing: `repository` in Cargo.toml is {address}, which nobody can open");
    }
    Ok(())
}

/// Members of the workspace that may be published.
fn publishable() -> Result<Vec<Value>> {
    let metadata = output(cargo().args(["metadata", "--format-version", "1", "--no-deps", "--locked"]))?;
    let mut metadata: Value = serde_json::from_str(&metadata).map_err(|e| format!("cargo metadata: {e}"))?;
    let Value::Array(mut crates) = metadata["packages"].take() else {
        return Err("cargo metadata lists no packages".into());
    };
    // `publish = false` is an empty list of registries.
    crates.retain(|described| described["publish"].as_array().is_none_or(|registries| !registries.is_empty()));
    if crates.is_empty() { Err("no crate may be published".into()) } else { Ok(crates) }
}

/// What crates.io refuses to do without, or shows.
fn check_metadata(described: &Value) -> Result {
    let name = text(described, "name")?;
    for field in ["description", "license", "repository", "readme", "rust_version"] {
        text(described, field).map_err(|_| format!("{name}: Cargo.toml has no `{}`", field.replace('_', "-")))?;
    }
    for field in ["keywords", "categories"] {
        let count = described[field].as_array().map_or(0, Vec::len);
        if !(1..=5).contains(&count) {
            return Err(format!("{name}: Cargo.toml has {count} {field}; crates.io wants one to five"));
        }
    }
    Ok(())
}

fn check_archive(folder: &Path, name: &str, version: &str) -> Result {
    let inside = format!("{name}-{version}");
    let archive = folder.join(format!("{inside}.crate"));
    let size = fs::metadata(&archive).map_err(|e| format!("{}: {e}", archive.display()))?.len();
    let listing = output(command("tar").arg("-tzf").arg(&archive))?;
    println!("{:<32}{:>8}{size:>12}", format!("{inside}.crate"), listing.lines().count());
    for file in REQUIRED {
        if !listing.lines().any(|line| line == format!("{inside}/{file}")) {
            return Err(format!("{inside}.crate has no {file}: see `include` in crates/{name}/Cargo.toml"));
        }
    }
    for file in LICENCES {
        let packed = output(command("tar").arg("-xzOf").arg(&archive).arg(format!("{inside}/{file}")))?;
        if packed != read(&root().join(file))? {
            return Err(format!("{inside}.crate: {file} is not that of the repository"));
        }
    }
    if size > MAX_ARCHIVE_BYTES {
        return Err(format!("{inside}.crate has {size} bytes, more than {MAX_ARCHIVE_BYTES}: see `tar -tvf`"));
    }
    Ok(())
}

fn text<'a>(described: &'a Value, field: &str) -> Result<&'a str> {
    described[field].as_str().ok_or_else(|| format!("cargo metadata: a package has no `{field}`"))
}
