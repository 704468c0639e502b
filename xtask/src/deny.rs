//! `cargo xtask deny`: what may be a dependency. deny.toml has the rules.
//!
//! cargo-deny judges all of them. Building it takes minutes, and so CI runs the quick version, which reads `cargo metadata`: where
//! each dependency comes from, and whether its licence is one of those that deny.toml allows.

use std::fs;

use serde_json::Value;

use crate::shell::{self, Result, cargo, command, output, root, run, succeeds};

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";
const RULES: &str = "deny.toml";

pub(crate) fn run_task(options: &[&str]) -> Result {
    match options {
        [] => cargo_deny(&["bans", "licenses", "sources"]),
        ["--advisories"] => cargo_deny(&["advisories"]),
        ["--quick"] => quick(),
        _ => Err("deny takes nothing, --advisories or --quick".into()),
    }
}

fn cargo_deny(checks: &[&str]) -> Result {
    let folder = shell::target_dir().join("tools");
    let installed = folder.join("bin/cargo-deny");
    // One that is there already will do.
    let program = if succeeds(command("cargo-deny").arg("--version")) { "cargo-deny".into() } else { installed };
    if !succeeds(command(&program).arg("--version")) {
        run(cargo().args(["install", "cargo-deny", "--locked", "--root"]).arg(&folder))?;
    }
    run(command(program).args(["--all-features", "check"]).args(checks))
}

/// Licences and sources of all dependencies, for all platforms and with all features.
fn quick() -> Result {
    let rules = fs::read_to_string(root().join(RULES)).map_err(|e| format!("{RULES}: {e}"))?;
    let rules: toml::Table = rules.parse().map_err(|e| format!("{RULES}: {e}"))?;
    let metadata = output(cargo().args(["metadata", "--format-version", "1", "--all-features", "--locked"]))?;
    let metadata: Value = serde_json::from_str(&metadata).map_err(|e| format!("cargo metadata: {e}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let findings: Vec<String> = packages.iter().filter_map(|package| judge(package, &rules).err()).collect();
    if findings.is_empty() {
        println!("{} packages have licences that {RULES} allows, and come from here or from crates.io", packages.len());
        return Ok(());
    }
    Err(findings.join("\n"))
}

fn judge(package: &Value, rules: &toml::Table) -> Result {
    let name = package["name"].as_str().ok_or("cargo metadata: a package has no name")?;
    if let Some(source) = package["source"].as_str().filter(|source| *source != CRATES_IO) {
        return Err(format!("{name} comes from {source}, not from crates.io"));
    }
    let licence = package["license"].as_str().ok_or_else(|| format!("{name} names no licence"))?;
    // Old crates write `MIT/Apache-2.0`.
    let expression = spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX);
    let expression = expression.map_err(|e| format!("{name}: its licence cannot be understood: {e}"))?;
    let allowed = allowed_for(name, rules)?;
    if expression.evaluate(|required| allowed.iter().any(|one| one.satisfies(required))) {
        return Ok(());
    }
    Err(format!("{name}: its licence {licence} is not one that {RULES} allows"))
}

/// The licences that a package may have.
fn allowed_for(name: &str, rules: &toml::Table) -> Result<Vec<spdx::Licensee>> {
    let licences = &rules["licenses"];
    let exceptions = licences["exceptions"].as_array().into_iter().flatten();
    let own = exceptions.filter(|exception| exception["crate"].as_str() == Some(name)).map(|e| &e["allow"]);
    let lists = std::iter::once(&licences["allow"]).chain(own);
    let names = lists.flat_map(|list| list.as_array().into_iter().flatten()).filter_map(toml::Value::as_str);
    names.map(|one| spdx::Licensee::parse(one).map_err(|e| format!("{RULES}: {one}: {e}"))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn licences_and_sources_are_judged() {
        let rules = "[licenses]\nallow = ['MIT', 'Apache-2.0 WITH LLVM-exception']\n\
                     exceptions = [{ crate = 'tool', allow = ['MPL-2.0'] }]";
        let rules: toml::Table = rules.parse().unwrap();
        let verdict = |name, licence, source| {
            judge(&json!({ "name": name, "license": licence, "source": source }), &rules).map_err(|e| e.to_string())
        };
        for licence in ["MIT", "MIT OR GPL-3.0", "MIT/Apache-2.0", "Apache-2.0 WITH LLVM-exception AND MIT"] {
            assert_eq!(verdict("a", Some(licence), Some(CRATES_IO)), Ok(()), "{licence}");
        }
        for licence in ["GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0", "MPL-2.0"] {
            assert!(verdict("a", Some(licence), Some(CRATES_IO)).is_err(), "{licence}");
        }
        assert_eq!(verdict("tool", Some("MPL-2.0"), Some(CRATES_IO)), Ok(()));
        assert!(verdict("a", None, Some(CRATES_IO)).is_err());
        assert!(verdict("a", Some("MIT"), Some("git+https://example.org/a")).is_err());
        assert_eq!(verdict("a", Some("MIT"), None), Ok(()));
    }
}
