//! An I/O server in the manner of XIOS: some ranks are servers, to which the others, the clients, hand over fields. A
//! client copies its values into messages that are on their way while it computes; servers put the field together, compress
//! it with its own parameters and write it.
//!
//! ```text
//! options.rs   where and how fields are written, and which parameters each has
//! layout.rs    which part of a field each server gets: whole chunks
//! message.rs   what is said with the values
//! outbox.rs    messages on their way, in bounded memory; votes that clients count later
//! client.rs    hands over fields
//! service.rs   receives them
//! output.rs    one file of all servers, or one of each
//! ```
//!
//! All clients hand over the same fields in the same order, as they would write them collectively. Each call is an event;
//! a server receives the messages of one event after the other from each client, so it holds its part of one field at a
//! time, and a client that is ahead of the others waits when its memory for messages is full. A program that would not hang
//! if the calls were collective does not hang here.
//!
//! **Errors** reach all clients by the same call. A server that fails tells every client, and goes on receiving so that
//! none waits for it. The clients vote in each call whether one of them knows of an error, and count the votes of a call in
//! the next one, which so returns it on all of them.

mod client;
mod layout;
mod message;
mod options;
mod outbox;
mod output;
mod service;

pub use client::{Client, ClientReport};
pub use options::{Coding, FileMode, Options};
pub use service::{Server, ServerReport};

use mpi::Rank;
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::*;
use pumice::Result;

use crate::agreement::{agree, check_same};
use crate::collective::gather_all;
use crate::local::invalid;

/// Which ranks are servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Servers {
    /// So many, the last ones.
    Last(usize),
    /// This one, if true: each rank says it for itself.
    This(bool),
}

/// What a rank is.
#[derive(Debug)]
pub enum Role {
    /// It computes and hands over fields.
    Client(Client),
    /// It writes them: call [`Server::run`].
    Server(Server),
}

/// What the whole run has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Fields, each step of one counted.
    pub n_fields: u64,
    /// Bytes of values.
    pub raw_bytes: u64,
    /// Bytes of files.
    pub stored_bytes: u64,
}

/// Makes some ranks servers and the others clients, together. All have the same options.
///
/// ```no_run
/// use mpi::traits::*;
/// use pumice_fields::{Rules, Treatment};
/// use pumice_mpi::LocalBox;
/// use pumice_mpi::server::{self, Options, Role, Servers};
///
/// let universe = mpi::initialize().expect("MPI is not yet in use");
/// let rules = Rules::load("fields.xml".as_ref(), Treatment::new(Vec::new()))?;
/// let options = Options::new("output").rules(rules);
/// match server::start(&universe.world(), Servers::Last(2), options)? {
///     Role::Server(server) => _ = server.run()?,
///     Role::Client(mut client) => {
///         // The communicator of the model.
///         let (rank, n_ranks) = (client.comm().rank() as usize, client.comm().size() as usize);
///         for step in 0..10 {
///             let values = vec![step as f32; 100 * 500];
///             let mine = LocalBox { start: &[100 * rank, 0], extents: &[100, 500], values: &values };
///             client.write("t", step, &[100 * n_ranks, 500], &[mine])?;
///         }
///         client.finish()?;
///     }
/// }
/// # Ok::<(), pumice::Error>(())
/// ```
///
/// # Errors
/// If there would be no servers or no clients, or the ranks have other options.
pub fn start(comm: &impl Communicator, servers: Servers, options: Options) -> Result<Role> {
    let link = comm.duplicate();
    let size = link.size();
    check_same(&link, &[("options of the I/O server", format!("{options:?}"))])?;
    let is_server = match servers {
        Servers::Last(n) => link.rank() as usize >= (size as usize).saturating_sub(n),
        Servers::This(is_server) => is_server,
    };
    let are_servers = gather_all(&link, &[u8::from(is_server)])?.concat();
    let ranks_of = |wanted: u8| -> Vec<Rank> {
        (0..).zip(&are_servers).filter(|(_, is_server)| **is_server == wanted).map(|(rank, _)| rank).collect()
    };
    let (servers, clients) = (ranks_of(1), ranks_of(0));
    if servers.is_empty() || clients.is_empty() {
        return Err(invalid(format!(
            "an I/O server needs at least one server and one client, and here are {} and {} of {size} ranks",
            servers.len(),
            clients.len()
        )));
    }
    let own = link.split_by_color(Color::with_value(i32::from(is_server)));
    let own = agree(&link, own.ok_or_else(|| invalid("MPI gives no communicator")))?;
    let link = Link { comm: link, clients, servers };
    Ok(if is_server {
        Role::Server(Server::new(link, own, options))
    } else {
        Role::Client(Client::new(link, own, options))
    })
}

/// All ranks, and what they are.
struct Link {
    comm: SimpleCommunicator,
    clients: Vec<Rank>,
    servers: Vec<Rank>,
}
