//! `cargo xtask header`: the C header, from the Rust source of `pumice-capi`. It is committed, so that using it needs no
//! Rust, and compared in CI, so that it never differs from the library.

use std::fs;

use crate::shell::{Result, root};

/// Writes the header; with `--check` only compares.
pub(crate) fn run(options: &[&str]) -> Result {
    let check = match options {
        [] => false,
        ["--check"] => true,
        _ => return Err("header takes nothing but --check".into()),
    };
    let crate_dir = root().join("crates/pumice-capi");
    let config = cbindgen::Config::from_file(crate_dir.join("cbindgen.toml"))?;
    let bindings = cbindgen::Builder::new().with_crate(&crate_dir).with_config(config).generate();
    let mut text = Vec::new();
    bindings.map_err(|e| format!("cbindgen: {e}"))?.write(&mut text);
    let path = crate_dir.join("include/pumice.h");
    let committed = fs::read(&path).unwrap_or_default();
    if text == committed {
        println!("include/pumice.h: up to date");
        return Ok(());
    }
    if check {
        return Err("include/pumice.h is not what the source gives: run `cargo xtask header` and commit it".into());
    }
    fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    println!("include/pumice.h: written");
    Ok(())
}
