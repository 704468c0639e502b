//! One file or several: the modes of an I/O server that writes HDF5, with and without compression (docs/parallel-hdf5.md).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pumice_testkit::data;
use serde_json::{Value, json};

use crate::hdf5;
use crate::shell::{self, Result, cargo, command, output, root, run};

/// 3D fields of the corpus, as many as in the survey's Fig. 7; those of more axes have the first ones merged.
const FIELDS: [(&str, &str); 19] = [
    ("cesm_CLOUD_30x192x288", "30x192x288"),
    ("cesm_TS30_30x192x288", "30x192x288"),
    ("echam_t3d_17x96x192", "17x96x192"),
    ("pop_SSH_12x384x320", "12x384x320"),
    ("vorticity_41x128x128", "41x128x128"),
    ("sim_turb_u_96x128x128", "96x128x128"),
    ("cesm_PRECT_20x192x288", "20x192x288"),
    ("colpex_theta_6x10x83x83", "60x83x83"),
    ("bsl_spectra_68x100x128", "68x100x128"),
    ("fice_120x49x100", "120x49x100"),
    ("sim_acoustic_p_96x128x128", "96x128x128"),
    ("sim_nyx_density_128x128x128", "128x128x128"),
    ("sim_nyx_velocity_x_96x96x96", "96x96x96"),
    ("sim_qmc_orbitals_2x115x69x69", "230x69x69"),
    ("t1_brain_91x109x91", "91x109x91"),
    ("tooth_mulog_181x2x640", "181x2x640"),
    ("wmag_128x128x128", "128x128x128"),
    ("wrf_QVAPOR_4x14x48x48", "56x48x48"),
    ("wrf_W_4x15x48x48", "60x48x48"),
];
const REL: &str = "1e-3";
/// Bytes per second of the storage, for each rank.
const RATE: u64 = 50_000_000;

/// `cargo xtask mpi hdf5 [--quick] [--json]`: the first six fields and the default preset, or all fields and two presets.
pub(crate) fn run_task(is_quick: bool, is_json: bool) -> Result {
    hdf5::programs()?;
    // One after the other: together, the C library would have the functions of the plugin as well.
    let folder = hdf5::empty_folder("hdf5-modes")?;
    let program = hdf5::compile_with_library(&folder, &root().join("bench/hdf5_modes.c"))?;
    run(cargo().args(["build", "--release", "--quiet", "--package", "pumice-hdf5"]))?;
    let (plugin, name) = (folder.join("plugin"), "libpumice_hdf5.so");
    fs::create_dir(&plugin)
        .and_then(|()| fs::copy(shell::target_dir().join("release").join(name), plugin.join(name)))
        .map_err(|e| format!("{}: {e}", plugin.display()))?;
    let fields = fields(&folder, if is_quick { 6 } else { FIELDS.len() })?;
    let (presets, repeats): (&[&str], &str) = if is_quick { (&["small"], "2") } else { (&["small", "fast"], "3") };
    let mut rows = Vec::new();
    for n_ranks in [2, 4] {
        for preset in presets {
            for rate in [Some(RATE * n_ranks as u64), None] {
                let limit = rate.map(|rate| Storage::limited(&folder, rate)).transpose();
                let limit = match limit {
                    Ok(limit) => limit,
                    Err(e) => {
                        println!("without a limited storage: {e}");
                        continue;
                    }
                };
                let mut ranks = hdf5::ranks(n_ranks);
                // Each way writes what an earlier one has written and the check has read: the filter must not remember it.
                ranks.env("HDF5_PLUGIN_PATH", &plugin).env("PUMICE_HDF5_REMEMBER_BYTES", "0");
                ranks.arg(&program).arg(&folder).args([repeats, REL, preset]).args(&fields);
                let printed =
                    output(&mut limit.as_ref().map_or_else(|| copy_of(&ranks), |limit| limit.around(&ranks)))?;
                rows.extend(summary(&printed, preset, rate)?);
            }
        }
    }
    if is_json {
        println!("{:#}", json!({ "fields": fields.len(), "rel": REL, "rows": rows }));
    } else {
        print_table(&rows);
    }
    Ok(())
}

/// Links to fields whose names say the shape with three axes.
fn fields(folder: &Path, n: usize) -> Result<Vec<PathBuf>> {
    let data = data::folder().ok_or("the comparison needs real fields: `cargo xtask corpus`")?;
    let link = |(file, shape): &(&str, &str)| {
        let (source, name) = (data.join(format!("{file}.f32")), file.rsplit_once('_').map_or(*file, |(name, _)| name));
        let source = fs::canonicalize(&source).map_err(|e| format!("{}: {e}", source.display()))?;
        let to = folder.join(format!("{name}_{shape}.f32"));
        std::os::unix::fs::symlink(source, &to).map_err(|e| format!("{}: {e}", to.display()))?;
        Ok(to)
    };
    FIELDS[..n].iter().map(link).collect()
}

