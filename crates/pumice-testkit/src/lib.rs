//! Test support for Pumice: deterministic fields, an independent bound checker, golden files.
