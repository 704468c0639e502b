use super::decode::Decode;
use super::encode::Encode;
use super::*;
use crate::entropy::binary::{BinaryDecoder, BinaryEncoder};
use crate::entropy::tokens::tests::Random;
use crate::error::Result;
use crate::io::checksum::xxh3;
use crate::num::simd::Kernel;

const NO_CODE: u8 = Lengths::NO_CODE;

// ---- Lengths ----

fn kraft_sum(lengths: &Lengths) -> u64 {
    lengths.bits.iter().filter(|n| **n != NO_CODE).map(|&n| 1 << (MAX_BITS - u32::from(n))).sum()
}

/// The least cost of any complete code, by trying all of them.
fn least_cost(counts: &[u64], max_bits: u32) -> u64 {
    fn search(counts: &[u64], max_bits: u32, room: u64) -> Option<u64> {
        let Some((&count, rest)) = counts.split_first() else { return (room == 0).then_some(0) };
        let costs = (1..=max_bits).filter_map(|n_bits| {
            let room = room.checked_sub(1 << (max_bits - n_bits))?;
            Some(search(rest, max_bits, room)? + count * u64::from(n_bits))
        });
        costs.min()
    }
    search(counts, max_bits, 1 << max_bits).expect("the limit is possible")
}

/// The cost of a Huffman code without limits.
fn huffman_cost(counts: &[u32]) -> u64 {
    let used = counts.iter().filter(|count| **count != 0);
    let mut heap: std::collections::BinaryHeap<_> = used.map(|&count| std::cmp::Reverse(u64::from(count))).collect();
    let mut cost = 0;
    while heap.len() > 1 {
        let sum = heap.pop().unwrap().0 + heap.pop().unwrap().0;
        cost += sum;
        heap.push(std::cmp::Reverse(sum));
    }
    cost
}

#[test]
fn small_codes_are_the_best_of_all() {
    let mut random = Random(1);
    for i in 0..400 {
        let n = 2 + i % 5;
        let counts: Vec<u32> = (0..n).map(|_| 1 + (random.next() >> (random.next() % 32)) % 5000).collect();
        for max_bits in 3..=6 {
            let lengths = Lengths::fit(&counts, max_bits);
            let wide: Vec<u64> = counts.iter().map(|&count| u64::from(count)).collect();
            assert_eq!(lengths.cost_bits(&counts), least_cost(&wide, max_bits), "{counts:?} {max_bits}");
            assert!(lengths.longest() <= max_bits);
        }
    }
}

#[test]
fn codes_are_complete_and_as_good_as_without_a_limit_that_does_not_bind() {
    let mut random = Random(2);
    for n in [2, 3, 10, 40, 256, 1000, 2001, 65536] {
        for shift in [1, 8, 24, 32] {
            let counts: Vec<u32> =
                (0..n).map(|_| (u64::from(random.next()) >> (random.next() % shift)) as u32 >> 8).collect();
            let n_used = counts.iter().filter(|count| **count != 0).count();
            let mut last_cost = u64::MAX;
            for max_bits in [11, 12, 16, 20, 24] {
                let lengths = Lengths::fit(&counts, max_bits);
                assert!(lengths.longest() <= max_bits.max(usize::BITS - n_used.saturating_sub(1).leading_zeros()));
                assert_eq!(Lengths::new(lengths.bits.clone()).unwrap(), lengths);
                if n_used > 1 {
                    assert_eq!(kraft_sum(&lengths), 1 << MAX_BITS);
                }
                let cost = lengths.cost_bits(&counts);
                assert!(cost <= last_cost);
                last_cost = cost;
                if lengths.longest() < max_bits {
                    assert_eq!(cost, huffman_cost(&counts), "{n} {shift} {max_bits}");
                }
            }
        }
    }
}

