//! Parsers of single argument values. Each returns a message that says what was expected.

use std::str::FromStr;

use pumice::{BoundKind, ErrorBound};

/// Extents of an array, in the order they were typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extents(pub(crate) Vec<usize>);

/// `30,192,288` or `30x192x288`.
pub(crate) fn extents(text: &str) -> Result<Extents, String> {
    text.split([',', 'x'])
        .map(|part| {
            part.trim().parse().map_err(|_| format!("'{part}' is not an extent; expected something like 30,192,288"))
        })
        .collect::<Result<Vec<usize>, String>>()
        .map(Extents)
}

/// A finite number that is not negative.
pub(crate) fn bound(text: &str) -> Result<f64, String> {
    match number(text)? {
        e if e.is_finite() && e >= 0.0 => Ok(e),
        _ => Err("a bound is a finite number that is not negative, such as 1e-3".into()),
    }
}

/// A finite number above 0.
pub(crate) fn psnr(text: &str) -> Result<f64, String> {
    match number(text)? {
        db if db.is_finite() && db > 0.0 => Ok(db),
        _ => Err("a PSNR is a finite number of decibels above 0, such as 60".into()),
    }
}

/// A finite number of at least 1.
pub(crate) fn ratio(text: &str) -> Result<f64, String> {
    match number(text)? {
        r if r.is_finite() && r >= 1.0 => Ok(r),
        _ => Err("a ratio is a finite number of at least 1, such as 10".into()),
    }
}

/// Any number, `nan` and `inf` included.
pub(crate) fn number(text: &str) -> Result<f64, String> {
    f64::from_str(text.trim()).map_err(|_| format!("'{text}' is not a number"))
}

/// `MIN,MAX`.
pub(crate) fn range(text: &str) -> Result<(f64, f64), String> {
    let (min, max) = text.split_once(',').ok_or("expected MIN,MAX, such as -5,40")?;
    let (min, max) = (number(min)?, number(max)?);
    if min.is_finite() && max.is_finite() && min <= max {
        Ok((min, max))
    } else {
        Err("expected two finite numbers, the smaller one first".into())
    }
}

/// `key=value`.
pub(crate) fn attribute(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("expected key=value, such as units=K".into()),
    }
}

/// A region and its bound. The region is text, since the shape of the array is not known yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Roi {
    pub(crate) region: String,
    pub(crate) bound: ErrorBound,
}

/// `0:10,5:9=abs:1e-3`: a region, and its bound as kind and number.
pub(crate) fn roi(text: &str) -> Result<Roi, String> {
    let expected = "expected REGION=KIND:E, such as 0:10,:,5:9=abs:1e-3, with rel, pwrel or lossless as other kinds";
    let (region, bound) = text.split_once('=').ok_or(expected)?;
    let (kind, e) = bound.trim().split_once(':').map_or((bound.trim(), None), |(kind, e)| (kind, Some(e)));
    let bound = match (kind.parse::<BoundKind>(), e) {
        (Ok(BoundKind::Lossless), None) => ErrorBound::Lossless,
        (Ok(kind), Some(e)) if kind != BoundKind::Lossless && !kind.is_target() => {
            ErrorBound::from_kind(kind, self::bound(e)?)
        }
        _ => return Err(expected.into()),
    };
    Ok(Roi { region: region.trim().into(), bound })
}

/// Bytes with an optional binary suffix: `500`, `64M`, `2G`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let text = text.trim().trim_end_matches(['b', 'B']).trim_end_matches('i');
    let (digits, shift) = match text.chars().last() {
        Some('k' | 'K') => (&text[..text.len() - 1], 10),
        Some('m' | 'M') => (&text[..text.len() - 1], 20),
        Some('g' | 'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let count: u64 = digits.trim().parse().map_err(|_| "expected a size such as 500k, 64M or 2G".to_string())?;
    count.checked_mul(1 << shift).ok_or_else(|| "this size is too large".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_take_commas_and_crosses() {
        assert_eq!(extents("30,192,288").unwrap().0, [30, 192, 288]);
        assert_eq!(extents("30x192").unwrap().0, [30, 192]);
        assert_eq!(extents("7").unwrap().0, [7]);
        assert!(extents("").is_err());
        assert!(extents("3,-1").is_err());
    }

    #[test]
    fn sizes_take_suffixes() {
        assert_eq!(size("500"), Ok(500));
        assert_eq!(size("64M"), Ok(64 << 20));
        assert_eq!(size("1GiB"), Ok(1 << 30));
        assert_eq!(size("2kB"), Ok(2048));
        assert!(size("M").is_err());
        assert!(size("99999999999G").is_err());
    }

    #[test]
    fn bounds_are_finite_and_not_negative() {
        assert_eq!(bound("0"), Ok(0.0));
        assert_eq!(bound("1e-3"), Ok(1e-3));
        assert!(bound("-1").is_err());
        assert!(bound("inf").is_err());
        assert!(bound("nan").is_err());
    }

    #[test]
    fn targets_make_sense() {
        assert_eq!((psnr("60"), ratio("1")), (Ok(60.0), Ok(1.0)));
        assert!(["0", "-3", "nan", "inf"].iter().all(|text| psnr(text).is_err()));
        assert!(["0.9", "-3", "nan", "inf"].iter().all(|text| ratio(text).is_err()));
    }

    #[test]
    fn regions_have_bounds() {
        let expected = Roi { region: "0:10,:".into(), bound: ErrorBound::Abs(1e-3) };
        assert_eq!(roi("0:10,: = abs:1e-3"), Ok(expected));
        assert_eq!(roi("5=lossless").unwrap().bound, ErrorBound::Lossless);
        assert_eq!(roi("5=pwrel:0.1").unwrap().bound, ErrorBound::PwRel(0.1));
        for text in ["5", "5=abs", "5=abs:-1", "5=1e-3", "5=lossless:1", "5=nonsense:1"] {
            assert!(roi(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ranges_are_ordered() {
        assert_eq!(range("-5,40"), Ok((-5.0, 40.0)));
        assert!(range("40,-5").is_err());
        assert!(range("4").is_err());
    }

    #[test]
    fn attributes_may_hold_equal_signs() {
        assert_eq!(attribute("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(attribute("=b").is_err());
    }
}
