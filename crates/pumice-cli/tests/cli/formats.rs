//! Inputs that are not raw little-endian values in C order: other `.npy` files, and files of other formats.

use crate::round_trip::npy;
use crate::sandbox::{Sandbox, smooth, stderr};

#[test]
fn npy_files_of_any_byte_order_and_axis_order_are_the_same_array() {
    let sandbox = Sandbox::new();
    let shape = [30, 20, 10];
    let values = smooth(&shape);
    // Element (i, j, k) of the array is the (i + 30 j + 600 k)th of a file in Fortran order.
    let position = |at: usize| (at % 30, at / 30 % 20, at / 600);
    let transposed: Vec<f32> = (0..6000).map(position).map(|(i, j, k)| values[(i * 20 + j) * 10 + k]).collect();
    let little = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
    let big = |values: &[f32]| values.iter().flat_map(|v| v.to_be_bytes()).collect::<Vec<_>>();
    sandbox.write("x.npy", &npy("<f4", "False", "(30, 20, 10)", &little(&values)));
    sandbox.run("compress x.npy -o x.pum --rel 1e-4");
    let expected = sandbox.read("x.pum");
    for (name, descr, fortran, data) in [
        ("big", ">f4", "False", big(&values)),
        ("fortran", "<f4", "True", little(&transposed)),
        ("both", ">f4", "True", big(&transposed)),
    ] {
        let file = npy(descr, fortran, "(30, 20, 10)", &data);
        sandbox.write("y.npy", &file);
        sandbox.run("compress y.npy -o y.pum --rel 1e-4");
        assert!(sandbox.read("y.pum") == expected, "{name}");
        sandbox.run("check y.npy x.pum");
        let output = sandbox.command("compress - -o y.pum --rel 1e-4").write_stdin(file).output().unwrap();
        assert!(output.status.success());
        assert!(sandbox.read("y.pum") == expected, "{name} from a pipe");
    }
    assert_eq!(sandbox.files(), ["x.npy", "x.pum", "y.npy", "y.pum"]);
}

#[test]
fn other_types_say_how_to_convert_them() {
    let sandbox = Sandbox::new();
    for (descr, hint) in [("<i4", "astype('f8')"), ("<f2", "astype('f4')"), ("<c8", "array.imag"), ("<f16", "f8")] {
        sandbox.write("x.npy", &npy(descr, "False", "(2,)", &[0; 32]));
        let message = sandbox.fails("compress x.npy -o x.pum --abs 1", 3);
        assert!(message.contains(descr) && message.contains(hint), "{message}");
    }
}

#[test]
fn files_of_other_formats_say_what_to_use() {
    let sandbox = Sandbox::new();
    sandbox.write_f32("x_100.f32", &smooth(&[100]));
    sandbox.run("compress x_100.f32 -o x.pum --abs 1");
    sandbox.write("x.npz", b"PK\x03\x04 and more");
    sandbox.write("x.h5", b"\x89HDF\r\n\x1a\n and more");
    sandbox.write("x.nc", b"CDF\x05 and more");
    for (name, hint, hint_for_pipe) in [
        ("x.pum", "pumice decompress x.pum", "pumice decompress -"),
        ("x.npz", "numpy.load('x.npz')", "numpy.load('FILE')"),
        ("x.h5", "pumice convert x.h5", "pumice convert FILE"),
        ("x.nc", "pumice convert x.nc", "pumice convert FILE"),
    ] {
        let message = sandbox.fails(&format!("compress {name} -o y.pum --abs 1"), 3);
        assert!(message.contains(hint), "{message}");
        let stream = sandbox.command("compress - -o y.pum --abs 1").write_stdin(sandbox.read(name)).output().unwrap();
        assert_eq!(stream.status.code(), Some(3), "{name}");
        let message = stderr(&stream);
        assert!(message.contains("standard input") && message.contains(hint_for_pipe), "{message}");
    }
    // What is to be decompressed.
    for (name, hint) in [("x.h5", "not from a pipe"), ("x.npz", "does not look like")] {
        for line in ["info -", "decompress - -o y.f32", "decompress - -o y.f32 --region 0:1"] {
            let output = sandbox.command(line).write_stdin(sandbox.read(name)).output().unwrap();
            assert_eq!(output.status.code(), Some(4), "{line} {name}");
            let message = stderr(&output);
            assert!(message.contains(hint) && !message.contains("recover"), "{message}");
        }
    }
    std::fs::create_dir(sandbox.path("x.zarr")).unwrap();
    sandbox.write("x.zarr/zarr.json", b"{}");
    assert!(sandbox.fails("compress x.zarr -o y.pum --abs 1", 6).contains("Zarr store"));
    // Raw values may start with any bytes.
    sandbox.write("raw", b"PK\x03\x04PK\x03\x04");
    sandbox.run("compress raw -o y.pum --abs 1 --dtype f32 --shape 2");
}