#[test]
fn limits_bind() {
    let mut fibonacci = vec![1_u32, 1];
    (2..40).for_each(|i| fibonacci.push(fibonacci[i - 1] + fibonacci[i - 2]));
    let mut last_cost = huffman_cost(&fibonacci);
    for max_bits in (6..=24).rev() {
        let lengths = Lengths::fit(&fibonacci, max_bits);
        assert_eq!(lengths.longest(), max_bits);
        assert_eq!(kraft_sum(&lengths), 1 << MAX_BITS);
        let cost = lengths.cost_bits(&fibonacci);
        assert!(cost > last_cost);
        last_cost = cost;
    }
    // A limit that is too low for so many symbols is the one they need.
    assert_eq!(Lengths::fit(&[1; 40], 3).longest(), 6);
}

#[test]
fn codes_of_few_symbols() {
    assert_eq!(Lengths::fit(&[], 11).bits, []);
    assert_eq!(Lengths::fit(&[0, 0], 11).bits, [NO_CODE; 2]);
    assert_eq!(Lengths::fit(&[0, 9, 0], 11).bits, [NO_CODE, 0, NO_CODE]);
    assert_eq!(Lengths::fit(&[3, 0, 5], 11).bits, [1, NO_CODE, 1]);
    assert_eq!(Lengths::fit(&[0, 9, 0], 11).cost_bits(&[0, 100, 0]), 0);
    assert_eq!(Lengths::fit(&[0, 9, 0], 11).cost_bits(&[1, 100, 0]), u64::MAX);
    assert_eq!(Lengths::fit(&[9], 11).cost_bits(&[1, 1]), u64::MAX);
    for wrong in [&[0, 0][..], &[0, 1], &[1], &[1, 1, 1], &[1, 2], &[25; 2], &[0x80; 128]] {
        Lengths::new(wrong.to_vec()).unwrap_err();
    }
}

fn write(lengths: &Lengths) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = BinaryEncoder::new(&mut bytes);
    lengths.write(&mut encoder);
    encoder.finish();
    bytes
}

fn read(bytes: &[u8], n_symbols: usize) -> Result<Lengths> {
    let mut decoder = BinaryDecoder::new(bytes);
    let lengths = Lengths::read(&mut decoder, n_symbols)?;
    decoder.finish()?;
    Ok(lengths)
}

/// Counts of symbols around the middle of an alphabet.
fn peaked(n_symbols: usize, mean: f64, n: usize, seed: u64) -> Vec<u32> {
    let mut random = Random(seed);
    let mut counts = vec![0; n_symbols];
    for _ in 0..n {
        let symbol = n_symbols as i64 / 2 + i64::from(random.code(mean));
        counts[symbol.clamp(0, n_symbols as i64 - 1) as usize] += 1;
    }
    counts
}

#[test]
fn lengths_come_back() {
    let mut random = Random(3);
    let mut all =
        vec![Lengths::default(), Lengths::fit(&[0; 9], 9), Lengths::fit(&[0, 4], 9), Lengths::fit(&[1; 5], 9)];
    for n in [1, 2, 3, 40, 256, 2001, 65536] {
        for shift in [1, 20, 40] {
            let counts = (0..n).map(|_| (u64::from(random.next()) >> (random.next() % shift)) as u32);
            all.push(Lengths::fit(&counts.collect::<Vec<u32>>(), 8 + random.next() % 17));
        }
        let mut counts = vec![0; n];
        counts[n - 1] = 1;
        all.push(Lengths::fit(&counts, 11));
    }
    for lengths in &all {
        assert_eq!(read(&write(lengths), lengths.bits.len()).unwrap(), *lengths);
    }
}

