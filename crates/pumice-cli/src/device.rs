//! Where arrays are coded: on the cores of this machine, or on a CUDA device, which gives the same bytes.
//!
//! A device takes an array as a whole, from memory to memory. It is asked once, before anything is read, whether it can
//! do the job; `--device auto` turns to the CPU only then, so that a device that fails is never hidden.

#[cfg(not(feature = "cuda"))]
mod no_cuda;

use clap::ValueEnum;
use pumice::{Config, ErrorKind};
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::text;

#[cfg(not(feature = "cuda"))]
pub(crate) use no_cuda::{Device as Cuda, DeviceElement};
#[cfg(feature = "cuda")]
pub(crate) use pumice_gpu::{Device as Cuda, DeviceElement};

/// Device memory that coding an array may take, in sizes of the array: itself, room for payloads that do not shrink,
/// chunks that are not one run of memory, differences, and tables.
pub(crate) const CODING_ARRAYS: u64 = 5;

/// What the user asks for.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DeviceArg {
    /// The cores of this machine
    #[default]
    Cpu,
    /// The first CUDA device
    Cuda,
    /// The first CUDA device if it can do the job, otherwise the CPU
    Auto,
}

/// What a device would have to do.
pub(crate) struct Job<'a> {
    /// All that is to be encoded, or was when the stream was made.
    pub(crate) configs: &'a [Config],
    /// Device memory that it takes.
    pub(crate) device_bytes: u64,
}

impl DeviceArg {
    /// Where the job will be done. `--device cuda` fails where `--device auto` chooses the CPU.
    pub(crate) fn place(self, job: &Job<'_>) -> Result<Place> {
        match self {
            Self::Cpu => Ok(Place::Cpu { reason: None }),
            Self::Cuda => {
                let cuda = Cuda::cuda(0).map_err(advise)?;
                can_encode(&cuda, job).map_err(advise)?;
                Ok(Place::Cuda(cuda))
            }
            Self::Auto => Ok(found(job).map_or_else(|e| Place::cpu_because(e.to_string()), Place::Cuda)),
        }
    }
}

/// The device, if it is there and can do the job.
fn found(job: &Job<'_>) -> pumice::Result<Cuda> {
    let cuda = Cuda::cuda(0)?;
    can_encode(&cuda, job)?;
    let (free, _) = cuda.memory()?;
    if job.device_bytes > free {
        let (needed, free) = (text::bytes(job.device_bytes), text::bytes(free));
        return Err(pumice::Error::device(format!("it may take {needed} of device memory, of which {free} are free")));
    }
    Ok(cuda)
}

/// Refuses what the device has no kernels for.
fn can_encode(cuda: &Cuda, job: &Job<'_>) -> pumice::Result<()> {
    job.configs.iter().try_for_each(|config| cuda.supports(config))
}

/// An error of a device, with the way around it.
pub(crate) fn advise(error: pumice::Error) -> Failure {
    let kind = error.kind();
    let failure = Failure::from(error);
    match kind {
        ErrorKind::Device => failure.hint("`--device cpu` needs no GPU and gives the same bytes"),
        ErrorKind::Unsupported => failure.hint("use `--device cpu`, or `--device auto`, which then takes the CPU"),
        ErrorKind::LimitExceeded => failure.hint("`--device cpu` needs memory for a few chunks only"),
        _ => failure,
    }
}

/// Where a job is done.
#[derive(Debug)]
pub(crate) enum Place {
    Cpu {
        /// Why it is not a device, if one was welcome.
        reason: Option<String>,
    },
    Cuda(Cuda),
}

impl Place {
    /// The CPU, for want of something better.
    pub(crate) fn cpu_because(reason: impl Into<String>) -> Self {
        Self::Cpu { reason: Some(reason.into()) }
    }

    pub(crate) fn report(&self) -> DeviceReport {
        match self {
            Self::Cpu { reason } => DeviceReport { device: "cpu", device_name: None, device_reason: reason.clone() },
            Self::Cuda(cuda) => DeviceReport { device: "cuda", device_name: Some(cuda.name()), device_reason: None },
        }
    }
}

/// The place in `--json`.
#[derive(Serialize, Clone, Debug)]
pub(crate) struct DeviceReport {
    device: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_reason: Option<String>,
}

impl DeviceReport {
    /// A line for people, unless it is the CPU and nothing else was asked for.
    pub(crate) fn text(&self) -> String {
        match (&self.device_name, &self.device_reason) {
            (Some(name), _) => format!("device: {}, {name}\n", self.device),
            (None, Some(reason)) => format!("device: {}, since {reason}\n", self.device),
            (None, None) => String::new(),
        }
    }
}
