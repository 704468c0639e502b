//! Pumice on CUDA devices: the same streams, byte for byte, at the speed of device memory.
//!
//! Kernels are CUDA C++ in `kernels/`, embedded as PTX, and driven through the CUDA driver, which is loaded at run time:
//! neither building nor installing needs a CUDA toolkit, and without a driver [`Device::cuda`] says so.
//!
//! [`Device::compress`] and [`Device::decompress`] take arrays on the host. For data on the device, use
//! [`Device::blueprint`], [`Encoder`] and [`Decoder`] with a [`DeviceSlice`] of it and streams of their own; complete
//! streams can be there as well ([`Encoder::finish_on_device`], [`Device::open_on_device`]).
#![allow(unsafe_code, reason = "talks to a device")]

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
