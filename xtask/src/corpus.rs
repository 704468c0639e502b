//! `cargo xtask corpus`: the arrays that Pumice is measured on, from scratch. bench/corpus says what they are and makes
//! them; this task brings what it needs: Python with pinned packages, archives of Debian and PyPI by name and version,
//! and the files of our simulators.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::shell::{self, Result, command, output, root, run};
use crate::{debian, python, simulate};

/// What the command line asks for.
#[derive(Debug, Default, PartialEq)]
struct Options<'a> {
    output: Option<&'a str>,
    check: bool,
    table: bool,
    names: Vec<&'a str>,
}

pub(crate) fn run_task(args: &[&str]) -> Result {
    let options = Options::parse(args)?;
    let arrays = options.output.map_or_else(|| shell::target_dir().join("corpus"), |folder| root().join(folder));
    if options.table {
        return run(corpus("python3").arg("table"));
    }
    if options.check {
        return run(corpus("python3").arg("check").arg(&arrays));
    }
    let (cache, interpreter) = (Cache::new()?, environment()?);
    let plan = output(corpus(&interpreter).arg("plan").arg(&arrays).args(&options.names))?;
    let needs: Vec<Need> = plan.lines().map(Need::parse).collect::<Result<_>>()?;
    for (i, need) in needs.iter().enumerate() {
        println!("[{}/{}] {}", i + 1, needs.len(), need.title());
        need.bring(&cache, &interpreter)?;
    }
    run(corpus(&interpreter).arg("make").arg(&cache.0).arg(&arrays).args(&options.names))
}

/// The tests of bench.
pub(crate) fn test() -> Result {
    run(command(environment()?).args(["-m", "unittest", "discover", "-s", "bench", "-t", "."]))
}

/// The interpreter of an environment with the packages that read other formats.
fn environment() -> Result<PathBuf> {
    let folder = shell::target_dir().join("corpus-python");
    python::make_environment(&folder, "bench/corpus/requirements.txt")?;
    Ok(folder.join("bin/python"))
}

impl<'a> Options<'a> {
    fn parse(args: &[&'a str]) -> Result<Self> {
        let (mut options, mut args) = (Self::default(), args.iter());
        while let Some(&arg) = args.next() {
            match arg {
                "--output" => options.output = Some(args.next().ok_or("--output needs a folder")?),
                "--check" => options.check = true,
                "--table" => options.table = true,
                _ if arg.starts_with('-') => return Err(format!("unknown option '{arg}'")),
                name => options.names.push(name),
            }
        }
        if (options.check || options.table) && !options.names.is_empty() {
            return Err("--check and --table are about all arrays: name none".into());
        }
        Ok(options)
    }
}

/// The Python package bench/corpus, to be given a subcommand.
fn corpus(interpreter: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut python = command(interpreter);
    python.env("PYTHONPATH", root().join("bench")).args(["-m", "corpus"]);
    python
}

/// The folder of archives and simulated fields, which later runs use again.
struct Cache(PathBuf);

impl Cache {
    fn new() -> Result<Self> {
        let folder = shell::target_dir().join("corpus-cache");
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Self(folder))
    }

    /// The one file that `fetch` puts into an empty folder, kept under a name.
    fn keep(&self, name: &str, fetch: impl FnOnce(&Path) -> Result) -> Result {
        let (kept, scratch) = (self.0.join(name), self.0.join(format!("{name}.part")));
        if kept.exists() {
            println!("{}: there", kept.display());
            return Ok(());
        }
        let failed = |e: std::io::Error| format!("{}: {e}", scratch.display());
        // What an interrupted run has left.
        if scratch.exists() {
            fs::remove_dir_all(&scratch).map_err(failed)?;
        }
        fs::create_dir(&scratch).map_err(failed)?;
        fetch(&scratch)?;
        let files: Vec<_> = fs::read_dir(&scratch).map_err(failed)?.flatten().collect();
        let [file] = files.as_slice() else {
            return Err(format!("{}: one file was expected, {} are there", scratch.display(), files.len()));
        };
        fs::rename(file.path(), &kept).and_then(|()| fs::remove_dir(&scratch)).map_err(failed)
    }
}

/// One thing that arrays are made from.
#[derive(Debug, PartialEq)]
enum Need {
    /// `kind` is `deb`, `sdist` or `wheel`; `file` is what the archive is called in the cache.
    Package { kind: String, name: String, version: String, file: String },
    /// Arguments of `cargo xtask simulate`.
    Simulation(Vec<String>),
}

impl Need {
    /// A line of `python -m corpus plan`.
    fn parse(line: &str) -> Result<Self> {
        let words: Vec<String> = line.split('\t').map(str::to_owned).collect();
        match <[String; 4]>::try_from(words) {
            Ok([kind, name, version, file]) => Ok(Self::Package { kind, name, version, file }),
            Err(words) if words.len() == 2 && words[0] == "simulate" => {
                Ok(Self::Simulation(words[1].split(' ').map(str::to_owned).collect()))
            }
            Err(_) => Err(format!("bench/corpus plans '{line}', which is neither a package nor a simulation")),
        }
    }

    fn title(&self) -> String {
        match self {
            Self::Package { kind, name, version, .. } => format!("{kind} {name} {version}"),
            Self::Simulation(arguments) => format!("simulate {}", arguments.join(" ")),
        }
    }

    fn bring(&self, cache: &Cache, interpreter: &Path) -> Result {
        match self {
            Self::Package { kind, name, version, file } if kind == "deb" => {
                cache.keep(file, |folder| debian::download(name, version, folder))
            }
            Self::Package { kind, name, version, file } => cache.keep(file, |folder| {
                let form = if kind == "wheel" { "--only-binary" } else { "--no-binary" };
                let mut pip = command(interpreter);
                pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
                run(pip.args([form, name]).arg("--dest").arg(folder).arg(format!("{name}=={version}")))
            }),
            Self::Simulation(arguments) => {
                let output = cache.0.to_string_lossy();
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(["--output", &output]).collect();
                simulate::run(&arguments)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options() {
        let parsed = Options::parse(&["--output", "there", "fice", "wmag"]).unwrap();
        assert_eq!((parsed.output, parsed.names), (Some("there"), vec!["fice", "wmag"]));
        assert!(Options::parse(&["--check"]).unwrap().check);
        assert!(Options::parse(&["--check", "fice"]).is_err());
        assert!(Options::parse(&["--outptu", "there"]).is_err_and(|e| e.contains("--outptu")));
    }

    #[test]
    fn plans() {
        let package = Need::parse("deb\tproj-data\t9.1.1-1\tproj-data-9.1.1-1.deb").unwrap();
        assert_eq!(package.title(), "deb proj-data 9.1.1-1");
        let simulation = Need::parse("simulate\tacoustic --seed 11").unwrap();
        assert_eq!(simulation, Need::Simulation(["acoustic", "--seed", "11"].map(str::to_owned).to_vec()));
        assert!(Need::parse("deb\tproj-data").is_err());
    }
}
