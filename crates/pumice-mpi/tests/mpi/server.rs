//! I/O servers: their files are those of one process, and their errors those of all clients.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use mpi::traits::*;
use pumice::{Config, ErrorBound, ErrorKind, Preset, Result};
use pumice_fields::{Chunks, Parts, Rules, Treatment};
use pumice_mpi::server::{self, Client, Coding, FileMode, Options, Role, Servers};
use pumice_mpi::{LocalBox, Value};

use crate::files::{Block, Random, cut, field, indices};
use crate::job;

const CONFIGURATION: &str = r#"
    <file compression_type="lossy" error_bound_mode="rel" error_bound="1e-3" compression_level="1">
      <field field_ref="t" />
      <field field_ref="q" error_bound_mode="pw_rel" error_bound="1e-2" compression_level="5" />
      <field field_ref="u" error_bound_mode="abs" error_bound="0.05" chunks="20,15,82" compression_level="8" />
      <field field_ref="cc" compression_type="lossless" />
      <field field_ref="v" chunks="3,70,90" />
      <field field_ref="mask" compression_type="none" />
    </file>"#;

fn rules() -> Rules {
    Rules::parse(CONFIGURATION, Treatment::new(Vec::new())).expect("it is valid")
}

/// Fields of a step: name, shape, and which of the special values it has.
const FIELDS: [(&str, &[usize], usize); 9] = [
    ("t", &[30, 41, 50], 0),
    ("q", &[37, 53, 31], 9),
    ("u", &[20, 70, 82], 1),
    ("cc", &[60_000], 3),
    ("v", &[10, 70, 90], 2),
    ("mask", &[5, 7, 11], 0),
    ("t", &[1, 300, 5], 4),
    ("zipped", &[9, 40, 30], 1),
    ("cc", &[], 9),
];

struct Test<C> {
    world: C,
    folder: PathBuf,
}

/// The boxes of a client, and their values.
fn boxes_of<T: Value>(client: &Client, shape: &[usize], data: &[T], random: &mut Random) -> Vec<(Block, Vec<T>)> {
    let n_boxes = 1 + random.below(14);
    let boxes = cut((vec![0; shape.len()], shape.to_vec()), n_boxes, random);
    let (rank, n_clients) = (client.comm().rank() as usize, client.comm().size() as usize);
    let mine = boxes.into_iter().skip(rank).step_by(n_clients);
    mine.map(|block| (block.clone(), indices(shape, &block).into_iter().map(|i| data[i]).collect())).collect()
}

fn write<T: Value>(
    client: &mut Client,
    name: &str,
    step: u64,
    shape: &[usize],
    boxes: &[(Block, Vec<T>)],
) -> Result<()> {
    let boxes: Vec<LocalBox<'_, T>> =
        boxes.iter().map(|((start, extents), values)| LocalBox { start, extents, values }).collect();
    client.write(name, step, shape, &boxes)
}

fn values<T: Value>(step: usize, shape: &[usize], special: usize) -> Vec<T> {
    let scale = 1.0 + step as f64;
    let slope = |i: usize, x: T| {
        if x.is_finite() && x.to_f64().abs() < 900.0 { x.to_f64() * scale + 0.01 * i as f64 } else { x.to_f64() }
    };
    field::<T>(shape.iter().product(), special).into_iter().enumerate().map(|(i, x)| T::from_f64(slope(i, x))).collect()
}

