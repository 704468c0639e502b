//! Checks that constants shared by kernels and Rust have the same values. C++ and Rust cannot share a definition
//! without generated sources, so this test reads both as text. It lists every constant of the kernels: it fails if one
//! is added or removed and the lists below are not updated.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Constants that a kernel file shares with a Rust file: names, or `KERNEL=RUST` if the names differ. Rust files are
/// given by the end of their path; `x.rs` also means `x/mod.rs`.
const SHARED: &[(&str, &str, &str)] = &[
    // The format and the encoder of `fast`.
    ("fast_tile.cuh", "pumice/src/ geometry.rs", "TILE_VALUES X Y Z XX"),
    ("fast_tile.cuh", "pumice/src/ simd.rs", "SUPER"),
    ("fast_tile.cuh", "pumice/src/ fast.rs", "TILES_PER_ANCHOR PARAMETER_BYTES"),
    (
        "fast_tile.cuh",
        "pumice/src/ tile.rs",
        "KIND QUANTISED EXACT RAW WIDE_BASE SPARSE NO_PLANES MASK_0 ESCAPES MAX_FILLS VALUES_PER_ESCAPE",
    ),
    ("fast_tile.cuh", "pumice/src/ planes.rs", "LEAST_BITS MAX_LEAST N_SUPER=MAX_SUPER"),
    ("fast_choose.cu", "pumice/src/ choose.rs", "RUN MAX_LAG N_RUNS=MAX_RUNS"),
    ("hash.cu", "pumice/src/ checksum.rs", "BLOCK_BYTES"),
    ("scan.cu", "pumice/src/ plan.rs", "MAX_RANK"),
    ("scan.cu", "pumice/src/ stats.rs", "MAX_NAMED"),
    // The format and the encoder of `balanced`.
    ("balanced.cuh", "pumice/src/ groups.rs", "GROUP WIDE ZERO MAX_MAGNITUDE"),
    ("balanced.cuh", "pumice/src/ codebook.rs", "N_CLASSES SIZE_BITS OWN_BOOK_GROUPS CLASS_ALPHABET=CLASS_SYMBOLS"),
    ("balanced.cuh", "pumice/src/ classes.rs", "N_DIGITS"),
    ("balanced.cuh", "pumice/src/ balanced.rs", "BLOCK N_BOOKS=MAX_CODEBOOKS"),
    ("balanced.cuh", "pumice/src/ huffman.rs", "BLOCK GROUP=GROUP_SYMBOLS STREAMS"),
    ("balanced.cuh", "pumice/src/ packed.rs", "MAX_BITS"),
    ("balanced.cuh", "pumice/src/ lengths.rs", "NO_CODE"),
    ("balanced.cuh", "pumice/src/ padding.rs", "VALUES_PER_BYTE"),
    ("balanced.cuh", "pumice/src/ integers.rs", "MAX_INTEGER"),
    ("balanced_encode.cuh", "pumice/src/ differences.rs", "SAMPLE_GROUPS"),
    ("balanced_encode.cuh", "pumice/src/ alphabet.rs", "CHOOSE_GROUPS=SAMPLE_GROUPS REST_BITS"),
    ("balanced.cuh", "pumice/src/ alphabet.rs", "SINGLES=Singles PAIRS=Pairs FOURS=Fours EIGHTS=Eights ONES=Ones"),
    ("balanced_streams.cuh", "pumice/src/ alphabet.rs", "MAX_EIGHTS=EIGHTS_ESCAPE+1"),
    // Launches of `fast`, of hashes and of scans.
    (
        "fast_choose.cu",
        "pumice-gpu/src/ kernels.rs",
        "MAX_CANDIDATES CHOOSE_WARPS*32=CHOOSE_THREADS threads(fast_choose_f32)=CHOOSE_THREADS \
         threads(fast_choose_f64)=CHOOSE_THREADS",
    ),
    (
        "fast_encode.cu",
        "pumice-gpu/src/ kernels.rs",
        "threads(fast_encode_f32)=f32::ENCODE_THREADS threads(fast_encode_f64)=f64::ENCODE_THREADS",
    ),
    (
        "fast_decode.cu",
        "pumice-gpu/src/ kernels.rs",
        "threads(fast_decode_f32)=DECODE_THREADS threads(fast_decode_f64)=DECODE_THREADS \
         threads(fast_decode_wide_f64)=DECODE_THREADS_WIDE",
    ),
    ("fast_open.cuh", "pumice-gpu/src/ kernels.rs", "N_NEAR"),
    ("fast_open.cuh", "pumice-gpu/src/ fast.rs", "NEEDS_WIDE"),
    ("fast_tile.cuh", "pumice-gpu/src/ fast.rs", "TILES_PER_ANCHOR=TILES_PER_RUN"),
    ("values.cuh", "pumice-gpu/src/ kernels.rs", "Real<float>::ENCODE_THREADS=f32::ENCODE_THREADS"),
    ("values.cuh", "pumice-gpu/src/ kernels.rs", "Real<double>::ENCODE_THREADS=f64::ENCODE_THREADS"),
    ("hash.cu", "pumice-gpu/src/ hash.rs", "HASH_THREADS=THREADS LANES"),
    ("scan.cu", "pumice-gpu/src/ kernels.rs", "SCAN_THREADS MAX_RANK"),
    // Launches of `balanced`.
    (
        "balanced.cuh",
        "pumice-gpu/src/ balanced.rs",
        "GROUP MAX_GROUPS TILE BLOCK STREAMS N_BOOKS MAX_SYMBOLS UNIT_BLOCKS CLASS_BLOCKS N_ORDERS STRIP PACKED_BYTES \
         STATE_BYTES=STATE_WORDS*4 sizeof(Tile)=TILE_BYTES",
    ),
    ("balanced_encode.cuh", "pumice-gpu/src/ balanced.rs", "SAMPLE_BLOCKS SPLIT_BLOCKS COUNT_SLOTS RESERVE"),
    ("balanced_split.cu", "pumice-gpu/src/ balanced.rs", "SPLIT_ROWS"),
    ("balanced_decode.cuh", "pumice-gpu/src/ balanced.rs", "ESCAPES_PER_GROUP"),
    ("balanced_decode.cu", "pumice-gpu/src/ balanced.rs", "OPEN_THREADS PATCH_BLOCKS"),
    ("balanced_streams.cuh", "pumice-gpu/src/ balanced.rs", "UNIT_THREADS"),
    ("balanced_sums.cu", "pumice-gpu/src/ balanced.rs", "SUM_BLOCKS RUN_STACKS PATCH*STACK=STACK_ROWS"),
];

