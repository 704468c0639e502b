//! `cargo xtask ptx`: compiles the kernels of `crates/pumice-gpu` to PTX, which is committed, so that nobody needs a
//! CUDA toolkit to build the crate. `--check` compiles them again and compares. NVRTC comes from PyPI, pinned in
//! crates/pumice-gpu/requirements.txt.
//!
//! The bytes do not depend on the path of the checkout: NVRTC gets texts and bare file names, the headers under the names
//! by which kernels include them, and never a folder to search.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use pumice_testkit::sha256_hex;

use crate::nvrtc::{Nvrtc, Source};
use crate::python;
use crate::shell::{Result, read, root};

const KERNELS: &str = "crates/pumice-gpu/kernels";
const PTX: &str = "crates/pumice-gpu/ptx";
/// Each kernel is compiled for each of these; drivers translate PTX for any newer device.
const ARCHITECTURES: [&str; 1] = ["compute_80"];
/// Sums of products must round twice, as they do on the CPU: no contraction.
const OPTIONS: [&str; 4] = ["--std=c++17", "-default-device", "--fmad=false", "--no-source-include"];

pub(crate) fn run(args: &[&str]) -> Result {
    let is_check = match args {
        [] => false,
        ["--check"] => true,
        _ => return Err("ptx takes no argument but --check".into()),
    };
    let sources = Sources::read(&root().join(KERNELS))?;
    python::environment()?;
    let wanted = compile_all(&sources)?;
    let folder = root().join(PTX);
    let differences = differences(&folder, &wanted)?;
    if !is_check {
        return write(&folder, &wanted, &differences);
    }
    if differences.is_empty() {
        println!("{} files in {PTX} are what their sources give", wanted.len());
        return Ok(());
    }
    let lines = differences.iter().map(|(name, why)| format!("{PTX}/{name} {why}: run cargo xtask ptx"));
    Err(lines.collect::<Vec<_>>().join("\n"))
}

/// The texts of a folder of kernels, each kind in the order of file names.
struct Sources {
    kernels: Vec<Source>,
    headers: Vec<Source>,
}

impl Sources {
    fn read(folder: &Path) -> Result<Self> {
        let read_all = |extension| -> Result<Vec<Source>> {
            let names = names(folder, extension)?;
            names.into_iter().map(|name| Ok(Source { text: read(&folder.join(&name))?, name })).collect()
        };
        let sources = Self { kernels: read_all(".cu")?, headers: read_all(".cuh")? };
        if sources.kernels.is_empty() { Err(format!("{}: no .cu files", folder.display())) } else { Ok(sources) }
    }

    /// What `cat KERNEL.cu *.cuh | sha256sum` prints in the C locale.
    fn sha256(&self, kernel: &Source) -> String {
        let texts = std::iter::once(kernel).chain(&self.headers).map(|source| source.text.as_str());
        sha256_hex(texts.collect::<String>().as_bytes())
    }
}

/// The files that belong into the folder of PTX: names and texts.
fn compile_all(sources: &Sources) -> Result<BTreeMap<String, String>> {
    let nvrtc = Nvrtc::load(&python::site_packages()?.join("nvidia/cuda_nvrtc/lib"))?;
    let mut files = BTreeMap::new();
    for kernel in &sources.kernels {
        for architecture in ARCHITECTURES {
            let target = format!("--gpu-architecture={architecture}");
            let options: Vec<&str> = std::iter::once(target.as_str()).chain(OPTIONS).collect();
            let start = Instant::now();
            let ptx = nvrtc.compile(kernel, &sources.headers, &options)?;
            println!("{} for {architecture}: {:.2} s", kernel.name, start.elapsed().as_secs_f64());
            assemble(&nvrtc, kernel, &sources.headers, architecture)?;
            let text = format!(
                "// sources sha256 {} of {} and all headers, in the order of their names\n\
                 // nvrtc {}, options {}\n\
                 // Made by `cargo xtask ptx`: not to be edited.\n\
                 {}\n",
                sources.sha256(kernel),
                kernel.name,
                nvrtc.version(),
                options.join(" "),
                ptx.trim_end()
            );
            files.insert(format!("{}.{architecture}.ptx", kernel.name.trim_end_matches(".cu")), text);
        }
    }
    Ok(files)
}

