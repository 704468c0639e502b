//! Small arrays through the unsafe code of every preset: what an interpreter such as Miri can run in minutes
//! (`cargo xtask portable miri`). The tests of `suite/` cover the same code with larger arrays.

use pumice::{Config, DecodeOptions, Element, ErrorBound, Preset, Reader};
use pumice_testkit::fields::Field;
use pumice_testkit::{Float, check};

/// More than a supergroup of 64 values, with odd ends.
const SHAPE: [usize; 2] = [9, 15];

/// Compresses, checks the bound and a part, and damages the stream: what that leads to stays within memory.
fn round_trip<T: Element + Float>(values: &[T], config: &Config) {
    // On this thread alone: an interpreter runs the others' waiting too.
    let open = |bytes: &[u8]| Reader::new(bytes.to_vec(), DecodeOptions::new().threads(1));
    let mut bytes = pumice::compress(values, &SHAPE, config).unwrap();
    let reader = open(&bytes).unwrap();
    let whole = reader.read::<T>().unwrap();
    check::verify(values, &whole.data, reader.info().abs_bound, &reader.info().fills).unwrap();
    let part = reader.read_region::<T>(&[3..5, 0..SHAPE[1]]).unwrap();
    assert_eq!(check::bits(&part.data), check::bits(&whole.data[3 * SHAPE[1]..5 * SHAPE[1]]));
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    assert!(open(&bytes).and_then(|reader| reader.read::<T>()).is_err());
}

fn round_trips(preset: Preset) {
    for field in [Field::Smooth, Field::FillAndNan] {
        for bound in [ErrorBound::Abs(1e-3), ErrorBound::Lossless] {
            let config = Config::new(bound).preset(preset).threads(1);
            round_trip(&field.generate::<f32>(&SHAPE, 1), &config);
            round_trip(&field.generate::<f64>(&SHAPE, 2), &config);
        }
    }
}

#[test]
fn fast() {
    round_trips(Preset::Fast);
}

#[test]
fn balanced() {
    round_trips(Preset::Balanced);
}

#[test]
fn small() {
    round_trips(Preset::Small);
}