#[test]
fn packed_lengths_come_back() {
    let mut random = Random(5);
    let mut all = vec![Lengths::fit(&[0, 4], 9), Lengths::fit(&[1; 5], 9), Lengths::fit(&[1; 256], 12)];
    let powers: Vec<u32> = (0..256).map(|i| if i % 2 == 0 { 1 << (i / 2 % 23) } else { 0 }).collect();
    all.push(Lengths::fit(&powers, 12));
    for n in [2, 3, 50, 65, 82, 130, 132, 256] {
        for shift in [1, 20, 40] {
            let counts = (0..n).map(|_| (u64::from(random.next()) >> (random.next() % shift)) as u32);
            let mut counts: Vec<u32> = counts.collect();
            counts[n / 2] |= 1;
            all.push(Lengths::fit(&counts, 12));
        }
    }
    // The longest bits that there can be fit their count.
    let zigzag: Vec<u8> = (0..256).map(|i| if i % 2 == 0 { 1 } else { 12 }).collect();
    assert!(packed::pack(&Lengths { bits: zigzag }, &mut Vec::new()) < 1 << 13);
    let mut n_refused = 0;
    for lengths in &all {
        let mut bytes = vec![7];
        let n_bits = packed::pack(lengths, &mut bytes);
        let bytes = &bytes[1..];
        assert_eq!(packed::unpack(bytes, n_bits, lengths.bits.len()).unwrap(), *lengths);
        for _ in 0..300 {
            let mut damaged = bytes.to_vec();
            damaged[random.next() as usize % bytes.len()] ^= 1 << (random.next() % 8);
            if random.next().is_multiple_of(3) {
                damaged.truncate(random.next() as usize % bytes.len());
            }
            let n_bits = if random.next().is_multiple_of(3) { random.next() % (1 << 13) } else { n_bits };
            match packed::unpack(&damaged, n_bits, lengths.bits.len()) {
                Ok(found) => assert!(Lengths::new(found.bits).is_ok()),
                Err(_) => n_refused += 1,
            }
        }
    }
    assert!(n_refused > 250 * all.len(), "{n_refused} of {}", 300 * all.len());
}

#[test]
fn lengths_are_small() {
    let tokens = |mean: f64, n: usize, seed: u64| {
        let mut random = Random(seed);
        let mut counts = vec![0_u32; 256];
        (0..n).for_each(|_| counts[usize::from(crate::entropy::tokens::token_of(random.code(mean)))] += 1);
        Lengths::fit(&counts, 11)
    };
    let n_used = |lengths: &Lengths| lengths.bits.iter().filter(|n| **n != NO_CODE).count();
    let wide = tokens(100.0, 10_000, 1);
    assert!(n_used(&wide) >= 38 && write(&wide).len() <= 18);
    let peak = Lengths::fit(&peaked(2001, 70.0, 300_000, 3), 16);
    assert!(n_used(&peak) >= 1000 && write(&peak).len() <= 260, "{}", write(&peak).len());
    assert!(write(&Lengths::fit(&peaked(1024, 2.0, 100_000, 3), 16)).len() <= 20);
    // Without models it takes little more.
    let narrow = Lengths::fit(&peaked(256, 8.0, 100_000, 3), 12);
    let mut packed = Vec::new();
    packed::pack(&narrow, &mut packed);
    assert!(n_used(&narrow) >= 60 && packed.len() <= 34, "{} {}", n_used(&narrow), packed.len());
}

#[test]
fn hostile_lengths_are_refused_or_valid() {
    let good = write(&Lengths::fit(&peaked(256, 8.0, 9999, 1), 11));
    let mut random = Random(4);
    let mut n_refused = 0;
    for i in 0..6000 {
        let mut bytes = good.clone();
        match i % 3 {
            0 => bytes = (0..random.next() % 80).map(|_| random.next() as u8).collect(),
            1 => bytes.truncate(random.next() as usize % good.len()),
            _ => bytes[random.next() as usize % good.len()] ^= 1 << (random.next() % 8),
        }
        let n_symbols = [256, 1, 2001, 65536][if i % 3 == 0 { random.next() as usize % 4 } else { 0 }];
        match read(&bytes, n_symbols) {
            Ok(lengths) => assert!(Lengths::new(lengths.bits).is_ok()),
            Err(_) => n_refused += 1,
        }
    }
    assert!(n_refused > 5000, "{n_refused}");
}

// ---- Streams ----

struct Streams {
    bytes: Vec<u8>,
    sizes: Vec<u16>,
}

/// Encodes, and checks that the portable form of the encoder does the same.
fn encode_both<T: Symbol>(symbols: &[T], classes: Classes<'_>, lengths: &[Lengths]) -> Streams {
    let codebooks: Vec<Codebook> = lengths.iter().cloned().map(Codebook::new).collect();
    let mut native = Streams { bytes: vec![1], sizes: vec![2] };
    encode(symbols, classes, &codebooks, &mut native.bytes, &mut native.sizes);
    let mut portable = Streams { bytes: vec![1], sizes: vec![2] };
    let (out, sizes) = (&mut portable.bytes, &mut portable.sizes);
    Encode { symbols, classes, codebooks: &codebooks, out, sizes }.run();
    assert!(native.bytes == portable.bytes && native.sizes == portable.sizes);
    // It appends.
    assert!(native.bytes.remove(0) == 1 && native.sizes.remove(0) == 2);
    native
}