impl<C: Communicator> Test<C> {
    /// All fields over some steps, cut at random, are the files that one process writes.
    fn files_are_those_of_one_process<T: Value>(&self, servers: Servers, mode: FileMode, buffer_bytes: usize) {
        const STEPS: usize = 2;
        let options = Options::new(&self.folder).rules(rules()).field("zipped", Coding::Gzip(5));
        let options = options.mode(mode).buffer_bytes(buffer_bytes).threads(1);
        match server::start(&self.world, servers, options).expect("there are servers and clients") {
            Role::Server(server) => {
                let report = server.run().expect("all is written");
                assert_eq!(report.totals.n_fields, (STEPS * FIELDS.len()) as u64);
            }
            Role::Client(mut client) => {
                // All clients draw the same.
                let mut random = Random(buffer_bytes as u64);
                let mut bytes = 0;
                for step in 0..STEPS {
                    for (i, (name, shape, special)) in FIELDS.iter().enumerate() {
                        let data: Vec<T> = values(step, shape, *special);
                        let boxes = boxes_of(&client, shape, &data, &mut random);
                        bytes += boxes.iter().map(|(_, values)| size_of_val(&values[..])).sum::<usize>() as u64;
                        write(&mut client, name, (10 * step + i) as u64, shape, &boxes).expect("it is handed over");
                        client.progress();
                    }
                }
                let report = client.finish().expect("all is written");
                assert_eq!((report.n_calls, report.bytes), ((STEPS * FIELDS.len()) as u64, bytes));
                assert!(report.seconds >= report.waiting_seconds && report.totals.stored_bytes > 0);
            }
        }
        self.world.barrier();
        if self.world.rank() == 0 {
            for step in 0..STEPS {
                for (i, (name, shape, special)) in FIELDS.iter().enumerate() {
                    let stem = format!("{name}_{:06}", 10 * step + i);
                    self.check::<T>(&stem, name, shape, &values(step, shape, *special), mode);
                }
            }
            let names: Vec<_> = fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().path()).collect();
            assert!(names.iter().all(|path| path.extension().is_none_or(|extension| extension != "partial")));
            names.iter().for_each(|path| fs::remove_file(path).expect("it is a file"));
        }
        self.world.barrier();
    }

    /// Compares the files of a field with what one process makes of it.
    fn check<T: Value>(&self, stem: &str, name: &str, shape: &[usize], data: &[T], mode: FileMode) {
        let read = |extension: &str| {
            if mode == FileMode::OneFile {
                return fs::read(self.folder.join(format!("{stem}.{extension}"))).expect("the file is there");
            }
            // Parts of bytes follow one another.
            let parts = (0..self.world.size()).map(|n| self.folder.join(format!("{stem}.part{n:04}.{extension}")));
            parts.filter(|path| path.exists()).flat_map(|path| fs::read(path).expect("it is there")).collect()
        };
        let mut raw = Vec::new();
        T::extend_le_bytes(data, &mut raw);
        match name {
            "mask" => return assert!(read("raw") == raw, "{stem}"),
            "zipped" => {
                let mut unpacked = Vec::new();
                let zipped = read("raw.gz");
                flate2::read::MultiGzDecoder::new(&zipped[..]).read_to_end(&mut unpacked).expect("it is gzip");
                return assert!(unpacked == raw && zipped.len() < raw.len(), "{stem}");
            }
            _ => {}
        }
        let rules = rules();
        let config = rules.treatment(name, false).expect("it has an entry").config(shape).expect("it fits");
        let expected = pumice::compress(data, shape, &config).expect("the options are valid");
        if mode == FileMode::OneFile {
            return assert!(read("pum") == expected, "{stem} of shape {shape:?}");
        }
        let whole = pumice::inspect(&expected).expect("it is whole");
        let parts = Parts::open(&self.folder.join(format!("{stem}.parts.toml"))).expect("there is an index");
        for part in parts.parts() {
            let info =
                pumice::inspect(&fs::read(self.folder.join(&part.file)).expect("it is there")).expect("it is whole");
            assert!(
                name == "q" || info.abs_bound == whole.abs_bound,
                "{stem}: {} and {}",
                info.abs_bound,
                whole.abs_bound
            );
            assert_eq!((info.bounds, info.preset), (whole.bounds.clone(), whole.preset));
        }
        let restored = parts.read::<T>().expect("the parts are there");
        assert_eq!(restored.shape, shape);
        let fills = &whole.fills;
        for (x, y) in data.iter().zip(&restored.data) {
            let (a, b) = (x.to_f64(), y.to_f64());
            let abs_bound = if name == "q" { 1e-2 * a.abs() } else { whole.abs_bound };
            let is_within = (a - b).abs() <= abs_bound && !fills.contains(&a);
            assert!(x.to_bits_u64() == y.to_bits_u64() || is_within, "{stem}: {a} became {b}");
        }
    }

    /// What clients and servers return: the same for all, from the same call.
    fn fails(
        &self,
        what: &str,
        kind: ErrorKind,
        words: &str,
        options: Options,
        call: impl Fn(&mut Client, u64) -> Option<Result<()>>,
    ) {
        const CALLS: u64 = 30;
        match server::start(&self.world, Servers::Last(self.n_servers()), options).expect("it starts") {
            Role::Server(server) => {
                let error = server.run().expect_err(what);
                assert!(error.kind() == kind && error.to_string().contains(words), "{what}: {error}");
            }
            Role::Client(mut client) => {
                let all = client.comm().duplicate();
                let failed = (0..CALLS)
                    .map_while(|i| call(&mut client, i))
                    .enumerate()
                    .find_map(|(i, result)| Some((i, result.err()?)));
                // Again, from then on.
                let again =
                    failed.as_ref().map(|_| write::<f32>(&mut client, "t", 99, &[4], &[]).expect_err(what).to_string());
                let finished = client.finish().expect_err(what);
                assert!(finished.kind() == kind && finished.to_string().contains(words), "{what}: {finished}");
                let mut call_and_text = match failed {
                    Some((i, error)) => {
                        assert_eq!(
                            (again, error.to_string()),
                            (Some(error.to_string()), finished.to_string()),
                            "{what}"
                        );
                        format!("{i} {error}")
                    }
                    None => format!("finish {finished}"),
                }
                .into_bytes();
                call_and_text.resize(1000, b' ');
                let mut of_first = call_and_text.clone();
                all.process_at_rank(0).broadcast_into(&mut of_first[..]);
                // Who left early has its error from `finish`, and the others theirs from the call that follows.
                if what != "an early end" {
                    let texts =
                        [of_first, call_and_text].map(|text| String::from_utf8_lossy(&text).trim_end().to_string());
                    assert_eq!(texts[0], texts[1], "{what}");
                }
            }
        }
        self.world.barrier();
        if self.world.rank() == 0 {
            let left: Vec<_> = fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().path()).collect();
            assert!(left.iter().all(|path| !path.to_string_lossy().contains(".partial")), "{what}: {left:?}");
            left.iter().for_each(|path| fs::remove_file(path).expect("it is a file"));
        }
        self.world.barrier();
    }

    fn n_servers(&self) -> usize {
        (self.world.size() as usize / 2).min(2)
    }

    fn errors_are_those_of_all(&self) {
        let options = || Options::new(&self.folder).rules(rules()).threads(1);
        let n_clients = self.world.size() as usize - self.n_servers();
        let shape = [8 * n_clients, 100];
        let data = field::<f32>(800, 9);
        // Rows of this client.
        let rows = |client: &mut Client, name: &str, step: u64, start: usize, n: usize, shape: &[usize]| {
            write(client, name, step, shape, &[((vec![start, 0], vec![n, 100]), data[..100 * n].to_vec())])
        };
        let whole = |client: &mut Client, name: &str, step: u64| {
            let start = 8 * client.comm().rank() as usize;
            rows(client, name, step, start, 8, &shape)
        };
        let is_last = |client: &Client| client.comm().rank() + 1 == client.comm().size();
        let invalid = ErrorKind::InvalidArgument;
        for mode in [FileMode::OneFile, FileMode::MultipleFiles] {
            self.fails(
                "an unknown field",
                invalid,
                "nothing says how to write the field w",
                options().mode(mode),
                |client, step| Some(whole(client, if step == 3 { "w" } else { "t" }, step)),
            );
            self.fails(
                "a missing folder",
                ErrorKind::Io,
                "nowhere",
                Options::new(self.folder.join("nowhere")).rules(rules()).mode(mode),
                |client, step| Some(whole(client, "t", step)),
            );
            self.fails("missing rows", invalid, "make up the field", options().mode(mode), |client, step| {
                let (start, n) = (8 * client.comm().rank() as usize, if is_last(client) && step == 2 { 7 } else { 8 });
                Some(rows(client, "t", step, start, n, &shape))
            });
        }
        self.fails("a bad name", invalid, "cannot be the name", options(), |client, step| {
            Some(whole(client, "../t", step))
        });
        self.fails(
            "a target",
            ErrorKind::Unsupported,
            "target",
            options().field("w", Coding::Compressed(Treatment::new(vec![ErrorBound::Psnr(60.0)]))),
            |client, step| Some(whole(client, "w", step)),
        );
        self.fails("chunks of another rank", invalid, "do not fit the shape", options(), |client, step| {
            Some(whole(client, "v", step))
        });
        self.fails("a level", invalid, "levels 0 to 9", options().field("w", Coding::Gzip(10)), |client, step| {
            Some(whole(client, "w", step))
        });
        self.fails("values of another number", invalid, "has 800 values, not 799", options(), |client, step| {
            let start = 8 * client.comm().rank() as usize;
            let n = if is_last(client) && step == 1 { 799 } else { 800 };
            Some(write(client, "t", step, &shape, &[((vec![start, 0], vec![8, 100]), data[..n].to_vec())]))
        });
        self.fails("rows outside", invalid, "not within", options(), |client, step| {
            let start = 8 * client.comm().rank() as usize + usize::from(is_last(client));
            Some(rows(client, "t", step, start, 8, &shape))
        });
        if n_clients > 1 {
            self.fails("other shapes", invalid, "do not hand over the same", options(), |client, step| {
                let start = 8 * client.comm().rank() as usize;
                let shape = if is_last(client) && step == 2 { [shape[0] + 1, 100] } else { shape };
                Some(rows(client, "t", step, start, 8, &shape))
            });
            self.fails("other fields", invalid, "do not hand over the same", options(), |client, step| {
                let name = if is_last(client) && step == 5 { "q" } else { "t" };
                Some(whole(client, name, step))
            });
            self.fails("overlapping boxes", invalid, "overlap", options(), |client, step| {
                let start = if is_last(client) { 0 } else { 8 * client.comm().rank() as usize };
                Some(rows(client, "t", step, start, 8, &shape))
            });
            self.fails("an early end", invalid, "finished", options(), |client, step| {
                (!is_last(client) || step < 4).then(|| whole(client, "t", step))
            });
        }
        // One that leaves by an error of its own ends as if it had finished.
        match server::start(&self.world, Servers::Last(self.n_servers()), options()).expect("it starts") {
            Role::Server(server) => assert_eq!(server.run().expect("all is written").totals.n_fields, 1),
            Role::Client(mut client) => whole(&mut client, "t", 0).expect("it is handed over"),
        }
        self.world.barrier();
        if self.world.rank() == 0 {
            let expected: Vec<f32> = (0..n_clients).flat_map(|_| data.clone()).collect();
            let config = Config::new(ErrorBound::Rel(1e-3)).preset(Preset::Fast);
            let bytes = pumice::compress(&expected, &shape, &config).expect("it is valid");
            assert!(fs::read(self.folder.join("t_000000.pum")).expect("it is there") == bytes);
        }
        self.world.barrier();
    }
}