/// Constants that only the kernels use.
const OF_KERNELS: &[(&str, &str)] = &[
    (
        "balanced.cuh",
        "CLASS_BOOK REST_BOOK HAS_WIDE NOT_PLAIN WHOLE_ROWS CUT_ROWS N_ALPHABETS OWN_SUM SUM_OF_ALL PLANES PER_THREAD \
         TILE_THREADS",
    ),
    ("balanced_decode.cu", "APART_THREADS PATCH_THREADS"),
    ("balanced_decode.cuh", "FIRST_WITH_LOW"),
    ("balanced_encode.cu", "BLOCK_WORDS CHOOSE_THREADS COPIES COST_BITS COUNT_THREADS WRITE_THREADS"),
    ("balanced_encode.cuh", "SAMPLE_WARPS"),
    ("balanced_runs.cuh", "TOO_MANY"),
    ("balanced_sort.cuh", "BOOKS_THREADS"),
    ("balanced_streams.cuh", "LENGTH_BITS MAX_ROUND_GROUPS PIECE_BYTES RING_BYTES ROUND"),
    ("balanced_sums.cu", "ACROSS_AT_ONCE MANY_STRIPS PLAIN_THREADS SUM_THREADS"),
    ("fast_choose.cu", "PER_LANE RUN_AND_LAG"),
    ("fast_encode.cu", "NARROW_BITS"),
    ("fast_encode.cuh", "KEPT_WORDS MASK_WORDS"),
    // `DECODE_THREADS` depends on a type; the launch bounds of the kernels have its values, and are compared.
    (
        "fast_open.cuh",
        "DECODE_THREADS NARROW_BASE NARROW_BITS NARROW_BITS_TWICE NEEDS_HOST WRONG_ANCHOR WRONG_SIZE WRONG_TILE",
    ),
    ("fast_tile.cuh", "ANY_SHAPE LINE PLANE VOLUME GROUP N_GROUPS MAX_PLANE_ROW_LOG2 MIN_PLANE_ROW_LOG2 NO_TILE"),
    // Constants of XXH3; the CPU uses a crate.
    (
        "hash.cu",
        "PRIME32_1 PRIME32_2 PRIME32_3 PRIME64_1 PRIME64_2 PRIME64_3 PRIME64_4 PRIME64_5 ROUND_BYTES SECRET SECRET_WORDS \
         START STRIPES STRIPE_BYTES",
    ),
    ("values.cuh", "ALL_LANES"),
];

