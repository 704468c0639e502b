//! `cargo xtask header`: the C headers, from the Rust source of `pumice-capi`. They are committed, so that using them needs
//! no Rust, and compared in CI, so that they never differ from the library.

use std::fs;
use std::path::PathBuf;

use crate::shell::{Result, root};

/// Header, its settings, and its sources in order; modules of their own are found.
const HEADERS: [(&str, &str, &[&str]); 2] = [
    ("pumice.h", "cbindgen.toml", &["status", "config", "buffer", "hdf5", "oneshot", "reader", "writer"]),
    ("pumice_mpi.h", "cbindgen-mpi.toml", &["mpi/mod"]),
];

/// Writes the headers; with `--check` only compares.
pub(crate) fn run(options: &[&str]) -> Result {
    let check = match options {
        [] => false,
        ["--check"] => true,
        _ => return Err("header takes nothing but --check".into()),
    };
    let crate_dir = root().join("crates/pumice-capi");
    for (name, settings, sources) in HEADERS {
        let mut builder = cbindgen::Builder::new().with_config(cbindgen::Config::from_file(crate_dir.join(settings))?);
        for source in sources {
            builder = builder.with_src(crate_dir.join(format!("src/{source}.rs")));
        }
        let mut text = Vec::new();
        builder.generate().map_err(|e| format!("cbindgen: {e}"))?.write(&mut text);
        let path: PathBuf = crate_dir.join("include").join(name);
        let committed = fs::read(&path).unwrap_or_default();
        if text == committed {
            println!("include/{name}: up to date");
            continue;
        }
        if check {
            return Err(format!("include/{name} is not what the source gives: run `cargo xtask header` and commit it"));
        }
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        println!("include/{name}: written");
    }
    Ok(())
}
