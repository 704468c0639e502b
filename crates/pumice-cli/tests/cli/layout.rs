//! Shapes and types of raw and `.npy` files, and the messages where they do not fit.

use crate::round_trip::npy;
use crate::sandbox::{Sandbox, smooth};

#[test]
fn dims_are_the_shape_reversed() {
    let sandbox = Sandbox::new();
    sandbox.write_f32("x.dat", &smooth(&[4, 5, 6]));
    sandbox.run("compress x.dat -o a.pum --shape 4,5,6 --dtype f32 --abs 0.01");
    sandbox.run("compress x.dat -o b.pum --dims 6,5,4 --dtype f32 --abs 0.01");
    sandbox.run("compress x.dat -o c.pum --dims 4x5x6 --dtype f32 --abs 0.01");
    assert_eq!(sandbox.read("a.pum"), sandbox.read("b.pum"));
    assert_eq!(sandbox.json("info c.pum")["shape"], serde_json::json!([6, 5, 4]));
    sandbox.fails("compress x.dat -o d.pum --shape 4,5,6 --dims 6,5,4 --dtype f32 --abs 0.01", 2);
}

#[test]
fn arguments_win_over_the_name() {
    let sandbox = Sandbox::new();
    sandbox.write_f32("x_4x30.f32", &smooth(&[120]));
    let report = sandbox.json("compress x_4x30.f32 -o x.pum --shape 10,12 --abs 0.01");
    assert_eq!(report["shape"], serde_json::json!([10, 12]));
}

#[test]
fn a_mismatch_is_explained_in_both_orders() {
    let sandbox = Sandbox::new();
    sandbox.write_f32("x.f32", &smooth(&[4, 5, 6]));
    let message = sandbox.fails("compress x.f32 -o x.pum --shape 4,5,7 --abs 0.01", 2);
    for part in [
        "480 bytes",
        "120 values",
        "140 values",
        "560 bytes",
        "--shape",
        "--dims",
        "4 planes of 5 rows of 7 values",
        "7 planes of 5 rows of 4 values",
        "--shape 4,5,6",
    ] {
        assert!(message.contains(part), "no '{part}' in:\n{message}");
    }
    let message = sandbox.fails("compress x.f32 -o x.pum --dims 7,5,4 --abs 0.01", 2);
    assert!(message.contains("--dims 7,5,4 needs 140 values"), "{message}");
    assert!(sandbox.fails("compress x.f32 -o x.pum --shape 60 --abs 0.01", 2).contains("--dtype f64"));
    assert!(!sandbox.path("x.pum").exists());
}

#[test]
fn an_unknown_type_or_shape_gives_a_hint() {
    let sandbox = Sandbox::new();
    sandbox.write_f32("x.dat", &smooth(&[12]));
    sandbox.write_f32("x.f32", &smooth(&[12]));
    assert!(sandbox.fails("compress x.dat -o x.pum --shape 12 --abs 0.01", 2).contains("--dtype f32"));
    assert!(sandbox.fails("compress x.f32 -o x.pum --abs 0.01", 2).contains("--shape 12"));
}

#[test]
fn unsupported_npy_files_give_a_hint_to_convert_them() {
    let sandbox = Sandbox::new();
    sandbox.write("int.npy", &npy("<i4", "False", "(2, 3)", &[0; 24]));
    sandbox.write("short.npy", &npy("<f4", "False", "(2, 3)", &[0; 20]));
    assert!(sandbox.fails("compress int.npy -o x.pum --abs 1", 3).contains("astype"));
    sandbox.fails("compress short.npy -o x.pum --abs 1", 5);
}

#[test]
fn npy_files_can_be_reshaped() {
    let sandbox = Sandbox::new();
    sandbox.write("x.npy", &npy("<f4", "False", "(2, 3)", &[0; 24]));
    assert_eq!(sandbox.json("compress x.npy -o x.pum --abs 1 --shape 6")["shape"], serde_json::json!([6]));
    sandbox.fails("compress x.npy -o x.pum --abs 1 --shape 7", 2);
    sandbox.fails("compress x.npy -o x.pum --abs 1 --dtype f64", 2);
}