/// The number of threads of each kernel of `balanced` that has no launch bounds.
const UNBOUNDED: &[(&str, &str, &str)] = &[
    ("balanced_sample_f32", "balanced_encode.cuh", "SAMPLE_WARPS*32"),
    ("balanced_sample_f64", "balanced_encode.cuh", "SAMPLE_WARPS*32"),
    ("balanced_tally", "balanced.cuh", "TILE_THREADS"),
    ("balanced_books", "balanced_sort.cuh", "BOOKS_THREADS"),
    ("balanced_place", "balanced.cuh", "TILE_THREADS"),
    ("balanced_alphabets", "balanced_encode.cu", "CHOOSE_THREADS"),
    ("balanced_count", "balanced_encode.cu", "COUNT_THREADS"),
    // A thread for each symbol.
    ("balanced_codebooks", "balanced.cuh", "MAX_SYMBOLS"),
    ("balanced_write", "balanced_encode.cu", "WRITE_THREADS"),
    ("balanced_finish_f32", "balanced.cuh", "TILE_THREADS"),
    ("balanced_finish_f64", "balanced.cuh", "TILE_THREADS"),
    // One warp.
    ("balanced_layout", "balanced.cuh", "32"),
    // These kernels work with any number of threads.
    ("balanced_order_f32", "balanced.cuh", "256"),
    ("balanced_order_f64", "balanced.cuh", "256"),
    ("copy_box", "scan.cu", "SCAN_THREADS"),
];

/// Definitions of the constants of a file, by name.
type Constants = BTreeMap<String, String>;

#[test]
fn shared_constants_are_equal() {
    let (kernels, rust) = (kernels(), rust());
    for (kernel, file, names) in SHARED {
        let (folder, end) = file.split_once(' ').expect("a folder and the end of a path");
        let (stem, _) = end.split_once('.').expect("an extension");
        let ends = [format!("/{end}"), format!("/{stem}/mod.rs")];
        let of_file = |path: &&String| path.starts_with(folder) && ends.iter().any(|end| path.ends_with(end));
        for name in names.split_whitespace() {
            let (left, right) = name.split_once('=').unwrap_or((name, name));
            let is_there = |path: &&String| identifiers(right).iter().all(|word| rust[*path].contains_key(word));
            let paths: Vec<&String> = rust.keys().filter(of_file).filter(is_there).collect();
            let [path] = paths[..] else { panic!("{right} is not in one file {file}, but in {paths:?}") };
            let (ours, theirs) = (value(&rust, path, right), value(&kernels, kernel, left));
            assert_eq!(ours, theirs, "{right} of {path} and {left} of kernels/{kernel}");
        }
    }
}

#[test]
fn every_constant_of_the_kernels_is_listed() {
    // The other tests cover the threads of kernels and the constants of types.
    let is_listed_here = |name: &&String| !name.starts_with("threads(") && !name.starts_with("Real<");
    let left = |name: &str| identifiers(name.split_once('=').map_or(name, |(left, _)| left));
    let mut listed = BTreeSet::new();
    for (kernel, _, names) in SHARED {
        let names = names.split_whitespace().flat_map(left).filter(|name| is_listed_here(&name));
        listed.extend(names.map(|name| (kernel.to_string(), name)));
    }
    for (kernel, names) in OF_KERNELS {
        for name in names.split_whitespace() {
            let is_new = listed.insert((kernel.to_string(), name.to_owned()));
            assert!(is_new, "{name} of kernels/{kernel} is listed twice");
        }
    }
    for (kernel, constants) in kernels() {
        for name in constants.keys().filter(is_listed_here) {
            let was_listed = listed.remove(&(kernel.clone(), name.clone()));
            assert!(was_listed, "{name} of kernels/{kernel} is in neither list of this test");
        }
    }
    assert!(listed.is_empty(), "listed, and not in the kernels: {listed:?}");
}

