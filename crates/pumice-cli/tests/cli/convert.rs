//! `pumice convert` without an HDF5 library. crates/pumice-python/tests/test_convert.py tests it with the library and
//! with programs that read the results.

use crate::sandbox::{Sandbox, stderr};

const HDF5: &[u8] = b"\x89HDF\r\n\x1a\n";
/// An empty classic file.
const CLASSIC: &[u8] = b"CDF\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

#[test]
fn a_missing_library_is_named() {
    let sandbox = Sandbox::new();
    sandbox.write("x.nc", HDF5);
    sandbox.write("classic.nc", CLASSIC);
    for name in ["x.nc", "classic.nc"] {
        let mut command = sandbox.command(&format!("convert {name} y.nc"));
        let output = command.env("PUMICE_LIBHDF5", "/no/libhdf5.so").output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        assert!(stderr(&output).contains("PUMICE_LIBHDF5=/no/libhdf5.so cannot be loaded"));
    }
    assert_eq!(sandbox.files(), ["classic.nc", "x.nc"]);
}

#[test]
fn mistakes_are_found_before_a_library_is_needed() {
    let sandbox = Sandbox::new();
    sandbox.write("x.nc", HDF5);
    sandbox.write("fields.toml", b"[[field]]\nname = 'T'\nabs = 1e-3\npresset = 'max'\n");
    let message = sandbox.fails("convert x.nc y.nc --config fields.toml", 2);
    assert!(message.contains("fields.toml") && message.contains("line 4") && message.contains("presset"), "{message}");
    let xml = "<file compression_type='lossy'>\n  <field field_ref='T' eror_bound='1e-3'/>\n</file>\n";
    sandbox.write("fields.xml", xml.as_bytes());
    let message = sandbox.fails("convert x.nc y.nc --config fields.xml", 2);
    assert!(message.contains("fields.xml: line 2, column 24: eror_bound is unknown"), "{message}");
    sandbox.write("fields.xml", b"<!DOCTYPE a [<!ENTITY b 'c'>]><file/>");
    assert!(sandbox.fails("convert x.nc y.nc --config fields.xml", 2).contains("document types are not read"));
    assert!(sandbox.fails("convert x.nc ./x.nc", 2).contains("both input and output"));
    assert!(sandbox.fails("convert x.nc y.nc --config no.toml", 6).contains("no.toml"));
    assert!(sandbox.fails("convert no.nc y.nc", 6).contains("no.nc"));
    sandbox.write("short.nc", &CLASSIC[..CLASSIC.len() - 1]);
    assert!(sandbox.fails("convert short.nc y.nc", 5).contains("short.nc: the header ends too early"));
    sandbox.write("odd.nc", b"CDF\x03");
    assert!(sandbox.fails("convert odd.nc y.nc", 3).contains("odd.nc: a NetCDF file of an unknown version"));
    assert_eq!(sandbox.files(), ["fields.toml", "fields.xml", "odd.nc", "short.nc", "x.nc"]);
}
