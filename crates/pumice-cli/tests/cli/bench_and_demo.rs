//! `pumice bench` and `pumice demo`.

use crate::sandbox::{Sandbox, smooth};

#[test]
fn bench_measures_every_combination() {
    let sandbox = Sandbox::new();
    sandbox.write_f32("a_20x30.f32", &smooth(&[20, 30]));
    sandbox.write_f32("b_500.f32", &smooth(&[500]));
    let report =
        sandbox.json("bench a_20x30.f32 b_500.f32 --rel 1e-2,1e-3 --preset fast --min-size 100k --runs 2 --threads 1");
    let rows = report.as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        for field in [
            "ratio",
            "compress_gbps",
            "decompress_gbps",
            "memcpy_gbps",
            "compress_over_memcpy",
            "decompress_over_memcpy",
        ] {
            assert!(row[field].as_f64().unwrap() > 0.0, "{field}: {row}");
        }
        assert!((0.0..=1.0).contains(&row["max_err_over_bound"].as_f64().unwrap()), "{row}");
        assert_eq!((&row["preset"], &row["threads"]), (&"fast".into(), &1.into()));
    }
    assert_eq!(rows[1]["rel"], 1e-3);
    // The ratio is that of the file, not of its repetitions.
    let alone = sandbox.json("compress a_20x30.f32 -o a.pum --rel 1e-2 --preset fast");
    assert_eq!(rows[0]["ratio"], alone["ratio"]);
    let text = sandbox.run("bench a_20x30.f32 --min-size 0 --runs 1");
    assert!(text.contains("geometric mean"), "{text}");
}

#[test]
fn the_demo_shows_and_draws() {
    let sandbox = Sandbox::new();
    let report = sandbox.json("demo --output pictures");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 12);
    for row in rows {
        assert_eq!(row["bound_kept"], true, "{row}");
        assert!(row["max_err_over_bound"].as_f64().unwrap() <= 1.0, "{row}");
    }
    for field in ["turbulence", "wavefield", "climate", "particles"] {
        let picture = sandbox.read(&format!("pictures/{field}.png"));
        assert_eq!(picture[..8], *b"\x89PNG\r\n\x1a\n");
    }
    assert!(sandbox.path("pictures/turbulence_64x128x128.f32").exists());
}