/// Kernels of `balanced` are launched with the threads that they are written for.
#[test]
fn launches_have_the_threads_of_their_kernels() {
    let (kernels, rust) = (kernels(), rust());
    let mut wanted: BTreeMap<String, u64> = BTreeMap::new();
    for (name, threads) in kernels.values().flatten() {
        if let Some(name) = name.strip_prefix("threads(").and_then(|name| name.strip_suffix(')')) {
            wanted.insert(name.to_owned(), threads.parse().expect("a number"));
        }
    }
    wanted.extend(UNBOUNDED.iter().map(|(name, file, threads)| (name.to_string(), value(&kernels, file, threads))));
    wanted.retain(|name, _| name.starts_with("balanced_") || name == "copy_box");
    let path = "pumice-gpu/src/balanced.rs";
    let text = fs::read_to_string(crates().join(path)).expect("the source can be read");
    for (at, _) in text.match_indices("to.run(") {
        let arguments = arguments(&text[at + "to.run(".len()..]);
        let threads = value(&rust, path, arguments[2]);
        // If a variable holds the name, the line before sets it.
        let names =
            if arguments[0].contains('"') { arguments[0] } else { text[..at].lines().nth_back(1).expect("a line") };
        for name in names.split('"').skip(1).step_by(2) {
            assert_eq!(wanted.remove(name), Some(threads), "{name}");
        }
    }
    assert!(wanted.is_empty(), "not launched: {wanted:?}");
}

/// docs/format.md, section 6.3: 1.5 2^(m - 1) and 2^(m - 2) for m significant bits.
#[test]
fn floating_point_constants_are_those_of_the_format() {
    let constants = &kernels()["values.cuh"];
    let number = |name: &str| constants[name].trim_end_matches('f').parse::<f64>().expect("a number");
    let integer = |name: &str| evaluate(&constants[name], &|name| panic!("{name} is not known"));
    for (of, digits, bits, magic_bits) in [
        ("Real<float>", f32::MANTISSA_DIGITS, 32, u64::from((1.5 * 2_f32.powi(23)).to_bits())),
        ("Real<double>", f64::MANTISSA_DIGITS, 64, (1.5 * 2_f64.powi(52)).to_bits()),
    ] {
        assert_eq!(integer(&format!("{of}::BITS")), bits);
        assert_eq!(integer(&format!("{of}::MANTISSA_BITS")), u64::from(digits));
        assert_eq!(integer(&format!("{of}::MAGIC_BITS")), magic_bits);
        assert_eq!(number(&format!("{of}::MAGIC")), 1.5 * 2_f64.powi(digits as i32 - 1));
        assert_eq!(number(&format!("{of}::MAX_QUANTUM")), 2_f64.powi(digits as i32 - 2));
    }
    let known = ["BITS", "MANTISSA_BITS", "MAGIC_BITS", "MAGIC", "MAX_QUANTUM", "ENCODE_THREADS"];
    for name in constants.keys().filter_map(|name| name.split_once("::")) {
        assert!(known.contains(&name.1), "{name:?} is not compared");
    }
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates").to_owned()
}

/// The constants that the kernels define outside of functions, their block sizes and asserted type sizes, by file name.
fn kernels() -> BTreeMap<String, Constants> {
    let folder = crates().join("pumice-gpu/kernels");
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let constants_of = |path: &Path| {
        let text = fs::read_to_string(path).expect("the source can be read");
        let (mut constants, mut of_type) = (Constants::new(), String::new());
        for (at, line) in line_starts(&text) {
            let statement = |from: &str| text[at..].split_once(from).map(|(_, rest)| rest.split(';').next().unwrap());
            if let Some(name) = line.strip_prefix("struct ") {
                of_type = name.trim_end_matches(" {").to_owned();
            }
            if line.starts_with("constexpr ") {
                let definition = statement("constexpr ").expect("it starts so").split_once(' ').expect("a type").1;
                for part in arguments(definition) {
                    let (name, value) = part.split_once('=').expect("a constant has a value");
                    let name = name.trim().split('[').next().expect("a name");
                    constants.insert(name.to_owned(), value.trim().to_owned());
                }
            } else if line.starts_with("    static constexpr ") && of_type.starts_with("Real<") {
                let definition = statement("static constexpr ").expect("it starts so").split_once(' ').expect("a type");
                let (name, value) = definition.1.split_once('=').expect("a constant has a value");
                constants.insert(format!("{of_type}::{}", name.trim()), value.trim().to_owned());
            } else if let Some(asserted) = line.strip_prefix("static_assert(sizeof(") {
                let (name, rest) = asserted.split_once(") == ").expect("a size");
                let value = rest.split(',').next().expect("a size");
                if value.parse::<u64>().is_ok() {
                    constants.insert(format!("sizeof({name})"), value.to_owned());
                }
            } else if let Some(bounded) = line.trim_start().strip_prefix("KERNEL_BOUNDED(") {
                let parts: Vec<&str> = bounded.split([',', ')']).map(str::trim).collect();
                let names = match parts[2].strip_suffix("##Suffix") {
                    Some(stem) => vec![format!("{stem}f32"), format!("{stem}f64")],
                    None => vec![parts[2].to_owned()],
                };
                names.iter().for_each(|name| drop(constants.insert(format!("threads({name})"), parts[0].to_owned())));
            }
        }
        constants
    };
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    let named = |path: PathBuf| (path.file_name().expect("a name").to_string_lossy().into_owned(), constants_of(&path));
    paths.map(named).collect()
}

