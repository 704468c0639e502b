//! Replaces `pumice-gpu` in builds without the feature `cuda` by a device that cannot exist, so that no other module
//! depends on the feature.

use std::ops::Range;

use pumice::{Array, Config, DecodeOptions, Error, Result};

pub(crate) use pumice::Element as DeviceElement;

/// A device; the type has no values.
#[derive(Debug)]
pub(crate) enum Device {}

impl Device {
    pub(crate) fn cuda(_ordinal: usize) -> Result<Self> {
        Err(Error::unsupported("this pumice was built without CUDA (the feature cuda of pumice-cli)"))
    }

    pub(crate) fn name(&self) -> String {
        match *self {}
    }

    pub(crate) fn memory(&self) -> Result<(u64, u64)> {
        match *self {}
    }

    pub(crate) fn supports(&self, _: &Config) -> Result<()> {
        match *self {}
    }

    pub(crate) fn compress<T: DeviceElement>(&self, _: &[T], _: &[usize], _: &Config) -> Result<Vec<u8>> {
        match *self {}
    }

    pub(crate) fn decompress<T: DeviceElement>(&self, _: &[u8], _: &DecodeOptions) -> Result<Array<T>> {
        match *self {}
    }

    pub(crate) fn decompress_region<T: DeviceElement>(
        &self,
        _: &[u8],
        _: &[Range<usize>],
        _: &DecodeOptions,
    ) -> Result<Array<T>> {
        match *self {}
    }
}
