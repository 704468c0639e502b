//! Compression parameters of named fields: which bound, preset and chunks each gets. Rules come from TOML, or from XML in
//! the manner of XIOS, and `pumice convert` and the I/O server of `pumice-mpi` use them in the same way. Fields that
//! servers have written in parts are read as one by [`Parts`].
//!
//! ```
//! use pumice::ErrorBound;
//! use pumice_fields::{Rules, Treatment};
//!
//! let xml = r#"
//!     <file id="x" compression_type="lossy" error_bound_mode="abs" error_bound="0.001">
//!       <field field_ref="t" error_bound_mode="rel" error_bound="0.1" />
//!       <field field_ref="q" error_bound="0.00001" />
//!       <field field_ref="cc" compression_type="lossless" compression_level="4" />
//!     </file>"#;
//! let rules = Rules::parse(xml, Treatment::new(Vec::new()))?;
//! assert_eq!(rules.treatment("t", false).unwrap().bounds, [ErrorBound::Rel(0.1)]);
//! assert_eq!(rules.treatment("q", false).unwrap().bounds, [ErrorBound::Abs(0.00001)]);
//! assert_eq!(rules.treatment("cc", false).unwrap().bounds, [ErrorBound::Lossless]);
//! # Ok::<(), pumice::Error>(())
//! ```

mod parts;
mod rules;
mod toml;
mod treatment;
mod xml;

pub use parts::{Part, Parts};
pub use rules::{ExactName, Rules, matches};
pub use treatment::{ChunkWord, Chunks, MAX_FILLS, Treatment};

use pumice::{Error, ErrorKind};

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}