/// Decodes, and checks that the portable form of the decoder does the same.
fn decode_both<T: Symbol + PartialEq>(
    streams: &Streams,
    classes: Classes<'_>,
    tables: &DecodeTables<T>,
    n: usize,
) -> Result<Vec<T>> {
    let Streams { bytes, sizes } = streams;
    let mut native = vec![T::default(); n];
    let result = decode(bytes, sizes, classes, tables, &mut native);
    let is_consistent =
        sizes.len() == n_streams(n) && sizes.iter().map(|&n| usize::from(n)).sum::<usize>() == bytes.len();
    if is_consistent {
        let mut portable = vec![T::default(); n];
        let portable_result = Decode { bytes, sizes, classes, tables, out: &mut portable }.run();
        assert_eq!(result.is_ok(), portable_result.is_ok());
        assert!(native == portable);
    }
    result.map(|()| native)
}

fn check<T: Symbol + PartialEq>(symbols: &[T], classes: Classes<'_>, lengths: &[Lengths]) -> Streams {
    let streams = encode_both(symbols, classes, lengths);
    let tables = DecodeTables::<T>::new(lengths);
    assert!(decode_both(&streams, classes, &tables, symbols.len()).unwrap() == symbols);
    streams
}

const SIZES: [usize; 19] =
    [0, 1, 31, 32, 33, 63, 64, 127, 128, 129, 1000, 4064, 4095, 4096, 4097, 8191, 8192, 12_345, 100_000];

#[test]
fn symbols_of_one_codebook_come_back() {
    let mut random = Random(5);
    for n_symbols in [1, 2, 3, 256, 2001, 65536] {
        // Uniform, skewed, and one only.
        for kind in 0..3 {
            for max_bits in [11, 12, 14, 15, 24] {
                let n = SIZES[random.next() as usize % SIZES.len()];
                let mut symbol = |_| match kind {
                    0 => random.next() as usize % n_symbols,
                    1 => (random.code(1.0 + n_symbols as f64 / 50.0).unsigned_abs() as usize).min(n_symbols - 1),
                    _ => n_symbols / 2,
                };
                let symbols: Vec<usize> = (0..n).map(&mut symbol).collect();
                let mut counts = vec![0_u32; n_symbols];
                symbols.iter().for_each(|&symbol| counts[symbol] += 1);
                let lengths = [Lengths::fit(&counts, max_bits)];
                if n == 0 {
                    continue;
                }
                let wide: Vec<u16> = symbols.iter().map(|&symbol| symbol as u16).collect();
                let streams = check(&wide, Classes::Same(0), &lengths);
                let n_bits: usize = streams.sizes.iter().map(|&size| 8 * usize::from(size)).sum();
                let cost = lengths[0].cost_bits(&counts) as usize;
                assert!((cost..=cost + 7 * streams.sizes.len()).contains(&n_bits));
                if n_symbols <= 256 {
                    let narrow: Vec<u8> = symbols.iter().map(|&symbol| symbol as u8).collect();
                    let same = check(&narrow, Classes::Same(0), &lengths);
                    assert!(same.bytes == streams.bytes && same.sizes == streams.sizes);
                    check(&narrow, Classes::PerGroup(&vec![0; n_groups(n)]), &lengths);
                }
            }
        }
    }
}

/// Symbols of 16 classes that get wider, and the codebooks of these.
fn classed(n: usize, n_symbols: usize, max_bits: u32, seed: u64) -> (Vec<u16>, Vec<u8>, Vec<Lengths>) {
    let mut random = Random(seed);
    let classes: Vec<u8> = (0..n_groups(n)).map(|_| (random.next() % 16) as u8).collect();
    let mut counts = vec![vec![0_u32; n_symbols]; 16];
    let symbols = (0..n).map(|i| {
        let class = usize::from(classes[i / GROUP_SYMBOLS]);
        let symbol = (random.code(0.1 * 1.6_f64.powi(class as i32)).unsigned_abs() as usize).min(n_symbols - 1);
        counts[class][symbol] += 1;
        symbol as u16
    });
    let symbols = symbols.collect();
    (symbols, classes, counts.iter().map(|counts| Lengths::fit(counts, max_bits)).collect())
}