fn line_starts(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().map(|line| (line.as_ptr() as usize - text.as_ptr() as usize, line))
}

/// The key of the imports of a Rust file.
const USES: &str = "use";

/// The constants and numbered variants of `pumice` and `pumice-gpu`, by path below `crates`.
fn rust() -> BTreeMap<String, Constants> {
    let mut files = BTreeMap::new();
    let mut folders = vec![crates().join("pumice/src"), crates().join("pumice-gpu/src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.expect("the folder can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).expect("the source can be read");
                let name = path.strip_prefix(crates()).expect("below crates").to_string_lossy().replace('\\', "/");
                files.insert(name, rust_constants(&text));
            }
        }
    }
    files
}

/// The first constant of each name; those of implementations also as `Type::NAME`.
fn rust_constants(text: &str) -> Constants {
    let (mut constants, mut of_type) = (Constants::new(), "");
    for line in text.lines() {
        if let Some((_, implementing)) = line.strip_prefix("impl").and_then(|line| line.split_once(" for ")) {
            of_type = implementing.trim_end_matches(" {");
        }
        if let Some((name, value)) = rust_constant(line) {
            constants.entry(format!("{of_type}::{name}")).or_insert_with(|| value.clone());
            constants.entry(name).or_insert(value);
        }
    }
    let uses = text.split("use ").skip(1).map(|rest| rest.split(';').next().expect("a part"));
    constants.insert(USES.to_owned(), uses.collect());
    constants
}

fn rust_constant(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    if let Some((name, value)) = line.strip_suffix(',').and_then(|line| line.split_once(" = ")) {
        return value.parse::<u64>().is_ok().then(|| (name.to_owned(), value.to_owned()));
    }
    let definition = line.strip_suffix(';')?.split_once("const ")?.1;
    let (name, rest) = definition.split_once(": ")?;
    let value = rest.split_once(" = ")?.1;
    Some((name.to_owned(), value.to_owned()))
}

