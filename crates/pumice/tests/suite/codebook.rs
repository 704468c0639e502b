//! Codebooks that chunks and streams share: the values are those of codes of a chunk's own, whatever the codebook was
//! trained with, and it never costs much.

use pumice::{
    Codebook, CodebookTrainer, Config, DecodeOptions, Element, ErrorBound, ErrorKind, FileWriter, Preset, Reader,
    StreamReader, Writer,
};
use pumice_testkit::fields::Field;
use pumice_testkit::{Rng, check};
use twox_hash::XxHash3_64;

const SHAPE: [usize; 2] = [256, 192];
/// Chunks of 64 KiB of f32.
const CHUNK: [usize; 2] = [128, 128];
const FIELDS: [Field; 9] = [
    Field::Smooth,
    Field::Turbulence,
    Field::Walk,
    Field::Noise,
    Field::Sparse,
    Field::Spikes,
    Field::Steps,
    Field::TwoFills,
    Field::MixedMagnitudes,
];

fn config(bound: ErrorBound) -> Config {
    Config::new(bound).preset(Preset::Balanced).chunk_shape(&CHUNK)
}

fn trained<T: Element + pumice_testkit::Float>(field: Field, config: &Config) -> Codebook {
    let mut trainer = CodebookTrainer::new();
    trainer.add(&field.generate::<T>(&SHAPE, 1), &SHAPE, config).unwrap();
    trainer.finish().unwrap()
}

/// Codec of each chunk's frame, by docs/format.md.
fn codecs(stream: &[u8]) -> Vec<u8> {
    let marks = stream.windows(4).enumerate().filter(|(_, bytes)| bytes == b"CHNK");
    marks.map(|(at, _)| stream[at + 4]).collect()
}

#[test]
fn any_codebook_restores_the_values_of_own_codes() {
    for bound in [ErrorBound::Rel(1e-2), ErrorBound::Rel(1e-5), ErrorBound::PwRel(1e-3)] {
        let config = config(bound);
        let books = FIELDS.map(|field| trained::<f32>(field, &config));
        for field in FIELDS {
            let values = field.generate::<f32>(&SHAPE, 2);
            let own = pumice::compress(&values, &SHAPE, &config).unwrap();
            let expected = pumice::decompress::<f32>(&own).unwrap().data;
            for (book, of) in books.iter().zip(FIELDS) {
                let shared = pumice::compress(&values, &SHAPE, &config.clone().codebook(book)).unwrap();
                let restored = pumice::decompress::<f32>(&shared).unwrap().data;
                assert!(check::bits(&restored) == check::bits(&expected), "{field:?} with the codebook of {of:?}");
                // The codebook is stored twice: in the header, and in its copy.
                let payloads = shared.len() - 2 * book.as_bytes().len();
                let most = own.len() + own.len() / 20 + 200;
                assert!(payloads <= most, "{field:?} with the codebook of {of:?}: {payloads} and {} bytes", own.len());
            }
        }
    }
}

#[test]
fn a_codebook_of_the_same_kind_of_data_serves_every_chunk() {
    let field = Field::Turbulence;
    let config = config(ErrorBound::Rel(1e-3));
    let values = field.generate::<f32>(&SHAPE, 2);
    let book = trained::<f32>(field, &config);
    let stream = pumice::compress(&values, &SHAPE, &config.clone().codebook(&book)).unwrap();
    assert_eq!(codecs(&stream), [11; 4]);
    let own = pumice::compress(&values, &SHAPE, &config).unwrap();
    assert!(stream.len() - 2 * book.as_bytes().len() <= own.len() * 105 / 100);
    assert_eq!(pumice::inspect(&stream).unwrap().codebook, Some(book));
}

#[test]
fn what_a_codebook_does_not_suit_has_codes_of_its_own() {
    let config = config(ErrorBound::Abs(1e-3));
    let book = trained::<f64>(Field::Noise, &config);
    let values = Field::Sparse.generate::<f64>(&SHAPE, 3);
    let stream = pumice::compress(&values, &SHAPE, &config.codebook(&book)).unwrap();
    assert!(codecs(&stream).iter().all(|codec| *codec != 11), "{:?}", codecs(&stream));
    // Lossless chunks have no use for it.
    let lossless = Config::new(ErrorBound::Lossless).preset(Preset::Balanced).codebook(&book);
    let stream = pumice::compress(&values, &SHAPE, &lossless).unwrap();
    assert!(pumice::decompress::<f64>(&stream).unwrap().data == values);
}

