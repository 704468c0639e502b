//! Storage that each host reaches at a limited rate: a folder in the memory of a server, which the hosts have mounted by
//! sshfs without ssh, over a link of their own. Nothing is cached on the way: a write has reached the server when `fsync`
//! or `close` return.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use super::sh;
use crate::shell::{Result, command, target_dir};

/// What the hosts need to mount it.
pub(super) const PACKAGES: [&str; 4] = ["iproute2", "sshfs", "socat", "openssh-sftp-server"];

const BRIDGE: &str = "pumice-sbr";
const SERVER: &str = "pumice-s";
const SERVER_ADDRESS: &str = "10.78.0.100";
const PORT: u16 = 7000;

/// The server, and its folder on each host.
pub(super) struct Storage {
    folder: PathBuf,
    server: Option<Child>,
    /// One process for each host, whose mount namespace has the folder.
    mounts: Vec<Child>,
}

impl Storage {
    /// Storage for `n` hosts that exist, each of which reaches it at `rate` bytes per second.
    pub(super) fn new(n: usize, rate: u64) -> Result<Self> {
        let mut storage = Self { folder: target_dir().join("mpi-storage"), server: None, mounts: Vec::new() };
        storage.remove();
        let served = storage.folder.join("served");
        for folder in [&served, &storage.mounted()] {
            fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        // On busy machines, less at once does not fill the link: with 64 KiB, it gave 20 of 50 MB/s.
        let limit = format!("tbf rate {}bit burst 250000 latency 50ms", 8 * rate);
        let mut lines = format!(
            "mount -t tmpfs tmpfs {}
             ip link add {BRIDGE} type bridge; ip link set {BRIDGE} up
             ip netns add {SERVER}
             ip link add pumice-sv type veth peer name eth0 netns {SERVER}
             ip link set pumice-sv master {BRIDGE} up
             ip -n {SERVER} address add {SERVER_ADDRESS}/24 dev eth0
             ip -n {SERVER} link set eth0 up\n",
            served.display()
        );
        for i in 0..n {
            let address = i + 1;
            lines += &format!(
                "ip link add pumice-s{i} type veth peer name eth1 netns pumice{i}
                 ip link set pumice-s{i} master {BRIDGE} up
                 ip -n pumice{i} address add 10.78.0.{address}/24 dev eth1
                 ip -n pumice{i} link set eth1 up
                 tc qdisc add dev pumice-s{i} root {limit}
                 ip netns exec pumice{i} tc qdisc add dev eth1 root {limit}\n"
            );
        }
        sh(&lines)?;
        let listen = format!("TCP-LISTEN:{PORT},reuseaddr,fork,nodelay");
        storage.server = Some(start(SERVER, &["socat", "-b", "262144", &listen, "EXEC:/usr/lib/openssh/sftp-server"])?);
        sh(&format!(
            "for i in $(seq 100); do ip netns exec {SERVER} ss -ltn | grep -q :{PORT} && exit; sleep 0.1; done; exit 1"
        ))?;
        let options = format!("directport={PORT},direct_io,dir_cache=no,attr_timeout=0,entry_timeout=0");
        let source = format!("{SERVER_ADDRESS}:{}", served.display());
        let mounted = storage.mounted();
        let target = mounted.to_str().ok_or("the path of the target folder is not a text")?;
        for i in 0..n {
            storage.mounts.push(start(&format!("pumice{i}"), &["sshfs", "-f", "-o", &options, &source, target])?);
            let enter = storage.enter(i).join(" ");
            sh(&format!("for i in $(seq 100); do {enter} mountpoint -q {target} && exit; sleep 0.1; done; exit 1"))
                .map_err(|e| format!("{e}\nHost {i} cannot mount the storage"))?;
        }
        Ok(storage)
    }

    /// Where the hosts have it.
    pub(super) fn mounted(&self) -> PathBuf {
        self.folder.join("mounted")
    }

    /// The words in front of a command that is to run on a host.
    pub(super) fn enter(&self, host: usize) -> Vec<String> {
        let pid = self.mounts[host].id();
        ["nsenter".into(), format!("--target={pid}"), "--net".into(), "--mount".into()].into()
    }

    fn remove(&mut self) {
        for mut process in self.mounts.drain(..).chain(self.server.take()) {
            let _ = process.kill();
            let _ = process.wait();
        }
        // Its links go with a namespace; the server of each connection ends with that.
        std::thread::sleep(Duration::from_millis(100));
        let _ = sh(&format!(
            "set +e; ip netns del {SERVER}; ip link del {BRIDGE}; umount {}; true",
            self.folder.join("served").display()
        ));
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Starts a program in a network namespace.
fn start(namespace: &str, words: &[&str]) -> Result<Child> {
    let mut program = command("ip");
    program.args(["netns", "exec", namespace]).args(words).stdin(Stdio::null()).stdout(Stdio::null());
    program.spawn().map_err(|e| format!("{}: {e}", words[0]))
}