/// What the ranks do.
pub(crate) fn run(world: impl Communicator, folder: &Path) {
    let n = world.size() as usize;
    let test = Test { world, folder: folder.join("output") };
    if test.world.rank() == 0 {
        // Jobs on other numbers of ranks use the folder, too.
        let _ = fs::remove_dir_all(&test.folder);
        fs::create_dir(&test.folder).expect("there is room");
    }
    test.world.barrier();
    for servers in [Servers::Last(0), Servers::Last(n), Servers::This(true), Servers::This(false)] {
        let error = server::start(&test.world, servers, Options::new(folder)).expect_err("one kind is missing");
        assert!(error.to_string().contains("at least one server and one client"), "{error}");
    }
    if n == 1 {
        return;
    }
    let other = Options::new(folder).threads(test.world.rank() as usize);
    let error = server::start(&test.world, Servers::Last(1), other).expect_err("they have other options");
    assert!(error.to_string().contains("options of the I/O server"), "{error}");
    let is_odd = test.world.rank() % 2 == 1;
    for mode in [FileMode::OneFile, FileMode::MultipleFiles] {
        test.files_are_those_of_one_process::<f32>(Servers::Last(1), mode, 256 << 20);
        test.files_are_those_of_one_process::<f64>(Servers::This(is_odd), mode, 1);
        if n > 2 {
            test.files_are_those_of_one_process::<f32>(Servers::Last(2), mode, 100_000);
            test.files_are_those_of_one_process::<f32>(Servers::Last(n - 1), mode, 300_000);
        }
    }
    test.errors_are_those_of_all();
}

