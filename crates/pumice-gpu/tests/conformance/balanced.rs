//! Tests of codec `balanced`.

use pumice::{Config, DecodeOptions, ErrorBound, Preset};
use pumice_testkit::fields::Field;

use super::forged::throw;
use super::{all_fields, check, check_all_on_device, device, on_cuda};

fn balanced(bound: ErrorBound) -> Config {
    Config::new(bound).preset(Preset::Balanced)
}

const BOUNDS: [ErrorBound; 3] = [ErrorBound::Rel(1e-2), ErrorBound::Rel(1e-4), ErrorBound::Abs(1e-3)];

/// Shapes with rows of whole groups, and others.
fn shapes() -> &'static [&'static [usize]] {
    if on_cuda() {
        &[&[300_000], &[701, 433], &[33, 100, 128], &[64, 64, 64], &[3, 5, 40, 170], &[9, 31, 3], &[20, 256, 512]]
    } else {
        &[&[9000], &[70, 131], &[17, 33, 64], &[3, 9, 20, 41], &[40, 9, 3], &[9, 20, 160]]
    }
}

#[test]
fn all_fields_f32() {
    all_fields::<f32>(shapes(), &BOUNDS, balanced);
}

#[test]
fn all_fields_f64() {
    all_fields::<f64>(shapes(), &BOUNDS, balanced);
}

#[test]
fn all_sizes() {
    for n in [0, 1, 7, 31, 32, 33, 63, 64, 65, 127, 128, 129, 160, 2048, 4095, 4096, 4097, 4128, 8193, 100_032] {
        let values: Vec<f32> = Field::Turbulence.generate(&[n], 3);
        check(&device(n as u64), &values, &[n], &balanced(ErrorBound::Abs(1e-3)), &format!("{n} values"));
        let values: Vec<f64> = Field::Walk.generate(&[n], 4);
        check(&device(n as u64), &values, &[n], &balanced(ErrorBound::Rel(1e-3)), &format!("{n} values"));
    }
    check(&device(0), &[3.5_f32], &[], &balanced(ErrorBound::Abs(1e-3)), "a scalar");
    check::<f32>(&device(0), &[], &[3, 0, 5], &balanced(ErrorBound::Abs(1e-3)), "an empty array");
    let values: Vec<f32> = Field::Walk.generate(&[3000], 4);
    check(&device(0), &values, &[3000], &balanced(ErrorBound::Lossless), "lossless");
}

#[test]
fn many_chunks_in_one_launch() {
    let shape = [40, 48, 96];
    for (seed, chunk_shape) in (0..).zip([[40, 48, 96], [16, 48, 96], [7, 48, 96], [16, 20, 64], [40, 10, 32]]) {
        let values: Vec<f32> = Field::Turbulence.generate(&shape, seed);
        let config = balanced(ErrorBound::Rel(1e-3)).chunk_shape(&chunk_shape);
        check(&device(seed), &values, &shape, &config, &format!("chunks of {chunk_shape:?}"));
        // Some chunks have fill values, others have none.
        let mut values = values;
        values[10_000..30_000].fill(1e20);
        check(&device(seed), &values, &shape, &config, &format!("chunks of {chunk_shape:?}, masked"));
    }
}

/// Chunks whose groups are sorted by several thread blocks.
#[test]
fn many_tiles_in_one_chunk() {
    let shape = [75, 64, 128];
    let device = device(4);
    let values: Vec<f32> = Field::Turbulence.generate(&shape, 2);
    check_all_on_device(&device, &values, &shape, &balanced(ErrorBound::Rel(1e-3)), "turbulence");
    // Runs of empty groups that cross tiles.
    let value = |i: usize| if (50_000..400_000).contains(&i) || i % 7001 >= 90 { 0.0 } else { (i % 90) as f32 };
    let values: Vec<f32> = (0..values.len()).map(value).collect();
    check_all_on_device(&device, &values, &shape, &balanced(ErrorBound::Abs(0.25)), "mostly zeros");
}