/// Runs the assembler, which finds mistakes in inline PTX: NVRTC copies it unread, and otherwise only the driver would
/// find them when it loads the module.
fn assemble(nvrtc: &Nvrtc, kernel: &Source, headers: &[Source], architecture: &str) -> Result {
    let target = format!("--gpu-architecture={}", architecture.replace("compute_", "sm_"));
    let options: Vec<&str> = std::iter::once(target.as_str()).chain(OPTIONS).collect();
    let start = Instant::now();
    nvrtc.compile(kernel, headers, &options)?;
    println!("{} assembled: {:.2} s", kernel.name, start.elapsed().as_secs_f64());
    Ok(())
}

/// Files of the folder that differ from what they should be, and why.
fn differences(folder: &Path, wanted: &BTreeMap<String, String>) -> Result<BTreeMap<String, &'static str>> {
    let present = if folder.exists() { names(folder, ".ptx")? } else { BTreeSet::new() };
    let mut differences = BTreeMap::new();
    for (name, text) in wanted {
        if !present.contains(name) {
            differences.insert(name.clone(), "is missing");
        } else if read(&folder.join(name))? != *text {
            differences.insert(name.clone(), "differs from what its sources give");
        }
    }
    let left_over = present.into_iter().filter(|name| !wanted.contains_key(name));
    differences.extend(left_over.map(|name| (name, "has no kernel")));
    Ok(differences)
}

fn write(folder: &Path, wanted: &BTreeMap<String, String>, differences: &BTreeMap<String, &str>) -> Result {
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for name in differences.keys() {
        let path = folder.join(name);
        let (ended, done) = match wanted.get(name) {
            Some(text) => (fs::write(&path, text), "written"),
            None => (fs::remove_file(&path), "removed"),
        };
        ended.map_err(|e| format!("{}: {e}", path.display()))?;
        println!("{PTX}/{name}: {done}");
    }
    println!("{} files in {PTX} are up to date", wanted.len());
    Ok(())
}

/// Names of the files in a folder that end so.
fn names(folder: &Path, extension: &str) -> Result<BTreeSet<String>> {
    let failed = |e| format!("{}: {e}", folder.display());
    let entries = fs::read_dir(folder).map_err(failed)?;
    let paths = entries.map(|entry| Ok(entry.map_err(failed)?.path())).collect::<Result<Vec<PathBuf>>>()?;
    let names = paths.iter().filter_map(|path| path.file_name()?.to_str());
    Ok(names.filter(|name| name.ends_with(extension)).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_named_and_writing_ends_them() {
        let folder = std::env::temp_dir().join(format!("pumice-ptx-{}", std::process::id()));
        let wanted = ["same", "changed", "absent"].map(|name| (format!("{name}.ptx"), name.to_owned()));
        let wanted = BTreeMap::from(wanted);
        assert_eq!(differences(&folder, &wanted).unwrap().len(), 3, "a folder that is not there");
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in [("same.ptx", "same"), ("changed.ptx", "before"), ("old.ptx", ""), ("notes.txt", "")] {
            fs::write(folder.join(name), text).unwrap();
        }
        let found = differences(&folder, &wanted).unwrap();
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(names, ["absent.ptx", "changed.ptx", "old.ptx"]);
        write(&folder, &wanted, &found).unwrap();
        assert!(differences(&folder, &wanted).unwrap().is_empty());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn hash_covers_kernel_then_headers() {
        let source = |name: &str, text: &str| Source { name: name.into(), text: text.into() };
        let headers = vec![source("a.cuh", "b"), source("b.cuh", "c")];
        let sources = Sources { kernels: vec![source("z.cu", "a")], headers };
        assert_eq!(sources.sha256(&sources.kernels[0]), sha256_hex(b"abc"));
    }
}