/// What a rank does whose disk is full, or will be after some steps.
pub(crate) fn write_much(world: &impl Communicator, folder: &Path) {
    let treatment =
        Treatment { chunks: Some(Chunks::Extents(vec![64, 256])), ..Treatment::new(vec![ErrorBound::Abs(1e-6)]) };
    for (mode, name) in [(FileMode::OneFile, "one"), (FileMode::MultipleFiles, "parts")] {
        let options = Options::new(folder).mode(mode).field(name, Coding::Compressed(treatment.clone())).threads(1);
        let result = match server::start(world, Servers::Last(2), options).expect("it starts") {
            Role::Server(server) => server.run().map(|_| ()),
            Role::Client(mut client) => {
                let rank = client.comm().rank() as usize;
                let shape = [128 * client.comm().size() as usize, 256];
                let boxes = [((vec![128 * rank, 0], vec![128, 256]), field::<f32>(128 * 256, 9))];
                let written = (0..40).try_for_each(|step| write(&mut client, name, step, &shape, &boxes));
                written.and(client.finish().map(|_| ()))
            }
        };
        let error = result.expect_err("the disk is full");
        assert!(error.kind() == ErrorKind::Io && error.to_string().to_lowercase().contains("space"), "{error}");
        world.barrier();
        if world.rank() == 0 {
            let files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
            let is_whole = |path: &&PathBuf| pumice::inspect(&fs::read(path).expect("it is there")).is_ok();
            let streams: Vec<&PathBuf> =
                files.iter().filter(|path| path.extension().is_some_and(|e| e == "pum")).collect();
            assert!(!streams.is_empty() && streams.iter().all(is_whole), "{files:?}");
            let indices = files.iter().filter(|path| path.extension().is_some_and(|e| e == "toml"));
            indices
                .for_each(|path| drop(Parts::open(path).and_then(|parts| parts.read::<f32>()).expect("it is whole")));
            assert!(files.iter().all(|path| !path.to_string_lossy().ends_with("partial")), "{files:?}");
            files.iter().for_each(|path| fs::remove_file(path).expect("it is a file"));
        }
        world.barrier();
    }
}

/// Servers whose disk is full.
pub(crate) fn full_disk(folder: &Path) {
    let small = folder.join("small");
    fs::create_dir(&small).expect("there is room");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(&small).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        println!("skipped: only root can mount a small file system");
        return;
    }
    let output = job(4, "write_much", &small).output();
    assert!(Command::new("umount").arg(&small).status().expect("there is umount").success());
    let output = output.expect("mpirun starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
