//! Tests of the command-line tool: each runs the program in a directory of its own.

mod analyze;
mod atomic;
mod bench_and_demo;
mod bounds;
mod check;
#[cfg(feature = "hdf5")]
mod convert;
mod device;
mod formats;
mod help;
mod layout;
#[cfg(target_os = "linux")]
mod memory;
mod recover;
mod round_trip;
mod sandbox;
mod streams;
mod targets;