/// Sums along every set of axes, with edges inside patches and outside of them.
#[test]
fn all_orders_of_differences() {
    let whole = [
        vec![5, 19, 160],
        vec![3, 8, 128],
        vec![6, 9, 288],
        vec![37, 416],
        vec![40_064],
        // Several stacks of patches in each of a few planes, more in one plane than a block takes, and rows of many
        // strips.
        vec![3, 70, 160],
        vec![290, 544],
        vec![3, 33_024],
    ];
    // Groups of 32 values that cross the ends of rows, and batches.
    let cut = [
        vec![5, 19, 157],
        vec![3, 8, 130],
        vec![6, 9, 37],
        vec![37, 411],
        vec![40_061],
        vec![300, 5],
        vec![2, 5, 9, 40],
    ];
    for (seed, shape) in (0..).zip(whole.into_iter().chain(cut)) {
        let n: usize = shape.iter().product();
        let (nx, ny) = (shape[shape.len() - 1], if shape.len() > 1 { shape[shape.len() - 2] } else { 1 });
        for axes in 1..8_usize {
            // Rough along all axes that are not in the set, and steep along the others.
            let noise = |i: usize| ((i as u32).wrapping_mul(2_654_435_761) >> 20) as f32 / 4096.0;
            let value = |i: usize| {
                let (x, y, z) = (i % nx, i / nx % ny, i / nx / ny);
                let steep = [(x, 4), (y, 2), (z, 1)].map(|(place, bit)| {
                    if axes & bit != 0 { (place % 400 * (place % 400)) as f32 } else { 1000.0 * noise(place * 7 + bit) }
                });
                steep.iter().sum::<f32>() + noise(i)
            };
            let values: Vec<f32> = (0..n).map(value).collect();
            let what = format!("{shape:?}, axes {axes}");
            check_all_on_device(&device(seed), &values, &shape, &balanced(ErrorBound::Abs(0.1)), &what);
            if seed % 2 == 1 {
                let values: Vec<f64> = values.into_iter().map(f64::from).collect();
                let what = format!("{what}, f64");
                check_all_on_device(&device(seed), &values, &shape, &balanced(ErrorBound::Abs(0.01)), &what);
            }
        }
    }
}

#[test]
fn hostile_payloads_give_the_cpus_values_or_its_error() {
    let device = device(1);
    let n_cases = if on_cuda() { 2000 } else { 80 };
    // Plain chunks and others; few symbols and many, and low bits.
    let cases = [
        (vec![6, 20, 64], 1e-3),
        (vec![6, 20, 64], 1e-5),
        (vec![6, 20, 61], 1e-3),
        (vec![4000], 1e-2),
        (vec![3, 4, 11, 37], 1e-3),
    ];
    for (shape, bound) in cases {
        let values: Vec<f32> = Field::Turbulence.generate(&shape, 6);
        // Changes among the numbers at the front, and after them.
        let throw = |front| throw(&device, &values, &shape, &balanced(ErrorBound::Rel(bound)), n_cases / 2, front);
        let n_refused = throw(8) + throw(200);
        assert!(n_refused > n_cases / 2, "{n_refused} of {n_cases} were refused");
    }
}

/// A damaged stream gives the same values or the same kind of error on the CPU and on the device.
#[test]
fn damage_gives_what_the_cpu_gives() {
    let shape = [9, 40, 64];
    let values: Vec<f32> = Field::Turbulence.generate(&shape, 5);
    let config = balanced(ErrorBound::Rel(1e-3)).chunk_shape(&[5, 40, 64]);
    let bytes = pumice::compress(&values, &shape, &config).expect("it can be compressed");
    let device = device(1);
    for i in 0..40 {
        let mut damaged = bytes.clone();
        let at = bytes.len() * (2 * i + 1) / 80;
        damaged[at] ^= 1 << (i % 8);
        let on_device = device.decompress::<f32>(&damaged, &DecodeOptions::new());
        match pumice::decompress::<f32>(&damaged) {
            Ok(array) => assert_eq!(on_device.expect("the CPU takes it").data, array.data),
            Err(error) => assert_eq!(on_device.expect_err("the CPU refuses it").kind(), error.kind()),
        }
    }
}
