//! Damaged files: messages of the commands, and what can be recovered.

use crate::sandbox::{Sandbox, smooth};

/// A file of 10 chunks of 4 rows, and the values it restores to.
fn with_chunks() -> (Sandbox, Vec<f32>) {
    let sandbox = Sandbox::new();
    let values: Vec<f32> =
        smooth(&[40, 50, 60]).iter().enumerate().map(|(i, v)| v + (i * 7919 % 1000) as f32 * 1e-3).collect();
    sandbox.write_f32("x_40x50x60.f32", &values);
    sandbox.run("compress x_40x50x60.f32 -o x.pum --abs 1e-3 --chunk 4,50,60");
    sandbox.run("decompress x.pum -o y.f32");
    let restored = sandbox.read_f32("y.f32");
    (sandbox, restored)
}

fn break_middle(sandbox: &Sandbox) {
    let mut bytes = sandbox.read("x.pum");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    sandbox.write("x.pum", &bytes);
}

#[test]
fn damage_is_an_error_that_points_to_recover() {
    let (sandbox, _) = with_chunks();
    break_middle(&sandbox);
    let before = sandbox.read("y.f32");
    assert!(sandbox.fails("decompress x.pum -o y.f32", 4).contains("pumice recover x.pum"));
    assert_eq!(sandbox.read("y.f32"), before);
    assert!(sandbox.fails("check x_40x50x60.f32 x.pum", 4).contains("pumice recover x.pum"));
}

#[test]
fn intact_chunks_are_saved_and_lost_ones_listed() {
    let (sandbox, restored) = with_chunks();
    break_middle(&sandbox);
    let report = sandbox.json("recover x.pum -o saved.f32");
    assert_eq!(report["n_chunks"], 10);
    assert_eq!(report["n_lost"], 1);
    assert_eq!(report["lost_percent"], 10.0);
    let chunk = report["lost"][0]["chunk"].as_u64().unwrap() as usize;
    assert_eq!(report["lost"][0]["region"], format!("{}:{},0:50,0:60", chunk * 4, chunk * 4 + 4));
    let saved = sandbox.read_f32("saved.f32");
    let lost = chunk * 12_000..(chunk + 1) * 12_000;
    for (i, (a, b)) in saved.iter().zip(&restored).enumerate() {
        assert!(if lost.contains(&i) { a.is_nan() } else { a.to_bits() == b.to_bits() }, "value {i}");
    }
    let text = sandbox.run("recover x.pum -o saved.npy --missing -1");
    assert!(text.contains("9 of 10 chunks intact") && text.contains(&format!("chunk {chunk}")), "{text}");
    let with_header = sandbox.read("saved.npy");
    let lost_value = crate::sandbox::f32_values(&with_header[128..])[lost.start];
    assert_eq!(lost_value, -1.0);
}

#[test]
fn the_first_part_of_a_truncated_file_is_recovered() {
    let (sandbox, restored) = with_chunks();
    let bytes = sandbox.read("x.pum");
    sandbox.write("x.pum", &bytes[..bytes.len() * 6 / 10]);
    let code = sandbox.output("info x.pum").status.code();
    assert!(matches!(code, Some(4 | 5)), "{code:?}");
    let report = sandbox.json("recover x.pum -o saved.f32");
    let saved = sandbox.read_f32("saved.f32");
    let n_intact = report["n_intact"].as_u64().unwrap() as usize;
    assert!((3..8).contains(&n_intact), "{report}");
    assert_eq!(saved[..n_intact * 12_000], restored[..n_intact * 12_000]);
}

#[test]
fn an_intact_file_loses_nothing() {
    let (sandbox, restored) = with_chunks();
    assert!(sandbox.run("recover x.pum -o saved.f32").contains("nothing was lost"));
    assert_eq!(sandbox.read_f32("saved.f32"), restored);
}

#[test]
fn other_files_are_an_error() {
    let sandbox = Sandbox::new();
    sandbox.write("x.pum", b"this is not what it is called");
    for line in ["info x.pum", "decompress x.pum -o y.f32", "recover x.pum -o y.f32"] {
        sandbox.fails(line, 4);
    }
    assert_eq!(sandbox.files(), ["x.pum"]);
}

