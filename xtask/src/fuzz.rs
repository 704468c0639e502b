//! `cargo xtask fuzz`: starts a campaign with either engine (see the crate `pumice-fuzz`).

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use pumice_fuzz::campaign::{self, Limit};
use pumice_fuzz::{TARGETS, Target};

use crate::shell::{self, Result};

/// Optimised, but with every check that debug builds have; link-time optimisation would only take longer to build.
pub(crate) const PROFILE: [&str; 12] = [
    "--config",
    "profile.fuzz.inherits='release'",
    "--config",
    "profile.fuzz.debug-assertions=true",
    "--config",
    "profile.fuzz.overflow-checks=true",
    "--config",
    "profile.fuzz.lto=false",
    "--config",
    "profile.fuzz.codegen-units=16",
    "--profile",
    "fuzz",
];
/// The time of a campaign unless a limit is given.
const DEFAULT_TIME: Duration = Duration::from_secs(60);

struct Options {
    targets: Vec<Target>,
    limit: Limit,
    seed: u64,
    input: Option<PathBuf>,
    libfuzzer: bool,
    asan: bool,
    inner: bool,
}

pub(crate) fn run(args: &[&str]) -> Result {
    let options = parse(args)?;
    for &target in &options.targets {
        if options.libfuzzer {
            with_libfuzzer(target, options.limit, options.asan)?;
        } else if options.inner {
            match &options.input {
                Some(path) => (target.run)(&fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?),
                None => campaign(target, &options)?,
            }
        }
    }
    if options.libfuzzer || options.inner { Ok(()) } else { shell::again(&PROFILE, "fuzz", args) }
}

fn parse(args: &[&str]) -> Result<Options> {
    let mut options = Options {
        targets: Vec::new(),
        limit: Limit::Time(DEFAULT_TIME),
        seed: 1,
        input: None,
        libfuzzer: false,
        asan: false,
        inner: false,
    };
    let mut args = args.iter();
    while let Some(&arg) = args.next() {
        match arg {
            "--runs" => options.limit = Limit::Runs(shell::parse(arg, args.next())?),
            "--seconds" => options.limit = Limit::Time(Duration::from_secs(shell::parse(arg, args.next())?)),
            "--seed" => options.seed = shell::parse(arg, args.next())?,
            "--input" => options.input = Some(args.next().ok_or("--input needs a file")?.into()),
            "--libfuzzer" => options.libfuzzer = true,
            "--asan" => options.asan = true,
            "--inner" => options.inner = true,
            "all" => options.targets = TARGETS.to_vec(),
            name => options.targets.push(pumice_fuzz::target(name).ok_or(format!("no fuzz target '{name}'"))?),
        }
    }
    if options.targets.is_empty() {
        let names: Vec<String> = TARGETS.iter().map(|t| format!("  {:<12}{}", t.name, t.about)).collect();
        return Err(format!("name a target, or `all`:\n{}", names.join("\n")));
    }
    Ok(options)
}

fn campaign(target: Target, options: &Options) -> Result {
    let seeds = (target.seeds)();
    let progress = |runs: u64, elapsed: Duration| {
        println!("{}: {runs} executions, {:.0} per second", target.name, runs as f64 / elapsed.as_secs_f64());
    };
    match campaign::run(target, &seeds, options.seed, options.limit, progress) {
        Ok(done) => {
            println!(
                "{}: {} executions in {:.1} s, {:.0} per second, slowest {:?}, {} seeds, 0 findings",
                target.name,
                done.runs,
                done.elapsed.as_secs_f64(),
                done.runs as f64 / done.elapsed.as_secs_f64(),
                done.slowest,
                seeds.len(),
            );
            Ok(())
        }
        Err(finding) => {
            let folder = shell::root().join("fuzz/artifacts");
            let path = folder.join(format!("{}-{}-{}", target.name, options.seed, finding.run));
            fs::create_dir_all(&folder)
                .and_then(|()| fs::write(&path, &finding.input))
                .map_err(|e| format!("{}: {e}", path.display()))?;
            let (name, run, message) = (target.name, finding.run, finding.message);
            let again = format!("cargo xtask fuzz {name} --input {}", path.display());
            Err(format!("finding by {name} in execution {run}: {message}\nagain: {again}"))
        }
    }
}

/// The log ends with "Done N runs in S second(s)".
fn with_libfuzzer(target: Target, limit: Limit, asan: bool) -> Result {
    if !shell::succeeds(shell::command("cargo").args(["+nightly", "fuzz", "--version"])) {
        return Err("this needs a nightly toolchain (`rustup toolchain install nightly`) and cargo-fuzz \
                    (`cargo install cargo-fuzz`); without --libfuzzer it runs on stable Rust"
            .into());
    }
    let corpus = shell::root().join("fuzz/corpus").join(target.name);
    let artifacts = shell::root().join("fuzz/artifacts");
    let written = fs::create_dir_all(&corpus).and_then(|()| fs::create_dir_all(&artifacts)).and_then(|()| {
        let seeds = (target.seeds)();
        seeds.iter().enumerate().try_for_each(|(i, seed)| fs::write(corpus.join(format!("seed-{i:04}")), seed))
    });
    written.map_err(|e| format!("{}: {e}", corpus.display()))?;
    let limit = match limit {
        Limit::Runs(n) => format!("-runs={n}"),
        Limit::Time(time) => format!("-max_total_time={}", time.as_secs()),
    };
    let mut cargo = shell::command("cargo");
    // Otherwise the cargo that started this task would be used instead of the nightly one.
    cargo.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    let sanitizer = if asan { "address" } else { "none" };
    cargo
        .args(["+nightly", "fuzz", "run", "--fuzz-dir", "fuzz/libfuzzer", "--sanitizer", sanitizer, target.name])
        .arg(&corpus)
        .arg("--");
    cargo.args([&*limit, "-max_len=4096", "-timeout=10", "-rss_limit_mb=2048", "-malloc_limit_mb=256"]);
    cargo.arg("-print_final_stats=1").arg(format!("-artifact_prefix={}/{}-", artifacts.display(), target.name));
    shell::run(&mut cargo)
}