#[test]
fn symbols_of_many_codebooks_come_back() {
    for n in SIZES {
        for max_bits in [9, 11, 12, 24] {
            let (symbols, classes, lengths) = classed(n, 256, max_bits, n as u64);
            let streams = check(&symbols, Classes::PerGroup(&classes), &lengths);
            assert_eq!(streams.sizes.len(), n.div_ceil(BLOCK) * 4);
            let narrow: Vec<u8> = symbols.iter().map(|&symbol| symbol as u8).collect();
            assert!(check(&narrow, Classes::PerGroup(&classes), &lengths).bytes == streams.bytes);
        }
    }
    let (symbols, classes, lengths) = classed(50_000, 2001, 13, 1);
    check(&symbols, Classes::PerGroup(&classes), &lengths);
}

#[test]
fn streams_are_what_the_format_says() {
    // Codes 0, 10, 110, 111, the first bit being the lowest.
    let lengths = [Lengths::new(vec![3, 1, NO_CODE, 3, 2]).unwrap()];
    assert_eq!(Codebook::new(lengths[0].clone()).id(), xxh3(&[3, 1, 255, 3, 2]));
    let streams = check(&[4_u8, 1, 0, 3, 1, 1, 4], Classes::Same(0), &lengths);
    assert_eq!(streams.sizes, [0, 0, 0, 2]);
    assert_eq!(streams.bytes, [0b1101_1001, 0b0000_1001]);
    // Nine groups: 2, 2, 2 and 3 of them.
    let streams = check(&[1_u8; 8 * 32 + 1], Classes::Same(0), &lengths);
    assert_eq!(streams.sizes, [8, 8, 8, 9]);
    let streams = check(&[1_u8; 4096 + 32], Classes::Same(0), &lengths);
    assert_eq!(streams.sizes, [128, 128, 128, 128, 0, 0, 0, 4]);
}

#[test]
fn a_symbol_alone_takes_no_bits() {
    let lengths = [Lengths::fit(&[0, 0, 7], 11), Lengths::fit(&[1, 1], 11)];
    let streams = check(&[2_u8; 5000], Classes::Same(0), &lengths[..1]);
    assert!(streams.bytes.is_empty() && streams.sizes == [0; 8]);
    let mut classes = [0; 157];
    classes[100] = 1;
    let mut symbols = [2_u8; 5000];
    symbols[3200..3232].fill(1);
    assert_eq!(check(&symbols, Classes::PerGroup(&classes), &lengths).bytes, [0xff; 4]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let (symbols, classes, mut lengths) = classed(10_000, 256, 11, 3);
    let streams = encode_both(&symbols, Classes::PerGroup(&classes), &lengths);
    let tables = DecodeTables::<u16>::new(&lengths);
    let refuse = |bytes: &[u8], sizes: &[u16], classes: Classes<'_>, tables: &DecodeTables<u16>, n: usize| {
        let error = decode(bytes, sizes, classes, tables, &mut vec![0; n]).unwrap_err();
        assert_eq!(error.kind(), crate::error::ErrorKind::Corrupt);
    };
    let (bytes, sizes) = (&streams.bytes[..], &streams.sizes[..]);
    refuse(bytes, &sizes[1..], Classes::PerGroup(&classes), &tables, 10_000);
    refuse(&bytes[1..], sizes, Classes::PerGroup(&classes), &tables, 10_000);
    refuse(bytes, sizes, Classes::PerGroup(&classes[1..]), &tables, 10_000);
    refuse(bytes, sizes, Classes::PerGroup(&classes), &tables, 9_000);
    refuse(bytes, sizes, Classes::Same(16), &tables, 10_000);
    refuse(bytes, sizes, Classes::PerGroup(&classes), &DecodeTables::new(&lengths[..15]), 10_000);
    lengths[7] = Lengths::fit(&[0; 256], 11);
    refuse(bytes, sizes, Classes::PerGroup(&classes), &DecodeTables::new(&lengths), 10_000);
    refuse(&[], &[0; 4], Classes::Same(0), &DecodeTables::new(&[]), 1);
    decode::<u8>(&[], &[], Classes::Same(0), &DecodeTables::new(&[]), &mut []).unwrap();
    decode::<u8>(&[], &[], Classes::PerGroup(&[]), &DecodeTables::new(&[]), &mut []).unwrap();

    // A byte more or less in one stream, and padding that is not 0.
    for i in 0..sizes.len() {
        let end: usize = sizes[..=i].iter().map(|&size| usize::from(size)).sum();
        let (mut longer, mut sizes) = (bytes.to_vec(), sizes.to_vec());
        longer.insert(end, 0);
        sizes[i] += 1;
        refuse(&longer, &sizes, Classes::PerGroup(&classes), &tables, 10_000);
        longer.drain(end - 1..=end);
        sizes[i] -= 2;
        refuse(&longer, &sizes, Classes::PerGroup(&classes), &tables, 10_000);
    }
    let one = [Lengths::fit(&[1, 1], 11)];
    for (byte, is_right) in [(0b111, true), (0b1111, false), (0b1000_0111, false)] {
        let result = decode::<u8>(&[byte], &[0, 0, 0, 1], Classes::Same(0), &DecodeTables::new(&one), &mut [0; 3]);
        assert_eq!(result.is_ok(), is_right);
    }
}

