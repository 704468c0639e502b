//! Pumice on CUDA devices: the same streams, byte for byte, at the speed of device memory.
//!
//! The kernels are CUDA C++ in `kernels/`, embedded as PTX. The CUDA driver is loaded at run time: neither building nor
//! installing needs a CUDA toolkit, and without a driver [`Device::cuda`] returns an error.
//!
//! [`Device::compress`] and [`Device::decompress`] take arrays on the host. For data on the device, use
//! [`Device::blueprint`], [`Encoder`] and [`Decoder`] with a [`DeviceSlice`] and a CUDA stream; complete compressed
//! streams can be in device memory as well ([`Encoder::finish_on_device`], [`Device::open_on_device`]).
#![allow(unsafe_code, reason = "calls the CUDA driver")]

mod balanced;
mod boxes;
mod cuda;
mod device;
#[cfg(feature = "emulator")]
mod emulated;
mod fast;
mod hash;
mod kernels;
mod payloads;
mod runtime;
mod scan;
mod staging;

pub use device::{Decoder, Device, DeviceArray, DeviceSlice, DeviceSliceMut, Encoder, FramesOnDevice, Stored};
pub use kernels::{DeviceElement, Item};
pub use runtime::{DevicePtr, Stream};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
