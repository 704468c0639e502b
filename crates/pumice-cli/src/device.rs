//! Chooses the backend: the cores of this machine, or a CUDA device, which gives the same bytes.
//!
//! A device codes whole arrays, from memory to memory. The choice is made once, before anything is read; `--device
//! auto` falls back to the CPU only then, so that a device that fails later is reported.

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

/// Device memory that coding an array may take, in multiples of the array's size: the array, payloads that do not
/// shrink, copies of chunks that are not contiguous, differences, and tables.
pub(crate) const CODING_ARRAYS: u64 = 5;

/// The argument of `--device`.
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

/// What a device must support to be chosen.
pub(crate) struct Job<'a> {
    /// The configurations to encode with, or those that the stream was encoded with.
    pub(crate) configs: &'a [Config],
    /// The device memory that the job needs.
    pub(crate) device_bytes: u64,
}

impl DeviceArg {
    /// Chooses the backend for a job. `--device cuda` fails where `--device auto` chooses the CPU.
    pub(crate) fn backend(self, job: &Job<'_>) -> Result<Backend> {
        match self {
            Self::Cpu => Ok(Backend::Cpu { reason: None }),
            Self::Cuda => {
                let cuda = Cuda::cuda(0).map_err(advise)?;
                can_encode(&cuda, job).map_err(advise)?;
                Ok(Backend::Cuda(cuda))
            }
            Self::Auto => Ok(find_device(job).map_or_else(|e| Backend::cpu_because(e.to_string()), Backend::Cuda)),
        }
    }
}

/// The first device, if there is one that can do the job.
fn find_device(job: &Job<'_>) -> pumice::Result<Cuda> {
    let cuda = Cuda::cuda(0)?;
    can_encode(&cuda, job)?;
    let (free, _) = cuda.memory()?;
    if job.device_bytes > free {
        let (needed, free) = (text::bytes(job.device_bytes), text::bytes(free));
        return Err(pumice::Error::device(format!(
            "the job may need {needed} of device memory, but only {free} are free"
        )));
    }
    Ok(cuda)
}

/// Fails if the device has no kernels for a configuration.
fn can_encode(cuda: &Cuda, job: &Job<'_>) -> pumice::Result<()> {
    job.configs.iter().try_for_each(|config| cuda.supports(config))
}

/// Adds a hint to an error of a device.
pub(crate) fn advise(error: pumice::Error) -> Failure {
    let kind = error.kind();
    let failure = Failure::from(error);
    match kind {
        ErrorKind::Device => failure.hint("`--device cpu` needs no GPU and gives the same bytes"),
        ErrorKind::Unsupported => failure.hint("use `--device cpu`, or `--device auto`, which then uses the CPU"),
        ErrorKind::LimitExceeded => failure.hint("`--device cpu` needs memory for a few chunks only"),
        _ => failure,
    }
}

/// What codes the chunks.
#[derive(Debug)]
pub(crate) enum Backend {
    Cpu {
        /// Why `--device auto` did not choose a device.
        reason: Option<String>,
    },
    Cuda(Cuda),
}

impl Backend {
    /// The CPU, since a device cannot do the job.
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

/// The backend as `--json` prints it.
#[derive(Serialize, Clone, Debug)]
pub(crate) struct DeviceReport {
    device: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_reason: Option<String>,
}

impl DeviceReport {
    /// A line of the text report; empty for `--device cpu`.
    pub(crate) fn text(&self) -> String {
        match (&self.device_name, &self.device_reason) {
            (Some(name), _) => format!("device: {}, {name}\n", self.device),
            (None, Some(reason)) => format!("device: {}, since {reason}\n", self.device),
            (None, None) => String::new(),
        }
    }
}
