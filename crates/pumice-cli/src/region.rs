//! Parses a box of an array in the notation of Python slices: `0:10,:,5:9`. A slice past the end is an error rather
//! than clipped, because a typing error should not silently give a smaller array.

use std::ops::Range;

use crate::failure::{Failure, Result};
use crate::text;

/// The ranges that `text` selects in an array of this shape; omitted trailing axes are taken whole.
pub(crate) fn parse(text: &str, shape: &[usize]) -> Result<Vec<Range<usize>>> {
    let slices: Vec<&str> = text.split(',').map(str::trim).collect();
    if slices.len() > shape.len() {
        let message =
            format!("the region '{text}' has {} slices, but the array is {}", slices.len(), text::shape(shape));
        return Err(Failure::invalid(message).hint("give one slice per axis, slowest axis first"));
    }
    let whole = std::iter::repeat(":");
    shape
        .iter()
        .zip(slices.into_iter().chain(whole))
        .enumerate()
        .map(|(axis, (&extent, slice))| parse_slice(slice, axis, extent))
        .collect()
}

fn parse_slice(slice: &str, axis: usize, extent: usize) -> Result<Range<usize>> {
    let refuse = |why: &str| {
        Failure::invalid(format!("'{slice}' on axis {axis}, which has extent {extent}: {why}"))
            .hint("slices are START:STOP as in Python, such as 0:10, :5, -3:, 7 or :")
    };
    let bound = |text: &str, default: usize| match text.trim() {
        "" => Ok(default),
        text => {
            let value: i64 = text.parse().map_err(|_| refuse("not a number"))?;
            let from_start = if value < 0 { value + extent as i64 } else { value };
            usize::try_from(from_start).map_err(|_| refuse("before the start"))
        }
    };
    let range = match slice.split_once(':') {
        Some((start, stop)) => bound(start, 0)?..bound(stop, extent)?,
        None if slice.is_empty() => return Err(refuse("empty")),
        None => {
            let index = bound(slice, 0)?;
            index..index + 1
        }
    };
    if range.end > extent {
        return Err(refuse("past the end"));
    }
    if range.is_empty() && extent > 0 {
        return Err(refuse("selects nothing"));
    }
    Ok(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_as_in_python() {
        let shape = [30, 192, 288];
        assert_eq!(parse("0:10,:,5:9", &shape).unwrap(), [0..10, 0..192, 5..9]);
        assert_eq!(parse("-1", &shape).unwrap(), [29..30, 0..192, 0..288]);
        assert_eq!(parse("3,-2:,:-280", &shape).unwrap(), [3..4, 190..192, 0..8]);
        assert_eq!(parse(" 1:2 , : ", &shape).unwrap(), [1..2, 0..192, 0..288]);
        assert_eq!(parse(":", &[0]).unwrap(), vec![0..0]);
    }

    #[test]
    fn mistakes_are_refused() {
        for text in ["0:31", "30", "-31", "5:5", "7:3", "a:b", "1:9:2", "", "0,0,0,0"] {
            assert!(parse(text, &[30, 192, 288]).is_err(), "{text}");
        }
    }
}