#[test]
fn a_missing_beginning_is_made_up_for() {
    let (sandbox, restored) = with_chunks();
    let bytes = sandbox.read("x.pum");
    sandbox.write("x.pum", &bytes[40..]);
    assert!(sandbox.fails("info x.pum", 4).contains("pumice recover"));
    let report = sandbox.json("recover x.pum -o saved.f32");
    assert_eq!((&report["n_lost"], &report["end_known"]), (&1.into(), &true.into()));
    assert_eq!(sandbox.read_f32("saved.f32")[12_000..], restored[12_000..]);
    // Without the end as well.
    sandbox.write("x.pum", &bytes[40..bytes.len() / 2]);
    assert!(sandbox.fails("recover x.pum -o saved.f32", 4).contains("intact chunks were found"));
}

#[test]
fn concatenated_files_are_saved_one_by_one() {
    let (sandbox, restored) = with_chunks();
    sandbox.write_f32("z_2x3.f32", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    sandbox.run("compress z_2x3.f32 -o z.pum --lossless");
    let both = [sandbox.read("x.pum"), sandbox.read("z.pum")].concat();
    sandbox.write("both.pum", &both);
    for line in ["info both.pum", "decompress both.pum -o saved.f32"] {
        assert!(sandbox.fails(line, 4).contains("--stream"), "{line}");
    }
    assert!(sandbox.run("recover both.pum -o saved.f32").contains("stream 1 of 2"));
    assert_eq!(sandbox.read_f32("saved.f32"), restored);
    assert_eq!(sandbox.json("recover both.pum -o saved.f32 --stream 2")["n_streams"], 2);
    assert_eq!(sandbox.read_f32("saved.f32"), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert!(sandbox.fails("recover both.pum -o saved.f32 --stream 3", 2).contains("there are 2"));
}

#[test]
fn a_missing_end_is_reported() {
    let (sandbox, restored) = with_chunks();
    let bytes = sandbox.read("x.pum");
    sandbox.write("x.pum", &bytes[..bytes.len() / 2]);
    let report = sandbox.json("recover x.pum -o saved.f32");
    assert_eq!(report["end_known"], false);
    let text = sandbox.run("recover x.pum -o saved.f32");
    assert!(text.contains("the end of the file is missing") && !text.contains("nothing was lost"), "{text}");
    let saved = sandbox.read_f32("saved.f32");
    assert_eq!(saved, restored[..saved.len()]);
    sandbox.fails("recover x.pum -o -", 2);
}

/// Two files with equal headers, and a burst from within the one to within the other.
#[test]
fn concatenated_files_with_equal_headers_are_not_mixed() {
    let sandbox = Sandbox::new();
    let mut files = Vec::new();
    for seed in [1u32, 2] {
        let noise = |i: u32| f32::from_bits((i * 2 + seed).wrapping_mul(2_654_435_761) & 0xff7f_ffff);
        let values: Vec<f32> = (0..80_000).map(noise).collect();
        sandbox.write_f32("n_10x8000.f32", &values);
        sandbox.run("compress n_10x8000.f32 -o n.pum --lossless --chunk 1,8000");
        files.push(sandbox.read("n.pum"));
    }
    let n = files[0].len();
    let mut both = files.concat();
    both[n / 2..n + n / 2].fill(0);
    sandbox.write("both.pum", &both);
    for (stream, n_chunks, end_known) in [(1, 5, false), (2, 10, true)] {
        let report = sandbox.json(&format!("recover both.pum -o saved.f32 --stream {stream}"));
        assert_eq!((&report["n_streams"], &report["end_known"]), (&2.into(), &end_known.into()), "{report}");
        assert_eq!((&report["n_chunks"], &report["n_uncertain"]), (&n_chunks.into(), &0.into()), "{report}");
        assert!(report["n_intact"].as_u64().is_some_and(|n| (4..=5).contains(&n)), "{report}");
    }
    // Bytes are lost in one file: what was before them may be of another.
    let mut shorter = files[0].clone();
    shorter.drain(n / 2..n / 2 + 1000);
    sandbox.write("shorter.pum", &shorter);
    let text = sandbox.run("recover shorter.pum -o saved.f32");
    assert!(text.contains("9 of 10 chunks intact") && text.contains("may be those of another one"), "{text}");
    let report = sandbox.json("recover shorter.pum -o saved.f32");
    assert_eq!(report["uncertain"], serde_json::json!([0, 1, 2, 3, 4]), "{report}");
}

#[test]
fn a_pipe_is_recovered_like_a_file() {
    let (sandbox, restored) = with_chunks();
    break_middle(&sandbox);
    let expected = sandbox.json("recover x.pum -o saved.f32");
    let saved = sandbox.read("saved.f32");
    let inputs: &[&str] = if cfg!(unix) { &["-", "/dev/stdin"] } else { &["-"] };
    for input in inputs {
        let mut command = sandbox.command(&format!("recover {input} -o piped.f32 --json"));
        let output = command.write_stdin(sandbox.read("x.pum")).output().unwrap();
        assert!(output.status.success(), "{}", crate::sandbox::stderr(&output));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["lost"], expected["lost"]);
        assert_eq!(sandbox.read("piped.f32"), saved);
    }
    assert_eq!(saved.len(), restored.len() * 4);
}

/// HDF5 files and Zarr stores hold streams, but are none.
#[test]
fn files_of_other_formats_are_refused_with_what_to_do() {
    let (sandbox, _) = with_chunks();
    let stream = sandbox.read("x.pum");
    let hdf5 = [&b"\x89HDF\r\n\x1a\n"[..], &[0; 2000], &stream].concat();
    sandbox.write("x.h5", &hdf5);
    sandbox.write("behind_a_block.h5", &[&[0; 1024][..], &hdf5].concat());
    std::fs::create_dir(sandbox.path("x.zarr")).unwrap();
    sandbox.write("x.zarr/zarr.json", b"{}");
    for (name, what) in [("x.h5", "HDF5"), ("behind_a_block.h5", "HDF5"), ("x.zarr", "Zarr store")] {
        let message = sandbox.fails(&format!("recover {name} -o saved.npy"), 3);
        assert!(message.contains(what) && message.contains("Damaged chunks"), "{message}");
        assert!(!message.contains("store its arrays"), "{message}");
    }
    std::fs::create_dir(sandbox.path("folder")).unwrap();
    assert!(sandbox.fails("recover folder -o saved.npy", 6).contains("is a directory"));
    assert!(!sandbox.path("saved.npy").exists());
}

/// A few bytes that claim rows of 2^33 values, nearly all of them lost: they are written in slices until the disk is full.
#[cfg(unix)]
#[test]
fn a_lost_region_of_any_size_takes_little_memory() {
    let sandbox = Sandbox::new();
    // A header without a bound, rows of 2^33 values and chunks of [4, 2^20]; then the first chunk of the third band, of row
    // 5 alone: tiles of zeros.
    let mut stream =
        b"PUM\x1a\x01\x01\x1a\0\x01\0\x01\0\x02\x80\x80\x80\x80\x20\x04\x80\x80\x40\x77\x77\xcb\x0c".to_vec();
    stream.extend(b"CHNK\x01\x80\x80\x01\x05\x01\xa8\x04\x28\xf2\x2d\x88\x5f\x5c\x46\xaa");
    stream.extend([0, 1, 0, 0, 12]);
    // Ids are below the number of bytes.
    stream.resize(20_000, 0);
    sandbox.write("forged.pum", &stream);
    let limits = "ulimit -v 300000; ulimit -f 65536; exec \"$0\" \"$@\"";
    let output = std::process::Command::new("sh")
        .args(["-c", limits, env!("CARGO_BIN_EXE_pumice")])
        .args(["recover", "forged.pum", "-o", "saved.f32", "--threads", "1"])
        .current_dir(sandbox.path(""))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(6), "{}", crate::sandbox::stderr(&output));
}
