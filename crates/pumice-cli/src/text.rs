//! Formats numbers, sizes and tables for text reports.

use std::ops::Range;

/// `30 x 192 x 288`.
pub(crate) fn shape(shape: &[usize]) -> String {
    if shape.is_empty() {
        return "scalar".into();
    }
    join(shape, " x ")
}

/// Values with a separator between them.
pub(crate) fn join<T: ToString>(items: &[T], separator: &str) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(separator)
}

/// A region in the notation of `--region`: `0:10,3:4`.
pub(crate) fn region(region: &[Range<usize>]) -> String {
    let slices: Vec<_> = region.iter().map(|r| format!("{}:{}", r.start, r.end)).collect();
    slices.join(",")
}

/// `6.64 MB`, in powers of ten.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if n < 1000 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1000.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// Up to `digits` significant digits, with an exponent only where the plain number would be long.
pub(crate) fn number(value: f64, digits: usize) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("an exponent is an integer");
    if (-2..digits as i32 + 2).contains(&exponent) {
        let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
        return trim_zeros(&format!("{value:.decimals$}")).into();
    }
    format!("{}e{exponent}", trim_zeros(mantissa))
}

/// The shortest text that gives exactly this number again, with an exponent only where the plain number would be long.
#[cfg(feature = "hdf5")]
pub(crate) fn exact(value: f64) -> String {
    let is_plain = value == 0.0 || (1e-4..1e16).contains(&value.abs());
    if is_plain { format!("{value}") } else { format!("{value:e}") }
}

fn trim_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// `12.3x`; an array without values has no ratio.
pub(crate) fn ratio(value: f64) -> String {
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    if value.is_finite() && value > 0.0 { format!("{value:.decimals$}x") } else { "-".into() }
}

/// A share of a limit in percent, rounded down: it reads 100 only where the limit is reached.
pub(crate) fn percent(share: f64, decimals: usize) -> String {
    let scale = 10f64.powi(decimals as i32);
    format!("{:.decimals$} %", (share * 100.0 * scale).floor() / scale)
}

/// `0.25 s`.
pub(crate) fn seconds(value: f64) -> String {
    if value < 0.0995 { format!("{} ms", number(value * 1e3, 2)) } else { format!("{} s", number(value, 3)) }
}

/// Bytes per second as `1.23 GB/s`.
pub(crate) fn speed(bytes: u64, seconds: f64) -> String {
    format!("{}/s", self::bytes((bytes as f64 / seconds.max(1e-9)) as u64))
}

/// Rows of cells under a heading; the first `n_left` columns are aligned left, the others right.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    n_left: usize,
}

impl Table {
    pub(crate) fn new(heading: &[&str], n_left: usize) -> Self {
        Self { rows: vec![heading.iter().map(|h| (*h).to_string()).collect()], n_left }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table with a line under its heading.
    pub(crate) fn render(&self) -> String {
        let widths: Vec<usize> = (0..self.rows[0].len())
            .map(|c| self.rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0))
            .collect();
        let mut out = String::new();
        for (i, row) in self.rows.iter().enumerate() {
            let cells: Vec<_> =
                row.iter().zip(&widths).enumerate().map(|(c, (cell, &w))| self.cell(c, cell, w)).collect();
            out += cells.join("  ").trim_end();
            out.push('\n');
            if i == 0 {
                out += &"-".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1));
                out.push('\n');
            }
        }
        out
    }

    fn cell(&self, column: usize, text: &str, width: usize) -> String {
        if column < self.n_left { format!("{text:<width$}") } else { format!("{text:>width$}") }
    }
}

/// Names and values, one pair per line; names are padded to one width.
pub(crate) fn facts(facts: &[(&str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    facts.iter().map(|(name, value)| format!("{name:<width$}  {value}\n")).collect()
}

/// Fill values, with no more digits than their type has.
pub(crate) fn fills(fills: &[f64], dtype: &str) -> String {
    let text = |value: &f64| if dtype == "f32" { format!("{:?}", *value as f32) } else { format!("{value:?}") };
    fills.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_three_digits() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1000), "1.00 kB");
        assert_eq!(bytes(6_635_520), "6.64 MB");
        assert_eq!(bytes(999_999), "1.00 MB");
        assert_eq!(bytes(123_456_789_012), "123 GB");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(0.0, 4), "0");
        assert_eq!(number(1e-3, 4), "1e-3");
        assert_eq!(number(0.05, 4), "0.05");
        assert_eq!(number(12.3456, 3), "12.3");
        assert_eq!(number(1e20, 4), "1e20");
        assert_eq!(number(123_456.0, 4), "123456");
        assert_eq!(number(f64::INFINITY, 4), "inf");
    }

    #[test]
    #[cfg(feature = "hdf5")]
    fn exact_numbers_come_back() {
        let texts = [
            (1.0, "1"),
            (1e-3, "0.001"),
            (-53.836_700_439_453_125, "-53.836700439453125"),
            (1e-5, "1e-5"),
            (-2.5e20, "-2.5e20"),
            (123_456_789.0, "123456789"),
            (0.0, "0"),
            (f64::NAN, "NaN"),
        ];
        for (value, text) in texts {
            assert_eq!(exact(value), text);
            assert!(value.is_nan() || text.parse() == Ok(value));
        }
    }

    #[test]
    fn shares_are_not_rounded_up() {
        assert_eq!(percent(0.99999, 1), "99.9 %");
        assert_eq!(percent(1.0, 1), "100.0 %");
        assert_eq!(percent(1.5, 2), "150.00 %");
    }

    #[test]
    fn tables_align() {
        let mut table = Table::new(&["a", "long"], 1);
        table.row(vec!["xyz".into(), "1".into()]);
        assert_eq!(table.render(), "a    long\n---------\nxyz     1\n");
    }
}
