//! Development tasks: `cargo xtask ci` and friends.

fn main() {}