/// The items of a list, separated by commas outside of brackets; the list ends at the first unmatched closing bracket.
fn arguments(list: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    let mut end = list.len();
    for (at, letter) in list.char_indices() {
        match letter {
            '(' | '{' | '[' => depth += 1,
            ')' | '}' | ']' if depth == 0 => {
                end = at;
                break;
            }
            ')' | '}' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(list[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(list[start..end].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

/// The names in an expression of the lists above.
fn identifiers(expression: &str) -> Vec<String> {
    if expression.contains(['(', ':']) {
        return vec![expression.to_owned()];
    }
    let words = expression.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with(char::is_alphabetic)).map(str::to_owned).collect()
}

/// The value of an expression of a file's constants. A constant of another file must be defined in one file only.
fn value(files: &BTreeMap<String, Constants>, file: &str, expression: &str) -> u64 {
    if let Some(definition) = files[file].get(expression) {
        return evaluate(definition, &|name| value(files, file, name));
    }
    let is_name = expression.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
    if !is_name || expression.starts_with(|letter: char| letter.is_ascii_digit()) {
        return evaluate(expression, &|name| value(files, file, name));
    }
    // Kernel files of a codec include each other and start with its name; Rust files name the modules that they import.
    let family = |file: &str| file.split(['_', '.']).next().expect("a name").to_owned();
    let is_known = |path: &str| match files[file].get(USES) {
        None => family(path) == family(file),
        Some(uses) => uses.contains(&format!("{}::", module(path))),
    };
    let others: Vec<&String> =
        files.keys().filter(|path| is_known(path) && files[*path].contains_key(expression)).collect();
    let [path] = others[..] else { panic!("{expression}, which {file} has from elsewhere, is in {others:?}") };
    value(files, path, expression)
}

/// The name of a file's module.
fn module(path: &str) -> &str {
    let path = path.strip_suffix("/mod.rs").unwrap_or(path);
    path.rsplit('/').next().expect("a name").split('.').next().expect("a name")
}

/// Evaluates an expression of integers, in the syntax that both languages share.
fn evaluate(expression: &str, resolve: &dyn Fn(&str) -> u64) -> u64 {
    let mut parser = Parser { tokens: tokens(expression), at: 0, resolve };
    let value = parser.sum_of(0);
    assert_eq!(parser.at, parser.tokens.len(), "{expression}: {:?}", parser.tokens);
    value
}

/// Splits an expression into numbers, names and operators; casts are dropped.
fn tokens(expression: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut rest = expression.trim();
    while let Some(first) = rest.chars().next() {
        let is_word = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
        let n = match first {
            _ if is_word(first) => rest.find(|letter| !is_word(letter)).unwrap_or(rest.len()),
            '<' => 2,
            _ => 1,
        };
        let (token, after) = rest.split_at(n);
        rest = after.trim_start();
        if token == "as" {
            rest = rest.trim_start_matches(is_word).trim_start();
        } else if !(first.is_alphabetic() && rest.starts_with('(')) {
            tokens.push(token.rsplit("::").next().expect("a name").to_owned());
        }
    }
    tokens
}

struct Parser<'a> {
    tokens: Vec<String>,
    at: usize,
    resolve: &'a dyn Fn(&str) -> u64,
}

impl Parser<'_> {
    /// Evaluates terms joined by operators of at least this level of precedence.
    fn sum_of(&mut self, level: usize) -> u64 {
        const OPERATORS: [&[&str]; 4] = [&["|"], &["<<"], &["+", "-"], &["*", "/"]];
        let Some(operators) = OPERATORS.get(level) else { return self.term() };
        let mut left = self.sum_of(level + 1);
        while let Some(operator) = self.tokens.get(self.at).filter(|token| operators.contains(&token.as_str())).cloned()
        {
            self.at += 1;
            let right = self.sum_of(level + 1);
            left = match operator.as_str() {
                "|" => left | right,
                "<<" => left << right,
                "+" => left + right,
                "-" => left - right,
                "*" => left * right,
                _ => left / right,
            };
        }
        left
    }

    fn term(&mut self) -> u64 {
        let token = self.tokens[self.at].clone();
        self.at += 1;
        if token == "(" {
            let value = self.sum_of(0);
            assert_eq!(self.tokens[self.at], ")");
            self.at += 1;
            return value;
        }
        if !token.starts_with(|letter: char| letter.is_ascii_digit()) {
            return (self.resolve)(&token);
        }
        let digits = token.replace('_', "");
        let (digits, radix) = digits.strip_prefix("0x").map_or((digits.as_str(), 10), |digits| (digits, 16));
        // A type may follow, as in 1u and 4096usize.
        let end = digits.find(|digit: char| !digit.is_digit(radix)).unwrap_or(digits.len());
        u64::from_str_radix(&digits[..end], radix).expect("a number")
    }
}

#[test]
fn expressions_are_evaluated_as_by_compilers() {
    let resolve = |name: &str| if name == "GROUP" { 32 } else { panic!("{name} is not known") };
    for (expression, value) in [
        ("1u << 26", 1 << 26),
        ("(uint64_t(1) << 51) - (uint64_t(1) << 31)", (1 << 51) - (1 << 31)),
        ("2 + 3 * groups::GROUP", 98),
        ("GROUP as usize / 2", 16),
        ("(GROUP * 4) as u32", 128),
        ("0x4B400000", 0x4B40_0000),
        ("1 << 2 + 1 | 3", 11),
    ] {
        assert_eq!(evaluate(expression, &resolve), value, "{expression}");
    }
}
