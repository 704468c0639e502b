//! Small arrays through the unsafe code of every preset: what an interpreter such as Miri can run in minutes
//! (`cargo xtask portable miri`). The tests of `suite/` cover the same code with larger arrays.

use pumice::{Bound, Config, DecodeOptions, Preset, Reader};
use pumice_testkit::check;
use pumice_testkit::fields::Field;

/// More than a supergroup of 64 values, with odd ends.
const SHAPE: [usize; 2] = [9, 15];

fn round_trips(preset: Preset) {
    for field in [Field::Smooth, Field::FillAndNan] {
        for bound in [Bound::Abs(1e-3), Bound::Lossless] {
            let config = Config::new(bound).preset(preset).threads(1);
            let narrow = field.generate::<f32>(&SHAPE, 1);
            let bytes = pumice::compress(&narrow, &SHAPE, &config).unwrap();
            let reader = Reader::new(&bytes[..], DecodeOptions::new().threads(1)).unwrap();
            let whole = reader.read::<f32>().unwrap();
            check::verify(&narrow, &whole.data, reader.info().abs_bound, &reader.info().fills).unwrap();
            let part = reader.read_region::<f32>(&[3..5, 0..SHAPE[1]]).unwrap();
            assert_eq!(check::bits(&part.data), check::bits(&whole.data[3 * SHAPE[1]..5 * SHAPE[1]]));

            // What damage leads to stays within the memory that is there.
            let mut damaged = bytes.clone();
            let middle = damaged.len() / 2;
            damaged[middle] ^= 0x10;
            assert!(pumice::decompress::<f32>(&damaged).is_err());

            let wide = field.generate::<f64>(&SHAPE, 2);
            let bytes = pumice::compress(&wide, &SHAPE, &config).unwrap();
            let whole = pumice::decompress::<f64>(&bytes).unwrap();
            let info = pumice::inspect(&bytes).unwrap();
            check::verify(&wide, &whole.data, info.abs_bound, &info.fills).unwrap();
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