#[test]
fn hostile_streams_are_refused_or_decoded() {
    let mut random = Random(6);
    let mut n_refused = 0;
    for i in 0..1500 {
        let n = SIZES[1..18][random.next() as usize % 17];
        let (symbols, classes, lengths) = classed(n, [256, 3, 2001][i % 3], [9, 11, 15, 24][i / 3 % 4], i as u64);
        let (classes, lengths) = match i % 5 {
            // One codebook that knows all symbols; some have many long codes.
            0 | 1 => {
                let mut counts = vec![i as u32 % 2; if i % 3 == 2 { 2001 } else { 256 }];
                symbols.iter().for_each(|&symbol| counts[usize::from(symbol)] += 20);
                (Classes::Same(0), vec![Lengths::fit(&counts, [11, 14, 20][i / 5 % 3])])
            }
            _ => (Classes::PerGroup(&classes), lengths),
        };
        let mut streams = encode_both(&symbols, classes, &lengths);
        match random.next() % 4 {
            0 => streams.bytes.iter_mut().for_each(|byte| *byte = random.next() as u8),
            1 => streams.bytes.iter_mut().for_each(|byte| *byte = 0xff),
            2 if !streams.bytes.is_empty() => {
                let at = random.next() as usize % streams.bytes.len();
                streams.bytes[at] ^= 1 << (random.next() % 8);
            }
            _ => {
                // Bytes go from one stream to another.
                let (from, to) = (random.next() as usize, random.next() as usize);
                let (from, to) = (from % streams.sizes.len(), to % streams.sizes.len());
                let n_moved = (random.next() % 100).min(u32::from(streams.sizes[from])) as u16;
                streams.sizes[from] -= n_moved;
                streams.sizes[to] += n_moved;
            }
        }
        let decoded = decode_both(&streams, classes, &DecodeTables::<u16>::new(&lengths), n);
        if lengths[0].bits.len() <= 256 {
            let narrow = decode_both(&streams, classes, &DecodeTables::<u8>::new(&lengths), n);
            assert!(narrow.ok().map(|all| all.into_iter().map(u16::from).collect()) == decoded.as_ref().ok().cloned());
        }
        match decoded {
            Ok(symbols) => {
                // What is accepted is what an encoder makes of it.
                let again = encode_both(&symbols, classes, &lengths);
                assert!(again.bytes == streams.bytes && again.sizes == streams.sizes);
            }
            Err(_) => n_refused += 1,
        }
    }
    assert!(n_refused > 800, "{n_refused}");
}
