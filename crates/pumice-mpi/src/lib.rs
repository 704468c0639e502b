//! Arrays that the ranks of an MPI program share out, compressed where they are.
//!
//! - [`write()`]: one Pumice file, written by all ranks together. It has the bytes that a single process writes, and any
//!   laptop reads it.
//! - [`iwrite`]: the same, while the caller goes on; [`write_with`]: the same where compression may not pay.
//! - [`Writer`]: a file to which time steps are added one by one, new or there already.
//! - [`Reader`]: boxes of such a file on any number of ranks, collectively or each rank alone.
//! - [`gather`], [`all_gather`], [`broadcast`], [`scatter`], [`all_to_all`], [`send`] and [`receive`]: values that are
//!   compressed on their way from rank to rank.
//! - [`all_reduce`], [`reduce_scatter`]: sums of vectors of all ranks, which are sent as compressed integers, and have the
//!   same bits however the vectors are shared out.
//! - [`server`]: some ranks write the fields of the others, which go on computing.
//!
//! Everything that all ranks call together agrees on errors first: if one of them fails, all return the same error, and
//! none waits for the others.
//!
//! Needs the feature `mpi`, and with it an MPI library; without it, the crate is empty.
#![cfg(feature = "mpi")]

mod agreement;
mod collective;
mod exchange;
mod files;
mod link;
mod local;
mod messages;
mod mpi_file;
mod passes;
mod pieces;
pub mod server;
mod sums;

pub use agreement::agree;
pub use files::{Reader, Writer, Writing, iwrite, write, write_with};
pub use local::{LocalBox, LocalBoxMut, Value};
pub use messages::{Transfer, Wire, all_gather, all_to_all, broadcast, gather, receive, scatter, send};
pub use sums::{SumAlgorithm, SumBound, SumSummary, all_reduce, reduce_scatter};