#[test]
fn random_arrays_keep_every_bound() {
    let mut rng = Rng::new(5);
    let book = trained::<f32>(Field::Turbulence, &config(ErrorBound::Rel(1e-4)));
    for _ in 0..300 {
        let shape: Vec<usize> = (0..1 + rng.below(4)).map(|_| 1 + rng.below(30)).collect();
        let n: usize = shape.iter().product();
        let scale = 10f64.powi(rng.below(12) as i32 - 6);
        let (step, jump) = (scale * rng.below(100) as f64, rng.below(40));
        let values: Vec<f64> = (0..n)
            .map(|i| if rng.below(40) < jump { step * rng.below(7) as f64 } else { scale * (i as f64 * 0.01).sin() })
            .collect();
        let config = Config::new(ErrorBound::Abs(1e-3)).preset(Preset::Balanced).codebook(&book);
        let restored = pumice::decompress::<f64>(&pumice::compress(&values, &shape, &config).unwrap()).unwrap();
        assert!(values.iter().zip(&restored.data).all(|(a, b)| (a - b).abs() <= 1e-3), "{shape:?}");
    }
}

#[test]
fn every_way_to_write_and_read_has_codebooks() {
    let config = config(ErrorBound::Abs(1e-3));
    let book = trained::<f32>(Field::Turbulence, &config);
    let config = config.codebook(&book);
    let values = Field::Turbulence.generate::<f32>(&SHAPE, 2);
    let stream = pumice::compress(&values, &SHAPE, &config).unwrap();
    let expected = pumice::decompress::<f32>(&stream).unwrap().data;
    for threads in 2..4 {
        assert!(pumice::compress(&values, &SHAPE, &config.clone().threads(threads)).unwrap() == stream);
    }
    let reader = Reader::new(&stream[..], DecodeOptions::new()).unwrap();
    let region = reader.read_region::<f32>(&[100..140, 3..190]).unwrap().data;
    assert!(region == check::cut(&expected, &SHAPE, &[100..140, 3..190]));
    let mut piped = Vec::new();
    let pipe = StreamReader::new(&stream[..], DecodeOptions::new()).unwrap();
    let info = pipe.for_each_rows::<f32>(|rows| {
        piped.extend_from_slice(rows);
        Ok(())
    });
    let info = info.unwrap();
    assert!(piped == expected && info.codebook == Some(book.clone()));

    // Rows as they come, and appended rows, which go on with the codebook of the file.
    let half = values.len() / 2;
    let mut writer = Writer::<f32, _>::new(Vec::new(), &SHAPE[1..], &config).unwrap();
    values.chunks(SHAPE[1] * 5).for_each(|rows| writer.write_rows(rows).unwrap());
    let (written, _) = writer.finish().unwrap();
    assert!(pumice::decompress::<f32>(&written).unwrap().data == expected);
    assert_eq!(codecs(&written), [11; 4]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("appended.pum");
    let mut writer = FileWriter::<f32>::create(&path, &SHAPE[1..], &config).unwrap();
    writer.write_rows(&values[..half]).unwrap();
    writer.finish().unwrap();
    let mut writer = FileWriter::<f32>::append(&path, 1).unwrap();
    writer.write_rows(&values[half..]).unwrap();
    writer.finish().unwrap();
    let appended = std::fs::read(&path).unwrap();
    assert_eq!(codecs(&appended), [11; 4]);
    assert!(pumice::decompress::<f32>(&appended).unwrap().data == expected);

    // Without the beginning of the file, the copy of the header has the codebook.
    let mut damaged = stream.clone();
    damaged[..crate::forge::header_bytes(&stream)].fill(0);
    let salvage = pumice::salvage(&damaged[..], DecodeOptions::new()).unwrap();
    assert_eq!(salvage.lost().count(), 0);
    assert!(salvage.read(f32::NAN).unwrap().data == expected);
    // Values that are written again keep their bits.
    let mut changed = expected.clone();
    changed[77] += 1.0;
    let updated = pumice::update(&stream, &changed, &config).unwrap();
    let again = pumice::decompress::<f32>(&updated).unwrap().data;
    assert!((0..again.len()).all(|i| i == 77 || again[i].to_bits() == expected[i].to_bits()));
}

#[test]
fn training_does_not_depend_on_order_or_threads() {
    let config = config(ErrorBound::Rel(1e-4));
    let arrays = [Field::Smooth, Field::Walk].map(|field| field.generate::<f32>(&SHAPE, 4));
    let book = |order: [usize; 2], threads: usize| {
        let mut trainer = CodebookTrainer::new();
        order.iter().for_each(|i| trainer.add(&arrays[*i], &SHAPE, &config.clone().threads(threads)).unwrap());
        trainer.finish().unwrap()
    };
    assert_eq!(book([0, 1], 1), book([1, 0], 3));
    assert_ne!(book([0, 1], 1), book([0, 0], 1));
    // What a stream restores is coded as its values were.
    let mut trainer = CodebookTrainer::new();
    for values in &arrays {
        let stream = pumice::compress(values, &SHAPE, &config.clone().preset(Preset::Small)).unwrap();
        trainer.add_stream(&Reader::new(&stream[..], DecodeOptions::new()).unwrap()).unwrap();
    }
    assert!(trainer.finish().unwrap().n_books() > 3);
}

#[test]
fn what_has_no_use_for_a_codebook_is_refused() {
    let book = trained::<f32>(Field::Walk, &config(ErrorBound::Abs(1e-2)));
    let small = Config::new(ErrorBound::Abs(1e-2)).codebook(&book);
    let error = pumice::compress(&[1.0f32; 100], &[100], &small).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("balanced"), "{error}");
    assert_eq!(CodebookTrainer::new().finish().unwrap_err().kind(), ErrorKind::InvalidArgument);
    let mut trainer = CodebookTrainer::new();
    trainer.add(&[1.0f32, 2.0], &[2], &Config::new(ErrorBound::Lossless)).unwrap();
    assert_eq!(trainer.finish().unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn damaged_codebooks_are_refused_and_forged_ones_are_safe() {
    let config = config(ErrorBound::Abs(1e-2));
    let book = trained::<f32>(Field::Walk, &config);
    let bytes = book.as_bytes();
    assert_eq!(Codebook::from_bytes(bytes).unwrap(), book);
    for n in 0..bytes.len() {
        assert_eq!(Codebook::from_bytes(&bytes[..n]).unwrap_err().kind(), ErrorKind::Corrupt, "{n} bytes");
    }
    assert!(Codebook::from_bytes(&[bytes, &[0]].concat()).is_err());
    let values = Field::Spikes.generate::<f32>(&SHAPE, 9);
    let mut rng = Rng::new(11);
    let mut n_valid = 0;
    for at in 0..8 * bytes.len() {
        let mut forged = bytes.to_vec();
        forged[at / 8] ^= 1 << (at % 8);
        assert!(Codebook::from_bytes(&forged).is_err(), "bit {at}");
        if rng.below(2) == 0 {
            forged[rng.below(bytes.len() - 8)] ^= 1 << rng.below(8);
        }
        let end = forged.len() - 8;
        let checksum = XxHash3_64::oneshot(&forged[..end]).to_le_bytes();
        forged[end..].copy_from_slice(&checksum);
        // Whatever passes the checks codes and decodes every array.
        let Ok(forged) = Codebook::from_bytes(&forged) else { continue };
        n_valid += 1;
        let config = Config::new(ErrorBound::Abs(1e-2)).preset(Preset::Balanced).codebook(&forged);
        let stream = pumice::compress(&values[..6000], &[6000], &config).unwrap();
        let restored = pumice::decompress::<f32>(&stream).unwrap().data;
        check::verify(&values[..6000], &restored, 1e-2, &[]).unwrap();
    }
    assert!(n_valid > 0);
}
