//! `cargo xtask ci`.
pub(crate) fn run() -> crate::shell::Result { todo!() }