/// A group of processes whose writes to the device of a folder are limited, by the controller blkio of Linux. It sees what
/// `fsync` writes, which is all that the program writes.
struct Storage {
    group: PathBuf,
}

impl Storage {
    fn limited(folder: &Path, rate: u64) -> Result<Self> {
        let device = fs::metadata(folder).map_err(|e| format!("{}: {e}", folder.display()))?.dev();
        let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00);
        let storage = Self { group: "/sys/fs/cgroup/blkio/pumice-hdf5".into() };
        let file = storage.group.join("blkio.throttle.write_bps_device");
        let made =
            fs::create_dir_all(&storage.group).and_then(|()| fs::write(&file, format!("{major}:{minor} {rate}")));
        made.map_err(|e| format!("{}: {e}; this needs root and control groups of version 1", file.display()))?;
        Ok(storage)
    }

    /// The command within the group.
    fn around(&self, inner: &Command) -> Command {
        let mut outer = command("sh");
        outer.args(["-ec", "echo $$ > \"$0\"; exec \"$@\""]).arg(self.group.join("cgroup.procs"));
        outer.arg(inner.get_program()).args(inner.get_args());
        outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        outer
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.group);
    }
}

fn copy_of(of: &Command) -> Command {
    let mut copy = command(of.get_program());
    copy.args(of.get_args()).envs(of.get_envs().filter_map(|(name, value)| Some((name, value?))));
    copy
}

/// Medians over the repetitions, and the shortest times, to which other work on the machine has added least; both also relative to
/// several files without compression.
fn summary(printed: &str, preset: &str, rate: Option<u64>) -> Result<Vec<Value>> {
    let parse = |line: &str| serde_json::from_str::<Value>(line).map_err(|e| format!("{line}: {e}"));
    let lines: Vec<Value> = printed.lines().filter(|line| line.starts_with('{')).map(parse).collect::<Result<_>>()?;
    let key =
        |line: &Value| format!("{} {}", line["format"].as_str().unwrap_or(""), line["mode"].as_str().unwrap_or(""));
    let mut ways: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for line in &lines {
        ways.entry(key(line)).or_default().push(line);
    }
    let number = |line: &Value, field: &str| line[field].as_f64().unwrap_or(f64::NAN);
    let plain = ways.get("none multi").ok_or_else(|| format!("the program printed\n{printed}"))?;
    let row = |way: &Vec<&Value>| {
        let median_of = |field: &str| median(way.iter().map(|line| number(line, field)));
        let least = |way: &[&Value]| way.iter().map(|line| number(line, "seconds")).fold(f64::INFINITY, f64::min);
        let plain_s = median(plain.iter().map(|line| number(line, "seconds")));
        let mut row = json!({
            "ranks": way[0]["ranks"], "preset": preset, "format": way[0]["format"], "mode": way[0]["mode"],
            "storage_mb_s": rate.map(|rate| rate / 1_000_000),
            "least_s": least(way), "relative_least": least(way) / least(plain),
            "relative_median": median_of("seconds") / plain_s, "ratio": number(plain[0], "bytes") / number(way[0], "bytes"),
        });
        for field in ["seconds", "create_s", "write_s", "close_s", "sync_s", "bytes"] {
            row[field] = median_of(field).into();
        }
        row
    };
    Ok(ways.values().map(row).collect())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn print_table(rows: &[Value]) {
    println!(
        "ranks preset storage  format  mode     least  relative  median  relative  create   write   close    sync   ratio"
    );
    for row in rows {
        let number = |field: &str| row[field].as_f64().unwrap_or(f64::NAN);
        let text = |field: &str| row[field].as_str().unwrap_or("");
        println!(
            "{:>5} {:<6}{:>8}  {:<7} {:<5}{:>9.3}{:>10.2}{:>8.3}{:>10.2}{:>8.3}{:>8.3}{:>8.3}{:>8.3}{:>8.2}",
            row["ranks"],
            text("preset"),
            row["storage_mb_s"].as_u64().map_or("free".into(), |rate| format!("{rate} MB/s")),
            text("format"),
            text("mode"),
            number("least_s"),
            number("relative_least"),
            number("seconds"),
            number("relative_median"),
            number("create_s"),
            number("write_s"),
            number("close_s"),
            number("sync_s"),
            number("ratio"),
        );
    }
}
